#!/usr/bin/env python3
"""Exit codes and sentences: usage, missing and hostile files, amounts that make no sense."""
import json
import os
import shutil
import struct

from harness import RANDOM_K3, TINY, Case, main

COMMANDS = ["run", "logits", "perplexity", "inspect", "tokenize", "chat-format", "cut", "controller", "node", "gateway"]
FLEET = ["up", "status", "kill", "down"]


class Usage(Case):
    def test_help(self):
        for words in [[]] + [[c] for c in COMMANDS] + [["fleet"]] + [["fleet", c] for c in FLEET] + [["bench"], ["bench", "read"]]:
            text = self.run_ok(*words, "--help")
            self.assertIn("exit codes", text, words)
            self.assertNotIn("--ready-fd", text)
        for command in COMMANDS + ["fleet", "bench"]:
            self.assertIn(command, self.run_ok("--help"))
        self.assertRegex(self.run_ok("--version"), r"^myriad \d+\.\d+\.\d+\n$")

    def test_usage_errors(self):
        for words, arguments in (
                (["subcommand"], []),
                (["frobnicate"], ["frobnicate"]),
                (["MODEL"], ["run"]),
                (["--frob"], ["run", TINY, "--frob"]),
                (["profile"], ["run", TINY, "-p", "x", "--profile", "best"]),
                (["--tokens"], ["run", TINY, "-p", "x", "-n", "many"]),
                (["--temperature"], ["run", TINY, "-p", "x", "--temperature", "-1"]),
                (["amount of bytes"], ["run", TINY, "-p", "x", "--nodes", 2, "--node-memory", "lots"]),
                (["--ids"], ["logits", TINY]),
                (["id number 2"], ["logits", TINY, "--ids", "1,x"]),
                (["0 to 4095"], ["logits", TINY, "--ids", "1,4096"]),
                (["0 to 4095"], ["logits", TINY, "--ids=-5"]),
                (["--out"], ["cut", TINY]),
                (["65536"], ["bench", "read", "--bytes", "1000"]),
                (["seconds"], ["bench", "read", "--seconds", "0"]),
                (["--method"], ["perplexity", TINY, "-f", TINY / "holdout.txt", "--method", "best"]),
                (["port"], ["gateway", "--join", "here:there", "--token-file", "x"]),
                (["name of a fleet"], ["fleet", "status", "--fleet", "../../etc"])):
            self.assert_fails(2, words, *arguments)

    def test_no_fleet(self):
        for arguments in (["status"], ["down"], ["kill", "n0"]):
            self.assert_fails(4, ["no fleet named 'default'", "fleet up"], "fleet", *arguments)

    def test_context(self):
        self.assert_fails(1, ["context"], "run", TINY, "-p", "In the beginning", "-n", 50, "--context", 10)


class Files(Case):
    def test_missing(self):
        for command in (["run", "-p", "x"], ["logits", "--ids", "1"], ["inspect"], ["cut", "--dry-run"], ["tokenize"]):
            self.assert_fails(3, ["/nowhere/at/all"], command[0], "/nowhere/at/all", *command[1:])
        self.assert_fails(3, ["no-such-text"], "perplexity", TINY, "-f", "no-such-text")
        self.assert_fails(3, ["tiktoken.model"], "run", RANDOM_K3, "-p", "x")  # a model without a tokenizer
        self.assert_fails(3, ["no-token"], "node", "--join", "127.0.0.1:1", "--token-file", "no-token", "--store",
                          self.directory / "store")
        self.assert_fails(3, ["not a cut model", "myriad cut"], "controller", TINY, "--token-file", self.token())

    def token(self):
        path = self.directory / "token"
        path.write_text("0123456789abcdef0123456789abcdef\n")
        path.chmod(0o600)
        return path

    def copy(self, name):
        target = self.directory / name
        shutil.copytree(RANDOM_K3, target)
        for path in target.iterdir():
            path.chmod(0o644)
        return target

    def check_hostile(self, model, *words):
        for command in (["inspect"], ["logits", "--ids", "1,2"], ["cut", "--dry-run"]):
            done = self.start(command[0], model, *command[1:])
            if command[0] == "inspect" and done.returncode == 0:
                continue  # the inventory may be fine where the weights are not
            self.assert_fails(3, words, command[0], model, *command[1:])

    def test_hostile_models(self):
        shard = "model-00001-of-000002.safetensors"
        empty = self.directory / "empty"
        empty.mkdir()
        self.check_hostile(empty, "config.json")
        model = self.copy("no-json")
        (model / "config.json").write_text("{" * 1000)
        self.check_hostile(model, "config.json")
        model = self.copy("absurd")
        config = json.loads((model / "config.json").read_text())
        text = config.get("text_config", config)
        text["num_hidden_layers"] = 10**12
        (model / "config.json").write_text(json.dumps(config))
        self.check_hostile(model, "num_hidden_layers")
        model = self.copy("other-kind")
        (model / "config.json").write_text('{"model_type": "gpt2"}')
        self.check_hostile(model, "gpt2")
        model = self.copy("truncated")
        os.truncate(model / shard, 100_000)
        self.check_hostile(model, shard)
        model = self.copy("huge-header")
        with open(model / shard, "r+b") as f:
            f.write(struct.pack("<Q", 1 << 62))
        self.check_hostile(model, shard)
        model = self.copy("missing-shard")
        (model / shard).unlink()
        self.check_hostile(model, shard)

    def test_hostile_cut(self):
        cut = self.directory / "cut"
        self.run_ok("cut", RANDOM_K3, "--out", cut)
        self.run_ok("logits", cut, "--ids", "1,2")
        part = max((cut / "parts").iterdir(), key=lambda p: p.stat().st_size)
        data = bytearray(part.read_bytes())
        data[len(data) // 2] ^= 1
        part.chmod(0o644)
        part.write_bytes(data)
        self.assert_fails(3, [part.name], "logits", cut, "--ids", "1,2")
        manifest = cut / "manifest.json"
        text = manifest.read_text()
        for damaged in (text[:len(text) // 2], "[]", text.replace("parts", "prats")):
            manifest.write_text(damaged)
            self.assert_fails(3, [], "logits", cut, "--ids", "1,2")


class Memory(Case):
    def test_does_not_fit(self):
        done = self.assert_fails(5, ["does not fit", "missing"], "run", TINY, "-p", "x", "--nodes", 2, "--node-memory", "7MiB")
        self.assertNotIn("cutting", done.err)  # it is known before anything is made
        self.assert_fails(5, ["does not fit"], "fleet", "up", TINY, "--nodes", 1, "--node-memory", "8MiB")


if __name__ == "__main__":
    main()
