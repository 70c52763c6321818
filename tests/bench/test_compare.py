#!/usr/bin/env python3
"""bench/compare/compare.py: which pairs count, and what is made of them. Both sides are scripts that play given numbers."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMPARE = Path(os.environ["MYRIAD_SOURCE_DIR"]) / "bench/compare/compare.py"

# Prints the next number of the list that belongs to its first argument, and notes that it was called.
PLAYER = r"""#!{python}
import json, os, sys
words = sys.argv[1:]
if words[0] == "bench":
    words = words[1:]
    if words == ["--help"]:
        print("Subcommands:\n" + "".join("  %-20s so fast\n" % c for c in {commands!r}.split()))
        sys.exit(0)
    kind = "read" if words[0] == "read" else "myriad"
else:
    kind = "llama.cpp"
state = os.path.join({directory!r}, "state.json")
with open(state) as f:
    left = json.load(f)
left["calls"].append([kind] + words)
value = left[kind].pop(0)
with open(state, "w") as f:
    json.dump(left, f)
if value == "broken":
    sys.exit("something is wrong")
key = "gigabytes_per_second" if kind == "read" else "tokens_per_second"
print(json.dumps({{key: value, "bytes_per_token": 10**9}}))
"""


class Compare(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        (self.directory / "node_modules/node-llama-cpp").mkdir(parents=True)
        self.model = self.directory / "model.gguf"
        self.model.write_bytes(b"not looked at: the sides say how many bytes a token takes")

    def run_compare(self, read, llama, myriad, *options, commands="read decode prefill"):
        player = self.directory / "player"
        player.write_text(PLAYER.format(python=sys.executable, directory=str(self.directory), commands=commands))
        player.chmod(0o755)
        state = {"calls": [], "read": read, "llama.cpp": llama, "myriad": myriad}
        (self.directory / "state.json").write_text(json.dumps(state))
        out = self.directory / "out.json"
        done = subprocess.run([sys.executable, "-B", COMPARE, self.model, "--node", sys.executable, "--llama", player, "--myriad", player,
                               "--patience", "0", "--json", out, *options], capture_output=True, text=True, check=False)
        rows = json.loads(out.read_text())["rows"] if out.exists() else []
        return done, rows, json.loads((self.directory / "state.json").read_text())

    def test_only_quiet_pairs_count(self):
        # One reading waits for quiet, one is between the two sides of a pair.
        read = [20, 20, 20, 9, 20, 15, 20, 30]
        done, rows, state = self.run_compare(read, [10, 1, 4, 5], [20, 9, 10, 10], "--threads", "1", "--modes", "decode", "--pairs", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        (row,) = rows
        self.assertEqual((row["pairs"], row["counted"]), (4, 3))
        self.assertEqual(row["llama.cpp"]["tokens_per_second"], 5)  # of 10, 4, 5
        self.assertEqual(row["myriad"]["tokens_per_second"], 10)  # of 20, 10, 10
        self.assertEqual(row["ratio"], 2)  # of 2, 2.5, 2
        self.assertEqual(row["read"], 20)  # of 20, 15, 30
        self.assertEqual(row["myriad"]["share_of_read"], 0.5)
        self.assertEqual([c[0] for c in state["calls"]], ["read", "llama.cpp", "read", "myriad"] * 4)
        self.assertIn("| 5.00 | 10.00 | 2.00 | 20.0 |", done.stdout)

    def test_gives_up(self):
        done, rows, state = self.run_compare([28.9] * 20, [10] * 9, [20] * 9, "--threads", "2", "--modes", "prefill", "--attempts", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((rows[0]["pairs"], rows[0]["counted"], rows[0]["ratio"]), (4, 0, None))
        self.assertIn("0 of 4", done.stdout)
        self.assertIn(["--prompt", "512"], [c[-2:] for c in state["calls"]])

    def test_one_side_alone(self):
        done, rows, state = self.run_compare([30] * 20, [7] * 9, [], "--threads", "2", "--modes", "decode", commands="read")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((rows[0]["counted"], rows[0]["llama.cpp"]["tokens_per_second"], rows[0]["ratio"]), (5, 7, None))
        self.assertIn("myriad is left out", done.stderr)
        done, rows, state = self.run_compare([30] * 20, [], [8] * 9, "--threads", "2", "--modes", "decode", "--only", "myriad")
        self.assertEqual((rows[0]["counted"], rows[0]["myriad"]["tokens_per_second"]), (5, 8))

    def test_a_side_that_fails(self):
        done, rows, state = self.run_compare([30] * 20, [7, "broken"], [8] * 9, "--threads", "1,2", "--modes", "decode", "--pairs", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("something is wrong", done.stderr)
        self.assertEqual(len(rows), 1)  # what was measured before is kept
        self.assertIn("1 of 1", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
