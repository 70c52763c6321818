"""What the system tests share: fleets of real processes, clients on real sockets, and a look at them from outside.

Every test runs as  TEST.py MYRIAD SOURCE_DIR [--long] [names of tests]  and needs Python's standard library alone. Each test class has a
temporary directory of its own for runs, caches and cuts; every wait has a deadline; only processes that a test started are signalled, by
number, and all of them are gone when it ends, however it ends.
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SKIPPED = 77  # exit status: nothing ran, as CTest is told
if len(sys.argv) < 3:
    sys.exit(f"usage: {sys.argv[0]} MYRIAD SOURCE_DIR [--long] [names of tests]")
MYRIAD = str(pathlib.Path(sys.argv[1]).resolve())
SOURCE = pathlib.Path(sys.argv[2]).resolve()
LONG = "--long" in sys.argv
TINY = SOURCE / "models/tiny-k3"
PROMPT = "In the beginning God created"
MIB = 1 << 20
COMMAND_LIMIT = 600 if LONG else 120  # seconds for one command; a hang is a failure
TICKS = os.sysconf("SC_CLK_TCK")


# ---- processes, seen from outside
def stat_fields(pid):
    """/proc/PID/stat from field 3 (the state) on; nothing if it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def alive(pid):
    fields = stat_fields(pid)
    return fields is not None and fields[0] not in "ZX"


def cpu_seconds(pid):
    fields = stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0


def memory(pid, field):
    """Bytes of a field of /proc/PID/status, such as VmRSS or VmHWM."""
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(rf"^{field}:\s+(\d+) kB", f.read(), re.M)[1]) << 10


def data_limit(pid):
    with open(f"/proc/{pid}/limits") as f:
        return next(line.split()[3] for line in f if line.startswith("Max data size"))


