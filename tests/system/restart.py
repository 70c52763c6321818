#!/usr/bin/env python3
"""The controller is away, comes back, or a node does: text goes on, nothing is fetched twice, the fleet finds itself again."""
import re
import signal
import time

from system import TINY, Case, Stream, alive, complete, main, request, say, wait_for

NODES = 3


class Restart(Case):
    """A fleet whose processes are started by hand, so that each can be ended and started again with the same arguments."""

    def setUp(self):
        self.cut = self.directory / "cut"
        if not self.cut.exists():
            self.run_ok("cut", TINY, "--out", self.cut, "--node-memory", "64MiB", "--nodes", NODES)
        self.token = self.directory / "token"
        self.token.write_text("a secret of this test alone 0123456789\n")
        self.token.chmod(0o600)
        self.number = getattr(type(self), "count", 0)
        type(self).count = self.number + 1
        self.ports = (0, 0)
        self.controller = self.start_controller()
        self.nodes = [self.start_node(i) for i in range(NODES)]
        self.gateway = self.process(f"gateway-{self.number}", "gateway", "--join", self.join, "--token-file", self.token, "--http",
                                    "127.0.0.1:0")
        self.url = self.gateway.wait_output(r"gateway answers at (http://\S+)/v1")[1]
        self.wait_ready()
        self.text = complete(self.url, max_tokens=30)

    def start_controller(self, life=0):
        port, http_port = self.ports
        controller = self.process(f"controller-{self.number}-{life}", "controller", self.cut, "--listen", f"127.0.0.1:{port}",
                                  "--http-port", http_port, "--token-file", self.token, "--nodes", NODES, "--context", 4096,
                                  environment=dict(self.environment, MYRIAD_LOG="info"))
        said = controller.wait_output(r"controller listens on port (\d+), parts on port (\d+)")
        self.ports = (int(said[1]), int(said[2]))
        self.join = f"127.0.0.1:{self.ports[0]}"
        return controller

    def store(self, i):
        return self.directory / f"store-{self.number}-{i}"

    def start_node(self, i, life=0):
        return self.process(f"node-{self.number}-{i}-{life}", "node", "--join", self.join, "--token-file", self.token, "--store",
                            self.store(i), "--name", f"n{i}", "--memory", "64MiB", "--threads", 1,
                            environment=dict(self.environment, MYRIAD_LOG="info"))

    def wait_ready(self, seconds=30):
        wait_for("/ready", lambda: request(self.url, "GET", "/ready").status == 200, seconds)

    def parts_in_store(self, i):
        """What lies in a node's store: name -> (inode, time of writing). A part that is fetched again is another file."""
        return {p.relative_to(self.store(i)): (p.stat().st_ino, p.stat().st_mtime_ns)
                for p in self.store(i).rglob("*") if p.is_file() and p.suffix == ".part"}

    def test_text_goes_on_without_a_controller(self):
        stream = Stream(self.url, max_tokens=300)
        self.addCleanup(stream.close)
        stream.wait_events(10)
        self.controller.stop(signal.SIGKILL)
        self.assertTrue(stream.finished.wait(60))
        self.assertIsNone(stream.error)
        self.assertTrue(stream.text.startswith(self.text))
        self.assertEqual(complete(self.url, max_tokens=30), self.text)  # a new one, too
        time.sleep(3)  # longer than any lease: the absence is what is tried
        self.assertEqual(complete(self.url, max_tokens=30), self.text)
        self.assertEqual(request(self.url, "GET", "/ready").status, 200)
        for process in (*self.nodes, self.gateway):
            self.assertTrue(alive(process.pid))

    def test_the_controller_comes_back(self):
        before = [self.parts_in_store(i) for i in range(NODES)]
        self.assertTrue(any(before))
        self.controller.stop(signal.SIGKILL)
        began = time.monotonic()
        self.start_controller(1)
        # Nodes try again within five seconds, and are placed once all of them are there.
        def nodes_are_back():
            return all(re.search(r"controller_lost[\s\S]*event=ready", n.output()) for n in self.nodes)
        wait_for("the nodes to be placed again", nodes_are_back, 20)
        self.wait_ready()
        say(f"  whole again {time.monotonic() - began:.2f} s after the controller's start")
        self.assertEqual(complete(self.url, max_tokens=30), self.text)
        after = [self.parts_in_store(i) for i in range(NODES)]
        for old, new in zip(before, after):
            for name, identity in old.items():
                self.assertEqual(new.get(name), identity, f"{name} was fetched again")

    def test_a_node_that_was_a_member_outlives_refusals(self):
        """Who says that tokens differ has not shown that he holds one: nobody can end running nodes by that."""
        self.controller.stop(signal.SIGKILL)
        right = self.token.read_text()
        self.token.write_text("another secret than that of the nodes\n")
        impostor = self.start_controller(1)
        def refused_often():
            return all(node.output().count("event=join_rejected") > 5 for node in self.nodes)
        wait_for("more rejections than a newcomer bears", refused_often, 60)
        impostor.stop(signal.SIGKILL)
        self.token.write_text(right)
        self.start_controller(2)
        wait_for("the nodes to be placed again", lambda: all(re.search(r"join_rejected[\s\S]*event=ready", n.output()) for n in self.nodes), 20)
        self.wait_ready()
        self.assertEqual(complete(self.url, max_tokens=30), self.text)

    def test_a_node_comes_back_with_its_parts(self):
        before = self.parts_in_store(1)
        self.assertGreater(len(before), 0)
        self.nodes[1].stop(signal.SIGKILL)
        wait_for("the loss", lambda: request(self.url, "GET", "/ready").status == 503, 5)
        began = time.monotonic()
        again = self.start_node(1, life=1)
        again.wait_output("event=ready")
        self.wait_ready(15)
        say(f"  ready {time.monotonic() - began:.2f} s after the node's start")
        self.assertEqual(complete(self.url, max_tokens=30), self.text)
        after = self.parts_in_store(1)
        for name, identity in before.items():
            self.assertEqual(after.get(name), identity, f"{name} was fetched again")

    def test_a_damaged_part_is_fetched_again(self):
        """What makes the tests above mean something: a file that is not as it should be is replaced."""
        self.nodes[1].stop(signal.SIGKILL)
        name = sorted(self.parts_in_store(1))[0]
        path = self.store(1) / name
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.chmod(0o644)
        path.write_bytes(damaged)
        before = self.parts_in_store(1)
        self.start_node(1, life=1).wait_output("event=ready")
        self.wait_ready(15)
        self.assertEqual(complete(self.url, max_tokens=30), self.text)
        after = self.parts_in_store(1)
        self.assertEqual({k for k in before if before[k] != after.get(k)}, {name})
        self.assertNotEqual(path.read_bytes(), bytes(damaged))


if __name__ == "__main__":
    main()
