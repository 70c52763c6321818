#!/usr/bin/env python3
"""The API as the official OpenAI client sees it: tools/api_check against a fleet. Skipped, visibly, without Node.js 20 and npm."""
import pathlib
import shutil
import subprocess

from system import SOURCE, TINY, Case, main, say

def client(directory):
    """A copy of tools/api_check with its package installed, or why there is none."""
    if not shutil.which("node") or not shutil.which("npm"):
        return None, "node or npm is not installed"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=30).stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < 20:
        return None, f"Node.js {version} is older than the client's 20"
    place = directory / "api_check"
    place.mkdir()
    for name in ("check.mjs", "package.json", "package-lock.json"):
        shutil.copy(SOURCE / "tools/api_check" / name, place / name)
    done = subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=place, capture_output=True, text=True, timeout=120)
    return (place, None) if done.returncode == 0 else (None, f"npm ci failed: {done.stderr.strip()[-200:]}")


class Api(Case):
    def test_official_client(self):
        place, why_not = client(pathlib.Path(self.directory))
        if place is None:
            self.skipTest(why_not)
        fleet = self.fleet(TINY, "--nodes", 3, "--node-memory", "64MiB")
        done = subprocess.run(["node", "check.mjs", f"{fleet.url}/v1", "tiny-k3"], cwd=place, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("checks passed", done.stdout)
        say("  " + done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    main()
