#!/usr/bin/env python3
"""A client that leaves stops the work that was done for it, on every node, and its place is free at once."""
import http.client
import json
import socket
import time

from system import TINY, Case, Stream, address_of, complete, completion, main, say, wait_for

STOPS_WITHIN = 1.0  # seconds from the client's leaving to the last call


class Cancel(Case):
    def setUp(self):
        self.up = self.fleet(TINY, "--nodes", 4, "--node-memory", "64MiB", "--context", 8192, "--sequences", 4)
        self.text = complete(self.up.url, max_tokens=20)

    def working(self):
        """Calls grow: the fleet computes. Heartbeats bring the numbers twice a second."""
        before = self.up.calls()
        return wait_for("the fleet to compute", lambda: any(n > before[k] for k, n in self.up.calls().items()), 20)

    def assert_rests(self):
        """No node's counter grows any more after the limit; what a heartbeat tells may be half a second old."""
        left_at = time.monotonic()
        # A heartbeat that was sent after the limit: every node was heard after that moment.
        def settled():
            nodes = self.up.status()["nodes"]
            since = time.monotonic() - left_at - STOPS_WITHIN
            return since > 0 and all(n["last_heard_ms"] / 1000 < since for n in nodes) and {n["id"]: n["calls"] for n in nodes}
        first = wait_for("heartbeats after the limit", settled, 10)
        again_at = time.monotonic() + 1.2  # two heartbeats more
        wait_for("two heartbeats", lambda: time.monotonic() > again_at, 5)
        self.assertEqual(self.up.calls(), first, "nodes go on computing for a client that has gone")

    def assert_all_places_free(self):
        streams = [Stream(self.up.url, max_tokens=20) for _ in range(4)]
        for stream in streams:
            self.addCleanup(stream.close)
        for stream in streams:
            self.assertTrue(stream.finished.wait(30))
            self.assertIsNone(stream.error)
            self.assertEqual(stream.text, self.text)

    def test_leaves_streams(self):
        streams = [Stream(self.up.url, max_tokens=8000) for _ in range(4)]
        for stream in streams:
            self.addCleanup(stream.close)
        for stream in streams:
            stream.wait_events(5)
        self.working()
        for stream in streams:
            self.assertFalse(stream.finished.is_set(), stream.error)
            stream.close()
        self.assert_rests()
        self.assert_all_places_free()

    def test_leaves_while_nothing_was_sent_yet(self):
        clients = []
        for _ in range(4):
            client = http.client.HTTPConnection(*address_of(self.up.url), timeout=30)
            self.addCleanup(client.close)
            client.request("POST", "/v1/completions", json.dumps(completion(max_tokens=8000)), {"Content-Type": "application/json"})
            clients.append(client)
        self.working()
        for client in clients:
            client.sock.shutdown(socket.SHUT_RDWR)
            client.close()
        self.assert_rests()
        self.assert_all_places_free()

    def test_leaves_during_a_long_prompt(self):
        ids = [i % 3900 for i in range(3500)]
        streams = []
        for _ in range(2):
            client = http.client.HTTPConnection(*address_of(self.up.url), timeout=30)
            self.addCleanup(client.close)
            client.request("POST", "/v1/completions", json.dumps(completion(prompt=ids, max_tokens=500, stream=True)),
                           {"Content-Type": "application/json"})
            streams.append(client)
        self.working()
        for client in streams:
            client.close()
        self.assert_rests()
        self.assert_all_places_free()


if __name__ == "__main__":
    main()
