#!/usr/bin/env python3
"""A fleet with nothing to do costs nearly nothing; forty nodes come up, answer alike, and leave."""
import time

from system import TINY, Case, alive, complete, cpu_seconds, main, say, wait_for

SPAN = 10  # seconds
SHARE = 0.03  # of one core, all processes together


class Idle(Case):
    def test_sixteen_nodes_at_rest(self):
        fleet = self.fleet(TINY, "--nodes", 16, "--node-memory", "64MiB", "--context", 256)
        text = complete(fleet.url)
        pids = fleet.pids()
        self.assertEqual(len(pids), 18)
        # The load has passed: nothing of it may count.
        settled = {}
        def at_rest():
            now = {name: cpu_seconds(pid) for name, pid in pids.items()}
            same = sum(now.values()) - sum(settled.values()) < 0.02 if settled else False
            settled.update(now)
            time.sleep(0.5)
            return same
        wait_for("the fleet to come to rest", at_rest, 20)
        before, began = {name: cpu_seconds(pid) for name, pid in pids.items()}, time.monotonic()
        time.sleep(SPAN)  # the span that is measured
        used = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
        span = time.monotonic() - began
        say(f"  {len(pids)} processes: {100 * sum(used.values()) / span:.2f} % of one core over {span:.1f} s; most: "
            f"{max(used, key=used.get)} {100 * max(used.values()) / span:.2f} %")
        self.assertLess(sum(used.values()) / span, SHARE, used)
        self.assertEqual(complete(fleet.url), text)

    def test_forty_nodes(self):
        began = time.monotonic()
        fleet = self.fleet(TINY, "--nodes", 40, "--node-memory", "32MiB", "--context", 256)
        up = time.monotonic() - began
        status = fleet.status()
        self.assertEqual(status["state"], "ready")
        self.assertEqual(len(status["nodes"]), 40)
        self.assertEqual(sum(n["parts"] for n in status["nodes"]), status["parts"])
        expected = self.run_ok("run", TINY, "-p", "In the beginning God created", "-n", 16, "--threads", 1)
        self.assertEqual("In the beginning God created" + complete(fleet.url), expected.rstrip("\n"))
        pids = fleet.pids()
        began = time.monotonic()
        fleet.stop()
        self.assertFalse(any(alive(pid) for pid in pids.values()))
        say(f"  up after {up:.1f} s, down after {time.monotonic() - began:.1f} s; {sum(1 for n in status['nodes'] if n['parts'])} nodes hold parts")


if __name__ == "__main__":
    main()
