#!/usr/bin/env python3
"""A fleet of real processes: up, the API, status, kill, down; what is refused; nothing is left behind."""
import fcntl
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request

from harness import MYRIAD, TINY, Case, main, with_own_context

PROMPT = "In the beginning God created"


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def wait_for(what, condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.02)  # between two looks at the condition


class Fleet(Case):
    def tearDown(self):
        for name in ("default", "second"):
            self.start("fleet", "down", "--fleet", name)

    def up(self, *options):
        return self.start("fleet", "up", TINY, "--nodes", 6, "--node-memory", "64MiB", "--context", 512, "--http",
                          "127.0.0.1:0", *options)

    def status(self, *options):
        return json.loads(self.run_ok("fleet", "status", "--json", *options))

    def complete(self, url, **fields):
        body = json.dumps(dict(dict(model="tiny-k3", prompt=PROMPT, max_tokens=16, temperature=0), **fields)).encode()
        request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["choices"][0]["text"]

    def test_life(self):
        done = self.up()
        self.assertEqual(done.returncode, 0, done.err)
        for word in ("is ready", "weights", "myriad fleet down", "/v1"):
            self.assertIn(word, done.out)
        status = self.status()
        self.assertEqual(status["state"], "ready")
        self.assertEqual(len(status["nodes"]), 6)
        pids = [p["pid"] for p in status["processes"]]
        self.assertEqual(len(pids), 8)
        self.assertTrue(all(map(alive, pids)))
        expected = self.run_ok("run", TINY, "-p", PROMPT, "-n", 16)[len(PROMPT):].rstrip("\n")
        self.assertEqual(self.complete(status["url"]), expected)
        self.assertIn("n3", self.run_ok("fleet", "status"))
        # The limit is the system's own.
        node = next(p for p in status["processes"] if p["name"] == "n0")
        with open(f"/proc/{node['pid']}/limits") as f:
            self.assertIn(str(64 << 20), next(line for line in f if line.startswith("Max data size")))
        # The secret is nobody else's.
        run = self.directory / "run"
        self.assertEqual(os.stat(run / "default/token").st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(run).st_mode & 0o777, 0o700)

        self.assert_fails(4, ["runs already", "fleet down"], "fleet", "up", TINY, "--nodes", 2)
        port = status["url"].rsplit(":", 1)[1]
        self.assert_fails(4, [port, "in use", "--http"], "fleet", "up", TINY, "--fleet", "second", "--http",
                          f"127.0.0.1:{port}")
        self.assert_fails(4, ["no process named n77", "n0"], "fleet", "kill", "n77")

        self.assertIn("was killed", self.run_ok("fleet", "kill", "n3"))
        self.assertFalse(alive(next(p["pid"] for p in status["processes"] if p["name"] == "n3")))
        wait_for("the controller to see the loss", lambda: any(
            n["id"] == "n3" and n["state"] == "lost" for n in self.status()["nodes"]))
        self.assert_fails(4, ["has ended already"], "fleet", "kill", "n3")
        # The others hold everything again, and answer the same.
        wait_for("the fleet to heal", lambda: self.status()["state"] == "ready", 60)
        self.assertEqual(self.complete(status["url"]), expected)

        self.assertIn("is down", self.run_ok("fleet", "down"))
        self.assertFalse(any(map(alive, pids)))
        self.assertFalse((run / "default").exists())

    def test_the_models_own_context(self):
        """A fleet that keeps room for more than that says so, and so does every answer that goes beyond it."""
        done = self.up("--fleet", "second")
        self.assertNotIn("own context", done.err)
        self.run_ok("fleet", "down", "--fleet", "second")
        model = with_own_context(self.directory, 20)
        done = self.start("fleet", "up", model, "--nodes", 2, "--node-memory", "64MiB", "--context", 64, "--http", "127.0.0.1:0", "--name", "m")
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(done.err.count("myriad fleet up: warning: 64 positions of a sequence go beyond the 20 of the model's own context"), 1, done.err)
        status = self.status()
        log = next(p["log"] for p in status["processes"] if p["name"] == "controller")
        with open(log) as f:
            self.assertIn("controller: warning: 64 positions", f.read())
        with urllib.request.urlopen(status["url"] + "/v1/models", timeout=60) as answer:
            shown = json.load(answer)["data"][0]
        self.assertEqual((shown["context_window"], shown["trained_context_window"]), (64, 20))
        for path, fields, tokens, warned in (
                ("completions", dict(prompt=[5] * 10, max_tokens=10), 10, False), ("completions", dict(prompt=[5] * 10, max_tokens=11), 11, True),
                ("completions", dict(prompt=[5] * 10, max_tokens=11, stream=True), None, True), ("completions", dict(prompt=[5] * 30, max_tokens=2), 2, True),
                ("completions", dict(prompt=[[5], [5] * 10], max_tokens=11), 22, True)):
            body = json.dumps(dict(fields, model="m", temperature=0)).encode()
            request = urllib.request.Request(f"{status['url']}/v1/{path}", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                self.assertEqual("beyond the 20 of the model's own context" in answer.headers.get("X-Myriad-Warning", ""), warned, fields)
                text = answer.read()
            if tokens is not None:
                self.assertLessEqual(json.loads(text)["usage"]["completion_tokens"], tokens)

    def test_stale_state(self):
        self.assertEqual(self.up().returncode, 0)
        pids = [process["pid"] for process in self.status()["processes"]]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_for("the processes to be gone", lambda: not any(map(alive, pids)))
        self.assert_fails(4, ["not running any more"], "fleet", "status")
        done = self.up()  # dead processes do not hold the name
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(self.status()["state"], "ready")

    def test_cut_is_reused(self):
        first = self.up()
        self.assertEqual(first.returncode, 0, first.err)
        self.run_ok("fleet", "down")
        self.assertNotIn("cutting", self.up().err)

    def test_two_fleets(self):
        self.assertEqual(self.up().returncode, 0)
        self.assertEqual(self.up("--fleet", "second", "--name", "other").returncode, 0)
        second = self.status("--fleet", "second")
        self.assertEqual(second["model"], "other")
        self.complete(second["url"], model="other")
        with self.assertRaises(urllib.error.HTTPError):
            self.complete(self.status()["url"], model="other")

    def broken_off(self, signals, ready):
        """`fleet up` that gets one of the signals when its state lists so many processes (or at once, for -1)."""
        state = self.directory / "run/second/state.json"
        process = subprocess.Popen([MYRIAD, "fleet", "up", str(TINY), "--nodes", "6", "--node-memory", "64MiB", "--context", "512",
                                    "--http", "127.0.0.1:0", "--fleet", "second"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment,
                                   preexec_fn=heed_signals)
        self.addCleanup(process.kill)

        def there():
            try:
                return len(json.loads(state.read_text())["processes"]) >= ready
            except FileNotFoundError:
                return ready <= 0 and state.parent.exists()
        deadline = time.monotonic() + 60
        while not there() and process.poll() is None:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.0005)  # between two looks at the state
        process.send_signal(signals)
        out, err = process.communicate(timeout=60)
        return process.returncode, out.decode(), err.decode()

    def test_a_start_that_is_interrupted(self):
        """Nothing of it is left, whenever the signal comes, and the name is free."""
        self.run_ok("run", TINY, "-p", PROMPT, "-n", 1, "--nodes", 6, "--node-memory", "64MiB")  # cuts
        run = self.directory / "run"
        for which, ready in ((signal.SIGINT, 0), (signal.SIGINT, 1), (signal.SIGTERM, 2), (signal.SIGHUP, 4), (signal.SIGINT, 7), (signal.SIGINT, 8)):
            with self.subTest(signal=which, ready=ready):
                for _ in range(10):
                    code, out, err = self.broken_off(which, ready)
                    if code != 0:
                        break
                    self.assertIn("is ready", out)  # the signal came too late
                    self.run_ok("fleet", "down", "--fleet", "second")
                self.assertEqual(code, -which, err)
                self.assertRegex(err, rf"(?m)^myriad fleet up: signal {int(which)} .*'second'.* ended$")
                self.assertEqual(processes_of(run), [])
                self.assertFalse((run / "second").exists())
                self.assert_fails(4, ["no fleet named 'second'"], "fleet", "status", "--fleet", "second")
        done = self.up("--fleet", "second")
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(len(processes_of(run)), 8)

    def test_a_start_that_is_killed(self):
        """`fleet down` finds every process."""
        self.run_ok("run", TINY, "-p", PROMPT, "-n", 1, "--nodes", 6, "--node-memory", "64MiB")  # cuts
        run = self.directory / "run"
        for ready in (1, 3, 7, 8):
            with self.subTest(ready=ready):
                self.broken_off(signal.SIGKILL, ready)
                # They may have been forked only just. The last may not run: whoever was to let it is gone.
                wait_for("the processes that the state lists", lambda: len(processes_of(run)) >= ready - 1)
                if processes_of(run):
                    self.assert_fails(4, ["runs already", "fleet down"], "fleet", "up", TINY, "--nodes", 2, "--fleet", "second")
                self.assertIn("is down", self.run_ok("fleet", "down", "--fleet", "second"))
                self.assertEqual(processes_of(run), [])
        done = self.up("--fleet", "second")
        self.assertEqual(done.returncode, 0, done.err)

    def test_private_fleet_dies_with_its_command(self):
        process = subprocess.Popen([MYRIAD, "run", str(TINY), "-p", PROMPT, "-n", "4000", "--ignore-end", "--nodes", "2",
                                    "--node-memory", "64MiB"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   env=self.environment)
        process.stdout.read(len(PROMPT) + 20)  # it generates
        children = children_of(process.pid)
        self.assertEqual(len(children), 3)
        process.kill()
        process.wait()
        process.stdout.close()
        wait_for("the nodes to end", lambda: not any(alive(int(pid)) for pid in children))


def heed_signals():
    """Those that whoever runs the tests has ignored (nohup, a job in the background) too."""
    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(which, signal.SIG_DFL)


def processes_of(run):
    """Numbers of the processes whose command line names a file of that run directory."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as f:
                if os.fsencode(run) in f.read():
                    found.append(int(entry))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def children_of(parent):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as f:
                    if int(f.read().rsplit(")", 1)[1].split()[1]) == parent:
                        found.append(entry)
            except FileNotFoundError:
                pass
    return found


class Locks(Case):
    """What one process writes to, a second is kept from; a process that was killed keeps nobody out."""

    def setUp(self):
        self.token = self.directory / "token"
        if not self.token.exists():
            self.token.write_text("0123456789abcdef0123456789abcdef\n")
            self.token.chmod(0o600)

    def node(self, store, *options, program=MYRIAD):
        """The arguments of a node whose controller is not there: it waits for it."""
        return [*([program, "node"] if program == MYRIAD else [program]), "--join", "127.0.0.1:9", "--token-file", str(self.token), "--store", str(store),
                *map(str, options)]

    def running(self, arguments):
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self.environment)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertIn(b"listens on port", process.stdout.readline())
        return process

    def refused(self, arguments):
        began = time.monotonic()
        done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment, timeout=30)
        self.assertLess(time.monotonic() - began, 10)
        return done.returncode, done.stderr.decode()

    def test_two_nodes_on_one_store(self):
        store = self.directory / "store"
        first = self.running(self.node(store))
        name = (store / "node-id").read_text()
        alone = os.path.join(os.path.dirname(MYRIAD), "myriad-node")
        for program, expected in ((MYRIAD, 4), (alone, 1)):
            for options in ([], ["--name", "another"]):
                code, err = self.refused(self.node(store, *options, program=program))
                self.assertEqual(code, expected, err)
                for words in ("opening the part store", str(store), f"process {first.pid}", "--store"):
                    self.assertIn(words, err)
        self.assert_fails(4, ["cutting to", str(store), f"process {first.pid}", "--out"], "cut", TINY, "--out", store)
        self.running(self.node(self.directory / "reader", "--parts", store))
        first.kill()  # nothing is tidied up
        first.wait()
        self.assertTrue((store / "lock").exists())
        second = self.running(self.node(store, program=alone))
        self.assertEqual((store / "node-id").read_text(), name)
        second.terminate()
        self.assertEqual(second.wait(30), 0)
        self.assertFalse((store / "lock").exists())

    def test_two_cuts_into_one_directory(self):
        out = self.directory / "cut"
        out.mkdir()
        with open(out / "lock", "w") as lock:
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assert_fails(4, ["cutting to", str(out), f"process {os.getpid()}", "--out"], "cut", TINY, "--out", out)
            self.assertEqual(os.listdir(out), ["lock"])
        self.run_ok("cut", TINY, "--out", out)
        self.assertEqual({"lock", "manifest.json"} & set(os.listdir(out)), {"manifest.json"})

    def test_the_same_cut_wanted_twice_at_once(self):
        command = [MYRIAD, "logits", str(TINY), "--ids", "1,2", "--digest", "--nodes", "1", "--node-memory", "64MiB"]
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment) for _ in range(2)]
        said = [process.communicate(timeout=120) for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], said)
        self.assertEqual(said[0][0], said[1][0])
        self.assertEqual(sum(b"cutting" in err for _, err in said), 1, said)

    def test_a_fleet_that_is_being_started(self):
        run = self.directory / "run"
        run.mkdir(mode=0o700)
        with open(run / ".default.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for arguments in (["up", TINY, "--nodes", 1, "--http", "127.0.0.1:0"], ["down"]):
                self.assert_fails(4, ["'default'", "being started or ended", "--fleet"], "fleet", *arguments)
            self.assertEqual(os.listdir(run), [".default.lock"])


class Caches(Case):
    def test_cache_memory(self):
        fleet = ["fleet", "up", TINY, "--nodes", 2, "--fleet", "cm", "--http", "127.0.0.1:0"]
        done = self.assert_fails(5, ["--cache-memory", "--context 4096", "at least"], *fleet, "--cache-memory", "10KiB")
        least = int(done.err.split(" takes ")[1].split(" bytes")[0].replace(",", ""))
        self.assert_fails(5, ["--cache-memory", "at least"], *fleet, "--cache-memory", "0")
        self.assert_fails(2, ["--cache-memory", "--cache-positions"], *fleet, "--cache-memory", "1MiB", "--cache-positions", 4096)

        for bytes, positions in ((least, 4096), (3 * least + least // 2, 3 * 4096 + 2048), (1 << 40, 0)):
            self.run_ok(*fleet, "--cache-memory", bytes)
            try:
                budget = json.loads(self.run_ok("fleet", "status", "--fleet", "cm", "--json"))["budget"]
            finally:
                self.run_ok("fleet", "down", "--fleet", "cm")
            expected = positions or (budget["sequences"] + budget["prefixes"]) * budget["context"]
            self.assertEqual(budget["cache_positions"], expected)
        cut = self.directory / "cut"
        self.run_ok("cut", TINY, "--out", cut)
        token = self.directory / "token"
        token.write_text("0123456789abcdef0123456789abcdef\n")
        token.chmod(0o600)
        self.assert_fails(5, ["--cache-memory", "at least"], "controller", cut, "--token-file", token, "--cache-memory", "1KiB")


if __name__ == "__main__":
    main()
