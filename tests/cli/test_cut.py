#!/usr/bin/env python3
"""Cuts: what is listed is what is made; they resume; the full-size model is planned in seconds."""
import json
import shutil
import struct
import subprocess
import sys
import time

from harness import RANDOM_K3, SOURCE, TINY, Case, main


class Cut(Case):
    def test_dry_run_is_what_is_made(self):
        options = ("--part-bytes", "200kB")
        plan = json.loads(self.run_ok("cut", TINY, "--dry-run", "--json", *options))
        self.assertEqual(plan["total"]["parts"], len(plan["parts"]))
        self.assertEqual(plan["total"]["bytes"], sum(p["bytes"] for p in plan["parts"]))
        self.assertEqual(len({p["name"] for p in plan["parts"]}), len(plan["parts"]))
        out = self.directory / "cut"
        made = self.start("cut", TINY, "--out", out, "--name", "psalms", *options)
        self.assertEqual(made.returncode, 0, made.err)
        self.assertIn("100 %", made.err)
        files = list((out / "parts").iterdir())
        self.assertEqual(sum(f.stat().st_size for f in files), plan["total"]["bytes"])
        shown = json.loads(self.run_ok("inspect", out, "--json"))
        self.assertEqual((shown["model"], shown["parts"], shown["bytes"]),
                         ("psalms", plan["total"]["parts"], plan["total"]["bytes"]))
        # An interrupted cut goes on: what is there stays.
        kept = files[0].stat().st_mtime_ns
        files[1].unlink()
        (out / "manifest.json").unlink()
        self.run_ok("cut", TINY, "--out", out, "--name", "psalms", *options)
        self.assertEqual(files[0].stat().st_mtime_ns, kept)
        self.assertTrue(files[1].exists())

    def test_cut_model_runs(self):
        out = self.directory / "runs"
        self.run_ok("cut", TINY, "--out", out, "--node-memory", "16MiB", "--nodes", 8)
        self.assertEqual(self.run_ok("logits", out, "--ids", "1,2,3", "--digest"),
                         self.run_ok("logits", TINY, "--ids", "1,2,3", "--digest"))
        self.assertEqual(self.run_ok("run", out, "-p", "In the", "-n", 4), self.run_ok("run", TINY, "-p", "In the", "-n", 4))

    def test_refusals(self):
        self.assert_fails(2, ["itself"], "cut", TINY, "--out", TINY)
        out = self.directory / "again"
        self.run_ok("cut", TINY, "--out", out)
        self.assert_fails(3, ["cut already"], "cut", out, "--out", self.directory / "twice")
        file = self.directory / "file"
        file.write_text("")
        self.assert_fails(3, [str(file)], "cut", TINY, "--out", file)

    def test_sliding_window(self):
        out = self.directory / "window"
        self.run_ok("cut", TINY, "--out", out)
        whole = self.run_ok("logits", out, "--ids", "1,2,3,4,5,6,7,8", "--digest")
        manifest = json.loads((out / "manifest.json").read_text())
        manifest["config"] = json.dumps(dict(json.loads(manifest["config"]), attention_window=8))
        (out / "manifest.json").chmod(0o644)
        (out / "manifest.json").write_text(json.dumps(manifest))
        self.assertEqual(self.run_ok("logits", out, "--ids", "1,2,3,4,5,6,7,8", "--digest"), whole)
        words = ["sliding window of 8", "at most 8"]
        self.assert_fails(2, words + ["9 positions"], "logits", out, "--ids", "1,2,3,4,5,6,7,8,9")
        self.assert_fails(2, words + ["12 positions"], "logits", out, "--ids", "1,2,3", "--context", 12)
        self.assert_fails(2, words, "run", out, "-p", "In the", "-n", 40)
        text = self.directory / "text"
        text.write_text("In the beginning God created the heaven and the earth. " * 9)
        self.assert_fails(2, words + ["16 positions"], "perplexity", out, "-f", text, "--window", 16)
        self.assert_fails(2, words + ["4096 positions"], "fleet", "up", out, "--nodes", 1)

    def test_another_models_cut_stays(self):
        out = self.directory / "taken"
        self.run_ok("cut", TINY, "--out", out, "--name", "psalms")
        before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
        other = self.directory / "other"
        shutil.copytree(TINY, other)
        for path in other.iterdir():
            path.chmod(0o644)
        for path in other.glob("*.safetensors"):
            data = path.read_bytes()
            length = struct.unpack("<Q", data[:8])[0]
            path.write_bytes(data[:8 + length] + bytes(b ^ 1 for b in data[8 + length:]))
        for words, arguments in ((["'psalms'", "configuration"], [RANDOM_K3, "--name", "psalms"]), (["'psalms'", "'genesis'"], [TINY, "--name", "genesis"]),
                                 (["other places"], [TINY, "--name", "psalms", "--part-bytes", "200kB"]),
                                 (["weights"], [other, "--name", "psalms"])):
            self.assert_fails(2, words + [str(out), "remove it"], "cut", *arguments, "--out", out)
        self.run_ok("cut", TINY, "--out", out, "--name", "psalms")  # the same once more
        self.assertEqual({p: p.read_bytes() for p in out.rglob("*") if p.is_file()}, before)

    def test_full_size(self):
        """Kimi K3 as it is, 1.56 TB of holes: 82,432 experts are listed, and the fleet that holds them is counted."""
        model = self.directory / "sparse"
        subprocess.run([sys.executable, "-B", str(SOURCE / "tools/make_sparse_k3.py"), str(model)], check=True,
                       stdout=subprocess.DEVNULL)
        began = time.monotonic()
        plan = json.loads(self.run_ok("cut", model, "--dry-run", "--node-memory", "256MiB", "--json"))
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(sum(".expert." in p["name"] for p in plan["parts"]), 82_432)
        self.assertGreater(plan["total"]["bytes"], 1.5e12)
        self.assertLess(plan["total"]["largest"], 32 << 20)
        self.assertGreater(plan["nodes"] * plan["node_memory"], plan["total"]["bytes"])
        self.assertLess(plan["nodes"], 20_000)


if __name__ == "__main__":
    main()
