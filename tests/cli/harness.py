"""What the tests of the command line share: running `myriad`, places, comparisons."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

MYRIAD = os.environ.get("MYRIAD", "build/release/myriad")
SOURCE = pathlib.Path(os.environ.get("MYRIAD_SOURCE_DIR", "."))
SHARED = os.environ.get("MYRIAD_TEST_DATA", "")
TINY = SOURCE / "models/tiny-k3"
RANDOM_K3 = SOURCE / "tests/data/random-k3"
RANDOM_LINEAR = SOURCE / "tests/data/random-kimi-linear"
DEADLINE = 120  # seconds for one command; a hang is a failure


class Case(unittest.TestCase):
    """Every test class has a directory of its own, for cuts, caches and fleets alike."""

    @classmethod
    def setUpClass(cls):
        cls._directory = tempfile.TemporaryDirectory(prefix="myriad-test-")
        cls.directory = pathlib.Path(cls._directory.name)
        cls.environment = dict(os.environ, MYRIAD_CACHE_DIR=str(cls.directory / "cache"),
                               MYRIAD_RUN_DIR=str(cls.directory / "run"))

    @classmethod
    def tearDownClass(cls):
        cls._directory.cleanup()

    def start(self, *arguments, input=None):
        """The finished command, whatever its exit code. `input` may be str or bytes."""
        if isinstance(input, str):
            input = input.encode()
        done = subprocess.run([MYRIAD, *map(str, arguments)], input=input, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=self.environment, timeout=DEADLINE)
        done.out, done.err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        return done

    def run_ok(self, *arguments, input=None):
        """Standard output of a command that must succeed."""
        done = self.start(*arguments, input=input)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.err}")
        return done.out

    def assert_fails(self, code, words, *arguments, input=None):
        """One sentence on standard error, with these words in it, and this exit code; never a trace."""
        done = self.start(*arguments, input=input)
        self.assertEqual(done.returncode, code, f"{arguments}: {done.err}")
        self.assertRegex(done.err, r"(?m)^myriad[a-z -]*: .+")
        for word in words:
            self.assertIn(word, done.err)
        for sign in ("terminate called", "Aborted", "what():", "#0 ", "Segmentation"):
            self.assertNotIn(sign, done.err)
        return done


def with_own_context(directory, positions):
    """tiny-k3 as if it had been trained for so many positions."""
    model = directory / f"tiny-{positions}"
    model.mkdir()
    for path in TINY.iterdir():
        if path.name != "config.json":
            (model / path.name).symlink_to(path.resolve())
    config = read_json(TINY / "config.json")
    config.get("text_config", config)["max_position_embeddings"] = positions
    (model / "config.json").write_text(json.dumps(config))
    return model


def ids_text(ids):
    return ",".join(map(str, ids))


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def main():
    unittest.main(verbosity=0, argv=sys.argv)
