#!/usr/bin/env python3
"""No process of a fleet outgrows the memory that it was given, and the account that is printed before anything is loaded is true."""
import re
import subprocess
import threading
import time
import unittest

import random_model
from system import COMMAND_LIMIT, LONG, MIB, MYRIAD, SOURCE, Case, complete, data_limit, holdout_ids, main, memory, say

WITHIN = 0.05  # of the account, in sum and for every large node


class Memory(Case):
    def peak_of(self, *arguments):
        """Runs a command to its end and returns the most memory that it had, as the kernel counts it (VmHWM)."""
        process = subprocess.Popen([MYRIAD, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   env=self.environment)
        errors = []
        reader = threading.Thread(target=lambda: errors.append(process.stderr.read()), daemon=True)
        reader.start()
        peak, deadline = 0, time.monotonic() + COMMAND_LIMIT
        try:
            while process.poll() is None:
                try:
                    peak = max(peak, memory(process.pid, "VmHWM"))
                except (FileNotFoundError, TypeError, ProcessLookupError):
                    pass  # it has just ended
                self.assertLess(time.monotonic(), deadline, f"{arguments} takes too long")
                time.sleep(0.005)  # between two looks
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            reader.join(10)
            process.stderr.close()
        self.assertEqual(process.returncode, 0, b"".join(errors).decode(errors="replace"))
        return peak

    def printed_totals(self, report):
        """MiB of the column `total` of the account that `fleet up` prints, by node."""
        lines = report.splitlines()
        head = next(i for i, line in enumerate(lines) if line.split()[:1] == ["node"])
        column = lines[head].split().index("total")
        rows = [line.split() for line in lines[head + 1:]]
        return {row[0]: float(row[column]) for row in rows if row and re.fullmatch(r"n\d+", row[0])}

    def check(self, layers, hidden, experts, nodes, node_mib, context, large_mib):
        limit = node_mib * MIB
        model, cut = self.directory / "model", self.directory / "cut"
        size = random_model.make(SOURCE, model, layers, hidden, experts)
        cutter = self.peak_of("cut", model, "--out", cut, "--node-memory", f"{node_mib}MiB", "--nodes", nodes)
        say(f"  {size / 1e6:.0f} MB of weights on {nodes} nodes of {node_mib} MiB; the cutter took {cutter / MIB:.1f} MiB")
        self.assertGreater(size, nodes * limit // 4)  # or the test says nothing
        fleet = self.fleet(cut, "--nodes", nodes, "--node-memory", f"{node_mib}MiB", "--context", context, "--sequences", 2)
        pids = fleet.pids()
        for name, pid in pids.items():
            if name.startswith("n"):
                self.assertEqual(data_limit(pid), str(limit), name)
        status = fleet.status()
        account = {n["id"]: n["account"]["total"] for n in status["nodes"]}
        printed = self.printed_totals(fleet.report)
        self.assertEqual(set(printed), set(account))
        for name in account:
            self.assertAlmostEqual(printed[name], account[name] / MIB, delta=0.06)

        prompt = holdout_ids(self, 200)
        first = complete(fleet.url, timeout=300, prompt=prompt, max_tokens=8)
        threads = [threading.Thread(target=lambda i=i: complete(fleet.url, timeout=300, prompt=prompt[:50 + i], max_tokens=12)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(300)
            self.assertFalse(t.is_alive())
        self.assertEqual(complete(fleet.url, timeout=300, prompt=prompt, max_tokens=8), first)

        peaks = {name: memory(pid, "VmHWM") for name, pid in pids.items()}
        for name, total in account.items():
            say(f"  {name:>4}: account {total / MIB:7.1f} MiB, VmHWM {peaks[name] / MIB:7.1f} MiB, {100 * (peaks[name] / total - 1):+.1f} %")
        for name in ("controller", "gateway"):
            say(f"  {name}: VmHWM {peaks[name] / MIB:.1f} MiB")
        measured, accounted = sum(peaks[name] for name in account), sum(account.values())
        say(f"  all nodes: account {accounted / MIB:.1f} MiB, VmHWM {measured / MIB:.1f} MiB, {100 * (measured / accounted - 1):+.1f} %")
        self.assertLess(cutter, limit, "the cutter")
        for name, peak in peaks.items():
            self.assertLess(peak, limit, name)
        self.assertLess(abs(measured / accounted - 1), WITHIN)
        large = [name for name, peak in peaks.items() if name in account and peak > large_mib * MIB]
        self.assertTrue(large)
        for name in large:
            self.assertLess(abs(peaks[name] / account[name] - 1), WITHIN, name)

    @unittest.skipIf(LONG, "short")
    def test_a_small_model(self):
        self.check(layers=5, hidden=512, experts=64, nodes=4, node_mib=64, context=512, large_mib=20)

    @unittest.skipUnless(LONG, "long")
    def test_a_large_model(self):
        self.check(layers=12, hidden=1024, experts=108, nodes=8, node_mib=256, context=512, large_mib=100)


if __name__ == "__main__":
    main()
