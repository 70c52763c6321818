"""Against the float64 reference: perplexity of the demo model over its whole hold-out text, and random models of other seeds.

The second part runs tools/k3_ref.py, which needs numpy; it is skipped, visibly, without."""
import importlib.util
import json
import random
import sys

from harness import SOURCE, TINY, Case, ids_text, main, read_json

HAS_NUMPY = importlib.util.find_spec("numpy") is not None


class Reference(Case):
    def test_perplexity(self):
        expected = read_json(TINY / "EXPECTED.json")
        for profile, tolerance in (("exact", 0.002), ("fast", 0.004)):
            found = json.loads(self.run_ok("perplexity", TINY, "-f", TINY / "holdout.txt", "--profile", profile))
            self.assertEqual(found["tokens"], expected["predicted"])
            self.assertLess(abs(found["perplexity"] / expected["perplexity"] - 1), tolerance, profile)

    def test_greedy_continuation(self):
        expected = read_json(TINY / "EXPECTED.json")
        text = self.run_ok("run", TINY, "-p", expected["greedy_prompt"], "-n", len(expected["greedy_ids"]), "--profile", "exact")
        self.assertEqual(text.rstrip("\n"), expected["greedy_prompt"] + expected["greedy_text"])

    def test_other_seeds(self):
        if not HAS_NUMPY:
            self.skipTest("numpy is not installed")
        import numpy as np
        sys.path.insert(0, str(SOURCE / "tools"))
        import k3_ref
        for kind in ("k3", "linear"):
            for seed in random.sample(range(1000), 3):
                model = self.directory / f"{kind}-{seed}"
                k3_ref.gen(str(model), kind, seed)
                golden = read_json(model / "golden.json")
                config, tensors = k3_ref.load_dir(str(model))
                reference, single = k3_ref.Model(config, tensors, np.float32), []
                state = reference.new_state()
                for token in golden["ids"]:
                    single.append(reference.step(token, state))
                exact = np.array(golden["logits"])
                largest = np.abs(exact).max()
                allowed = 10 * np.abs(np.array(single) - exact).max() / largest
                found = json.loads(self.run_ok("logits", model, "--ids", ids_text(golden["ids"]), "--profile", "exact", "--json"))
                error = np.abs(np.array(found["logits"]) - exact).max() / largest
                self.assertLess(error, allowed, f"{kind} seed {seed}")


if __name__ == "__main__":
    main()
