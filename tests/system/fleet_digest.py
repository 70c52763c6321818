#!/usr/bin/env python3
"""The same bits everywhere: the digest of the logits of 1,300 positions does not depend on where and how the model runs."""
import random
import time

from system import LONG, TINY, Case, holdout_ids, main, say

IDS = 1300  # more than one block of attention, and more than one step of any size
FEW = IDS if LONG else 70  # for what computes by plain loops; more than one step
FAST = "45639781fb5629479742b08d3bc94acc9592f88854997e5134957f52c245644b"


class FleetDigest(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        case = cls()
        cls.ids = holdout_ids(case, IDS)
        cls.ids_file = cls.write("ids", [cls.ids])
        cls.few_file = cls.write("few", [cls.ids[:FEW]])
        # Others of every length beside it, from one token to more than the measured sequence has.
        rng = random.Random(7)
        cls.others = cls.write("others", [[rng.randrange(4000) for _ in range(n)] for n in (1, 37, 300, 1400)])
        cls.exact = case.digest("--profile", "exact")
        cls.few = {"fast": case.digest(ids_file=cls.few_file), "exact": case.digest("--profile", "exact", ids_file=cls.few_file)}

    @classmethod
    def write(cls, name, lists):
        path = cls.directory / name
        path.write_text("".join(",".join(map(str, l)) + "\n" for l in lists))
        return path

    def digest(self, *options, ids_file=None, environment=None):
        threads = () if "--threads" in options or "--interpreter" in options else ("--threads", 1)  # threads wait for each other where others run too
        return self.run_ok("logits", TINY, "--ids-file", ids_file or self.ids_file, "--digest", *threads, *options,
                           environment=environment).strip()

    def assert_same(self, *options, few=False, environment=None):
        profile = "exact" if "exact" in options else "fast"
        expected = self.few[profile] if few else FAST if profile == "fast" else self.exact
        began = time.monotonic()
        got = self.digest(*options, ids_file=self.few_file if few else None, environment=environment)
        say(f"  {time.monotonic() - began:6.2f} s  {' '.join(map(str, options))} {environment or ''}")
        self.assertEqual(got, expected, f"{options} {environment}")

    def test_profiles_differ(self):
        self.assertEqual(self.digest(), FAST)
        for digests in ((self.exact, FAST), (self.few["exact"], self.few["fast"])):
            self.assertNotEqual(*digests)
            self.assertRegex(digests[0], "^[0-9a-f]{64}$")

    def test_digest_sees_every_position(self):
        changed = list(self.ids)
        changed[-1] = (changed[-1] + 1) % 4000
        path = self.write("changed", [changed])
        self.assertNotEqual(self.run_ok("logits", TINY, "--ids-file", path, "--digest").strip(), FAST)

    def test_nodes(self):
        for nodes in (1, 2, 3, 5, 7, 8, 16, 40) if LONG else (1, 3, 8):
            self.assert_same("--nodes", nodes, "--node-memory", "64MiB")
        self.assert_same("--nodes", 3, "--node-memory", "64MiB", "--profile", "exact")

    def test_cuts(self):
        for _ in range(6 if LONG else 2):
            seed = random.SystemRandom().randrange(1, 1 << 32)
            self.assert_same("--cut-seed", seed)
            self.assert_same("--cut-seed", seed, "--nodes", 4, "--node-memory", "64MiB")

    def test_chunks(self):
        for chunk in (1, 7, 64, 512):
            self.assert_same("--prefill-chunk", chunk)
        self.assert_same("--prefill-chunk", 7, "--profile", "exact")
        self.assert_same("--prefill-chunk", 7, "--nodes", 3, "--node-memory", "64MiB")

    def test_batch(self):
        self.assert_same("--batch-with", self.others)
        self.assert_same("--batch-with", self.others, "--nodes", 3, "--node-memory", "64MiB")
        self.assert_same("--batch-with", self.others, "--profile", "exact", "--prefill-chunk", 33)

    def test_threads(self):
        # Threads that wait for each other are slow on a machine that is busy with something else: few positions by default.
        for threads in (1, 2, 3):
            self.assert_same("--threads", threads, few=True)
            self.assert_same("--threads", threads, "--profile", "exact", few=True)
        self.assert_same("--threads", 2, "--nodes", 2, "--node-memory", "64MiB", few=True)

    def test_instruction_sets(self):
        ran = 0
        for isa in ("scalar", "avx2", "avx512"):
            for profile in ("fast", "exact"):
                done = self.start("logits", TINY, "--ids", "1,2,3", "--digest", environment={"MYRIAD_ISA": isa})
                if done.returncode != 0:
                    say(f"  {isa}: not available: {done.err.strip()}")
                    self.assertNotEqual(isa, "scalar")
                    break
                self.assert_same("--profile", profile, few=isa == "scalar", environment={"MYRIAD_ISA": isa})
                ran += 1
        self.assertGreaterEqual(ran, 2)

    def test_interpreter(self):
        self.assert_same("--interpreter", few=True)
        self.assert_same("--interpreter", "--profile", "exact", few=True)


if __name__ == "__main__":
    main()
