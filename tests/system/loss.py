#!/usr/bin/env python3
"""A node is lost while text streams: killed, or frozen and back as a ghost. The request ends soon with an error that names the node and a
part; everything else lives; another node makes the fleet whole, and it says what it said before."""
import signal
import time
import unittest

from system import LONG, TINY, Case, Stream, alive, complete, completion, main, request, say, send_signal, wait_for

NOTICED = 3.0  # seconds from the loss to the error at the client


class Loss(Case):
    def setUp(self):
        self.up = self.fleet(TINY, "--nodes", 4, "--node-memory", "64MiB", "--context", 8192)
        self.text = complete(self.up.url, max_tokens=40)
        self.assertGreater(len(self.text), 40)

    def lose(self, victim, how):
        """Sends the signal while text streams, and checks everything that must be so."""
        fleet, pid = self.up, self.up.pid(victim)
        others = {name: p for name, p in fleet.pids().items() if name != victim}
        stream = Stream(fleet.url, max_tokens=8000)
        self.addCleanup(stream.close)
        stream.wait_events(20)
        epoch = fleet.status()["epoch"]
        send_signal(pid, how)
        lost_at = time.monotonic()
        self.assertTrue(stream.finished.wait(NOTICED + 10), "the stream goes on without the node")
        say(f"  {victim}: error after {stream.ended_at - lost_at:.2f} s: {stream.error}")
        self.assertLess(stream.ended_at - lost_at, NOTICED)
        self.assertIsNotNone(stream.error)
        self.assertNotIn("broken", stream.error)
        self.assertEqual(set(stream.error), {"message", "type", "param", "code"})
        self.assertEqual(stream.error["type"], "server_error")
        # "[node n3]" of the call that broke, or "node n3 is lost" where the controller's word came first
        self.assertRegex(stream.error["message"], rf"\bnode {victim}\b")
        # What a part is called: L03.attn[h0:2), L004.expert.0012, embed[r0:1024), head[...
        self.assertRegex(stream.error["message"], r"\b(L\d+\.[a-z.]+|embed|head|final\.lead)")

        not_ready = wait_for("/ready to say no", lambda: (lambda a: a if a.status == 503 else None)(fleet.ready()), 5)
        error = self.assert_error(not_ready, 503, [victim])
        self.assertGreater(len(error["message"]), 20)
        refused = request(fleet.url, "POST", "/v1/completions", completion(max_tokens=4), timeout=10)
        self.assert_error(refused, 503)
        self.assertEqual(request(fleet.url, "GET", "/v1/models").json()["data"][0]["id"], "tiny-k3")
        self.assertEqual(request(fleet.url, "GET", "/health").status, 200)
        for name, p in others.items():
            self.assertTrue(alive(p), f"{name} has died with {victim}")
        self.assertEqual(fleet.node(victim)["state"], "lost")

        joined_at = time.monotonic()
        spare = fleet.join("spare")
        fleet.wait_ready(8)  # sooner than survivors would take the parts over
        say(f"  ready {time.monotonic() - joined_at:.2f} s after another node was started")
        self.assertEqual(complete(fleet.url, max_tokens=40), self.text)
        status = fleet.status()
        self.assertGreater(status["epoch"], epoch)
        self.assertGreater(next(n for n in status["nodes"] if n["id"] == "spare")["parts"], 0)
        self.assertTrue(alive(spare.pid))
        return others

    def back(self, victim, others):
        """A ghost returns: it holds an old placement, and must neither disturb nor stay away."""
        fleet, epoch = self.up, self.up.status()["epoch"]
        stream = Stream(fleet.url, max_tokens=60)
        self.addCleanup(stream.close)
        send_signal(fleet.pid(victim), signal.SIGCONT)
        wait_for("the ghost to be a member again", lambda: fleet.node(victim)["state"] in ("spare", "ready"), 15)
        self.assertTrue(stream.finished.wait(30))
        self.assertIsNone(stream.error)
        self.assertTrue(stream.text.startswith(self.text))
        self.assertEqual(fleet.ready().status, 200)
        self.assertEqual(complete(fleet.url, max_tokens=40), self.text)
        for name, p in others.items():
            self.assertTrue(alive(p), name)
        self.assertTrue(alive(fleet.pid(victim)))
        self.assertGreaterEqual(fleet.status()["epoch"], epoch)

    def first_lead(self):
        return self.up.leads()[0]

    def later_lead(self):
        return next(lead for lead in self.up.leads() if lead != self.first_lead())

    def helper(self):
        return self.up.helpers()[0]

    def test_killed_helper(self):
        self.lose(self.helper(), signal.SIGKILL)

    def test_killed_lead(self):
        self.lose(self.later_lead(), signal.SIGKILL)

    def test_killed_first_lead(self):
        self.lose(self.first_lead(), signal.SIGKILL)

    def test_frozen_helper(self):
        victim = self.helper()
        self.back(victim, self.lose(victim, signal.SIGSTOP))

    def test_frozen_lead(self):
        victim = self.later_lead()
        self.back(victim, self.lose(victim, signal.SIGSTOP))

    def test_frozen_first_lead(self):
        victim = self.first_lead()
        self.back(victim, self.lose(victim, signal.SIGSTOP))

    def test_a_short_freeze_is_no_loss(self):
        fleet, victim = self.up, self.later_lead()
        stream = Stream(fleet.url, max_tokens=1000)  # far from its end when the freeze comes
        self.addCleanup(stream.close)
        stream.wait_events(10)
        send_signal(fleet.pid(victim), signal.SIGSTOP)
        before = stream.events
        time.sleep(0.7)  # the length of the freeze is what is tried: beyond the first ping, well within the limit
        send_signal(fleet.pid(victim), signal.SIGCONT)
        self.assertTrue(stream.finished.wait(30))
        self.assertIsNone(stream.error)
        self.assertGreater(stream.events, before)
        self.assertTrue(stream.text.startswith(self.text))
        self.assertEqual(fleet.ready().status, 200)

    @unittest.skipUnless(LONG, "long")
    def test_survivors_take_over(self):
        fleet, victim = self.up, self.later_lead()
        send_signal(fleet.pid(victim), signal.SIGKILL)
        wait_for("the loss to be noticed", lambda: fleet.ready().status == 503, 5)
        fleet.wait_ready(25)
        self.assertEqual(complete(fleet.url, max_tokens=40), self.text)


if __name__ == "__main__":
    main()
