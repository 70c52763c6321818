#!/usr/bin/env python3
"""A big-endian node in a fleet of others: PowerPC, under emulation. The answers have the same bits as without it.

Needs qemu-ppc64 and the node that the preset `ppc64` builds (MYRIAD_PPC64_NODE, or build/ppc64/myriad-node); is skipped without them.
"""
import os
import pathlib
import shutil
import signal
import unittest

from system import PROMPT, SOURCE, TINY, Case, completion, main, request, say, send_signal, wait_for

EMULATOR = shutil.which("qemu-ppc64") or shutil.which("qemu-ppc64-static")
NODE = pathlib.Path(os.environ.get("MYRIAD_PPC64_NODE") or SOURCE / "build/ppc64/myriad-node")
SYSROOT = pathlib.Path("/usr/powerpc64-linux-gnu")
PROMPTS = [PROMPT, "And the LORD said unto Moses,", "x"]


@unittest.skipUnless(EMULATOR and NODE.exists(), f"needs qemu-ppc64 ({EMULATOR}) and {NODE}")
class BigEndianNode(Case):
    def answers(self, url):
        """Texts, and the numbers that they were drawn from: float32 values that JSON gives back exactly."""
        found = []
        for prompt in PROMPTS:
            answer = request(url, "POST", "/v1/completions", completion(prompt=prompt, max_tokens=6, logprobs=5), 180)
            self.assertEqual(answer.status, 200, answer.body)
            choice = answer.json()["choices"][0]
            found.append((choice["text"], choice["logprobs"]))
        return found

    def test_same_bits(self):
        fleet = self.fleet(TINY, "--nodes", 2, "--node-memory", "64MiB", "--context", 128)
        expected = self.answers(fleet.url)
        self.assertEqual(len(set(text for text, _ in expected)), len(PROMPTS))
        held = {n["id"]: n["parts"] for n in fleet.status()["nodes"]}
        self.assertTrue(all(held.values()), held)

        command = [EMULATOR, "-cpu", "power7", *(["-L", str(SYSROOT)] if SYSROOT.exists() else []), str(NODE)]
        node = self.process("power", "--join", fleet.controller, "--token-file", fleet.token_file, "--store", self.directory / "power-store",
                            "--name", "power", "--memory", "64MiB", "--threads", 1, command=command)
        def there():
            self.assertIsNone(node.popen.poll(), node.output())
            return (fleet.node("power") or {}).get("state") == "spare"
        wait_for("the big-endian node to join", there, 60)
        for lost in ("n1", "n0"):
            # It takes the place of one that is lost, and stays beside others when the rest is lost too.
            send_signal(fleet.pid(lost), signal.SIGKILL)
            wait_for("the loss", lambda: fleet.node(lost)["state"] == "lost", 10)
            fleet.wait_ready(120)
            now = fleet.node("power")
            before = now["calls"]
            self.assertGreater(now["parts"], 0)
            self.assertEqual(now["isa"], "altivec")
            self.assertEqual(self.answers(fleet.url), expected, f"after the loss of {lost}")
            wait_for("its calls to be told", lambda: fleet.node("power")["calls"] > before, 5)
            say(f"  {lost} lost: the big-endian node holds {now['parts']} of {sum(held.values())} parts, leads "
                f"{sum(1 for lead in fleet.leads() if lead == 'power')} of {len(fleet.leads())} stages")
            if lost == "n1":
                fleet.join("n2")
                wait_for("another node to join", lambda: (fleet.node("n2") or {}).get("state") == "spare", 10)


if __name__ == "__main__":
    main()
