#!/usr/bin/env python3
"""Logits against the reference, and the same bits whatever the cut, chunk, batch, thread count and number of nodes."""
import hashlib
import json
import random
import struct
import time

from harness import RANDOM_K3, RANDOM_LINEAR, TINY, Case, ids_text, main, read_json


class Logits(Case):
    def digest(self, model, ids, *options):
        out = self.run_ok("logits", model, "--ids", ids_text(ids), "--digest", *options).strip()
        self.assertRegex(out, "^[0-9a-f]{64}$")
        return out

    def test_golden(self):
        for model, limit in ((RANDOM_K3, 2e-4), (RANDOM_LINEAR, 2e-5)):
            golden = read_json(model / "golden.json")
            out = json.loads(self.run_ok("logits", model, "--ids", ids_text(golden["ids"]), "--json", "--profile", "exact"))
            self.assertEqual(out["ids"], golden["ids"])
            self.assertEqual(len(out["logits"]), len(golden["logits"]))
            largest = max(abs(x) for row in golden["logits"] for x in row)
            worst = max(abs(a - b) for ours, theirs in zip(out["logits"], golden["logits"])
                        for a, b in zip(ours, theirs))
            self.assertLess(worst, limit * largest, model)

    def test_trained_model(self):
        expected = read_json(TINY / "EXPECTED.json")
        out = json.loads(self.run_ok("logits", TINY, "--ids", ids_text(expected["first_window_ids"]), "--json",
                                     "--profile", "exact"))
        theirs = expected["first_window_last_logits"]
        worst = max(abs(a - b) for a, b in zip(out["logits"][-1], theirs))
        self.assertLess(worst, 2e-3)

    def test_digest_is_of_the_json(self):
        ids = [5, 6, 7]
        out = json.loads(self.run_ok("logits", RANDOM_K3, "--ids", ids_text(ids), "--json"))
        packed = b"".join(struct.pack(f"<{len(row)}f", *row) for row in out["logits"])
        self.assertEqual(self.digest(RANDOM_K3, ids), hashlib.sha256(packed).hexdigest())

    def test_same_bits_everywhere(self):
        seed = int(time.time())
        print(f"seed {seed}", flush=True)
        rng = random.Random(seed)
        others = self.directory / "others"
        for model in (RANDOM_K3, RANDOM_LINEAR):
            vocabulary = len(read_json(model / "golden.json")["logits"][0])
            ids = [rng.randrange(vocabulary) for _ in range(24)]
            others.write_text("".join(ids_text([rng.randrange(vocabulary) for _ in range(rng.randint(1, 24))]) + "\n"
                                      for _ in range(3)))
            for profile in ("exact", "fast"):
                want = self.digest(model, ids, "--profile", profile, "--interpreter")
                for _ in range(4):
                    options = ["--profile", profile, "--threads", rng.randint(1, 4), "--prefill-chunk",
                               rng.randint(1, 24), "--cut-seed", rng.randint(0, 1 << 32)]
                    if rng.random() < 0.5:
                        options += ["--batch-with", others]
                    self.assertEqual(self.digest(model, ids, *options), want, f"{model} {ids} {options}")

    def test_same_bits_on_nodes(self):
        ids = list(range(1, 18))
        want = self.digest(RANDOM_K3, ids)
        for nodes, options in ((1, ()), (3, ("--cut-seed", 7)), (5, ("--prefill-chunk", 4))):
            self.assertEqual(self.digest(RANDOM_K3, ids, "--nodes", nodes, "--node-memory", "64MiB", *options), want,
                             f"{nodes} nodes {options}")

    def test_text_form(self):
        lines = self.run_ok("logits", RANDOM_K3, "--ids", "1,2,3").splitlines()
        self.assertEqual(len(lines), 3)
        rows = json.loads(self.run_ok("logits", RANDOM_K3, "--ids", "1,2,3", "--json"))["logits"]
        for position, line in enumerate(lines):
            words = line.split()
            self.assertEqual(int(words[0]), position)
            best = sorted(range(len(rows[0])), key=lambda i: (-rows[position][i], i))[:5]
            self.assertEqual([int(w.split(":")[0]) for w in words[1:]], best)

    def test_forms_of_ids(self):
        want = self.digest(RANDOM_K3, [1, 2, 3])
        file = self.directory / "ids"
        for text in ("1 2 3\n", "[1, 2, 3]", "1,\n2,\n3\n"):
            file.write_text(text)
            self.assertEqual(self.run_ok("logits", RANDOM_K3, "--ids-file", file, "--digest").strip(), want)
            self.assertEqual(self.run_ok("logits", RANDOM_K3, "--ids-file", "-", "--digest", input=text).strip(), want)


class Perplexity(Case):
    WINDOWS = 8

    def perplexity(self, *options):
        return json.loads(self.run_ok("perplexity", TINY, "-f", TINY / "holdout.txt", *options))

    def test_reference(self):
        """All windows: within 0.2 % (exact) and 0.4 % (fast) of the reference."""
        expected = read_json(TINY / "EXPECTED.json")
        out = self.perplexity("--profile", "fast")
        self.assertEqual(out["tokens"], expected["predicted"])
        self.assertLess(abs(out["perplexity"] / expected["perplexity"] - 1), 0.004)
        exact = self.perplexity("--profile", "exact", "--windows", self.WINDOWS)
        fast = self.perplexity("--profile", "fast", "--windows", self.WINDOWS)
        self.assertEqual(exact["tokens"], 256 * self.WINDOWS)
        self.assertLess(abs(fast["perplexity"] / exact["perplexity"] - 1), 0.006)

    def test_same_on_nodes(self):
        options = ("--windows", 2)
        self.assertEqual(self.perplexity(*options)["loss"],
                         self.perplexity(*options, "--nodes", 3, "--node-memory", "64MiB")["loss"])

    def test_llama_cpp_method(self):
        """The second half of each window, by the logits themselves."""
        import math
        text = (TINY / "holdout.txt").read_text()[:2000]
        file = self.directory / "text"
        file.write_text(text)
        ids = json.loads(self.run_ok("tokenize", TINY, input=json.dumps(text) + "\n"))
        window = 64
        loss, count = 0.0, 0
        for w in range(2):
            part = ids[w * window:(w + 1) * window]
            rows = json.loads(self.run_ok("logits", TINY, "--ids", ids_text(part), "--json"))["logits"]
            for p in range(window // 2, window - 1):
                top = max(rows[p])
                loss += top + math.log(sum(math.exp(x - top) for x in rows[p])) - rows[p][part[p + 1]]
                count += 1
        out = json.loads(self.run_ok("perplexity", TINY, "-f", file, "--method", "llama.cpp", "--window", window,
                                     "--windows", 2))
        self.assertEqual(out["tokens"], count)
        self.assertAlmostEqual(out["loss"], loss / count, places=9)


if __name__ == "__main__":
    main()