def send_signal(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_for(what, condition, seconds=30):
    """The condition's first true value, or a failure that says what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.02)  # between two looks


# ---- HTTP
class Answer:
    def __init__(self, status, body):
        self.status, self.body = status, body

    def json(self):
        return json.loads(self.body)

    def error(self):
        return self.json()["error"]


def address_of(url):
    host, port = url.removeprefix("http://").rsplit(":", 1)
    return host, int(port)


def request(url, method, path, body=None, timeout=60):
    """One request on a connection of its own; `body` may be bytes, or anything that JSON can say."""
    connection = http.client.HTTPConnection(*address_of(url), timeout=timeout)
    try:
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        connection.request(method, path, body, {"Content-Type": "application/json"} if body is not None else {})
        answer = connection.getresponse()
        return Answer(answer.status, answer.read())
    finally:
        connection.close()


def completion(**fields):
    return dict(dict(prompt=PROMPT, max_tokens=16, temperature=0), **fields)


def complete(url, timeout=60, **fields):
    """The text of a completion that must succeed."""
    answer = request(url, "POST", "/v1/completions", completion(**fields), timeout)
    assert answer.status == 200, f"{answer.status}: {answer.body.decode(errors='replace')}"
    return answer.json()["choices"][0]["text"]


class Stream:
    """A streamed completion that is read by a thread. `text` grows; `error` is the OpenAI error that ended it, if one did."""

    def __init__(self, url, timeout=60, **fields):
        self.text, self.error, self.events, self.ended_at = "", None, 0, None
        self.connection = http.client.HTTPConnection(*address_of(url), timeout=timeout)
        self.connection.request("POST", "/v1/completions", json.dumps(completion(stream=True, **fields)),
                                {"Content-Type": "application/json"})
        self.socket = self.connection.sock  # the connection forgets it when the answer says "Connection: close"
        self.answer = self.connection.getresponse()
        self.status = self.answer.status
        self.finished = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        try:
            if self.status != 200:
                self.error = json.loads(self.answer.read())["error"]
                return
            for line in self.answer:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    self.error = event["error"]
                else:
                    self.text += event["choices"][0]["text"]
                self.events += 1
        except (OSError, ValueError, AttributeError, http.client.HTTPException) as e:
            self.error = self.error or {"message": f"the stream broke off: {e}", "broken": True}
        finally:
            self.ended_at = time.monotonic()
            self.finished.set()

    def wait_events(self, count, seconds=30):
        wait_for(f"{count} events of a stream", lambda: self.events >= count or self.finished.is_set(), seconds)
        assert self.events >= count, f"the stream ended after {self.events} events: {self.error}"

    def close(self):
        """Leaves, as a client does whose user has gone."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.connection.close()
        self.reader.join(10)


# ---- fleets
class Fleet:
    """A fleet that `myriad fleet up` started. Whatever happens, stop() leaves none of its processes."""

    def __init__(self, case, name="default"):
        self.case, self.name = case, name
        self.directory = case.directory / "run" / name
        self.started = {}  # pid -> start time, of every process that it ever had
        self.report = ""

    def up(self, model, *options):
        done = self.case.start("fleet", "up", model, "--fleet", self.name, "--http", "127.0.0.1:0", *options)
        self.remember()
        self.case.assertEqual(done.returncode, 0, done.err)
        self.report = done.out
        state = self.state()
        self.url, self.controller, self.token_file = state["url"], state["controller"], state["token_file"]
        return self

    def state(self):
        with open(self.directory / "state.json") as f:
            return json.load(f)

    def remember(self):
        with contextlib.suppress(OSError, ValueError):
            for p in self.state()["processes"]:
                self.started[p["pid"]] = p["start"]

    def processes(self):
        return self.state()["processes"]

    def process(self, name):
        return next(p for p in self.processes() if p["name"] == name)

    def pid(self, name):
        return self.process(name)["pid"]

    def pids(self):
        return {p["name"]: p["pid"] for p in self.processes()}

    def status(self):
        return json.loads(self.case.run_ok("fleet", "status", "--json", "--fleet", self.name))

    def node(self, name):
        return next((n for n in self.status()["nodes"] if n["id"] == name), None)

    def calls(self):
        return {n["id"]: n["calls"] for n in self.status()["nodes"]}

    def ready(self):
        return request(self.url, "GET", "/ready")

    def wait_ready(self, seconds=30):
        wait_for("the fleet to be ready", lambda: self.ready().status == 200, seconds)

    def leads(self):
        """Names of the stages' leads, the first stage's first."""
        return [stage["lead"] for stage in self.status()["stages"]]

    def helpers(self):
        """Nodes that hold parts and lead no stage."""
        status = self.status()
        leads = {stage["lead"] for stage in status["stages"]}
        return [n["id"] for n in status["nodes"] if n["parts"] and n["id"] not in leads]

    def join(self, name, *options):
        """Another node, started by hand."""
        return self.case.process(name, "node", "--join", self.controller, "--token-file", self.token_file, "--name", name,
                                 "--store", self.case.directory / "stores" / name, "--memory", "64MiB", "--threads", "1", *options)

    def stop(self):
        self.remember()
        try:
            self.case.start("fleet", "down", "--fleet", self.name)
        except subprocess.TimeoutExpired:
            pass
        for pid, start in self.started.items():
            fields = stat_fields(pid)
            if fields and fields[0] not in "ZX" and int(fields[19]) == start:
                send_signal(pid, signal.SIGKILL)


class Process:
    """A process of `myriad` that a test runs in the foreground, with its output in a file."""

    def __init__(self, case, name, arguments, command=None, environment=None):
        self.log = case.directory / f"{name}.log"
        with open(self.log, "ab") as log:
            self.popen = subprocess.Popen([*(command or [MYRIAD]), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=log,
                                          stderr=log, env=environment or case.environment)
        self.pid = self.popen.pid

    def output(self):
        return self.log.read_text(errors="replace")

    def wait_output(self, pattern, seconds=30):
        """The match of a regular expression in what it has said."""
        def look():
            found = re.search(pattern, self.output())
            assert found or self.popen.poll() is None, f"it ended with {self.popen.returncode}: {self.output()}"
            return found
        return wait_for(f"{pattern!r} in {self.log}", look, seconds)

    def stop(self, number=signal.SIGTERM):
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.send_signal(number)
            try:
                self.popen.wait(5)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        self.popen.wait()


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="myriad-system-")
        cls.addClassCleanup(directory.cleanup)
        cls.directory = pathlib.Path(directory.name)
        cls.environment = dict(os.environ, MYRIAD_CACHE_DIR=str(cls.directory / "cache"), MYRIAD_RUN_DIR=str(cls.directory / "run"))
        cls.environment.pop("MYRIAD_ISA", None)

    def start(self, *arguments, input=None, environment=None):
        """The finished command, whatever its exit code."""
        if isinstance(input, str):
            input = input.encode()
        done = subprocess.run([MYRIAD, *map(str, arguments)], input=input, stdin=None if input is not None else subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=COMMAND_LIMIT,
                              env=dict(self.environment, **(environment or {})))
        done.out, done.err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        return done

    def run_ok(self, *arguments, input=None, environment=None):
        """Standard output of a command that must succeed."""
        done = self.start(*arguments, input=input, environment=environment)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.err}")
        return done.out

    def fleet(self, model, *options, name="default"):
        fleet = Fleet(self, name)
        self.addCleanup(fleet.stop)
        return fleet.up(model, *options)

    def process(self, name, *arguments, command=None, environment=None):
        process = Process(self, name, arguments, command, environment)
        self.addCleanup(process.stop)
        return process

    def assert_error(self, answer, status, words=()):
        """An error as OpenAI's clients expect it."""
        self.assertEqual(answer.status, status, answer.body)
        error = answer.error()
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        for word in words:
            self.assertIn(word, error["message"])
        return error


def holdout_ids(case, count):
    text = (TINY / "holdout.txt").read_text(encoding="utf-8")
    ids = json.loads(case.run_ok("tokenize", TINY, input=json.dumps(text) + "\n"))
    assert len(ids) >= count
    return ids[:count]


def say(text):
    """Numbers for whoever reads the log of a test."""
    print(text, flush=True)


def main():
    names = [a for a in sys.argv[3:] if a != "--long"]
    program = unittest.main(verbosity=2, argv=[sys.argv[0], *names], exit=False)
    result = program.result
    if result.wasSuccessful() and result.testsRun and len(result.skipped) >= result.testsRun:
        sys.exit(SKIPPED)
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
