#!/usr/bin/env python3
"""Strangers, liars and fools: bytes that nobody should send, to every port of every process; files that nobody should open. The fleet
answers as before afterwards, nobody has died, nobody has grown."""
import json
import os
import random
import shutil
import socket
import struct
import threading
import time

from system import MIB, TINY, Case, Stream, address_of, alive, complete, completion, main, memory, request, say, wait_for

GROWTH = 16 * MIB
MAGIC = b"MYH1"
HELLO, REPLY, PROOF, VERDICT = 40, 44, 32, 36  # bytes of the handshake's messages
VERSION_REFUSED, TOKENS_DIFFER = 1, 2


def listening_ports(pid):
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    ports = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as f:
            for line in f.readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    ports.append(int(fields[1].rsplit(":", 1)[1], 16))
    return sorted(set(ports))


def receive_all(sock, limit=1 << 20):
    """Until the other side closes; nothing hangs because the socket has a timeout."""
    data = b""
    while len(data) < limit:
        try:
            piece = sock.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            break
        if not piece:
            break
        data += piece
    return data


def receive(sock, count):
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        assert piece, f"closed after {len(data)} of {count} bytes"
        data += piece
    return data


class Strangers(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        case = cls()
        cls.addClassCleanup(case.doCleanups)
        cls.up = case.fleet(TINY, "--nodes", 4, "--node-memory", "64MiB", "--context", 512)
        cls.text = complete(cls.up.url)
        cls.everybody = cls.up.pids()
        cls.ports = {name: listening_ports(pid) for name, pid in cls.everybody.items()}
        cls.wire_ports = {name: cls.up.process(name)["port"] for name in cls.everybody if name != "gateway"}
        cls.http_ports = [cls.up.process("gateway")["port"],
                          *(p for p in cls.ports["controller"] if p != cls.wire_ports["controller"])]

    def setUp(self):
        self.before = {name: memory(pid, "VmRSS") for name, pid in self.everybody.items()}

    def tearDown(self):
        for name, pid in self.everybody.items():
            self.assertTrue(alive(pid), f"{name} has died")
        self.assertEqual(complete(self.up.url), self.text)
        self.assertEqual(self.up.status()["state"], "ready")
        growth = {name: memory(pid, "VmRSS") - self.before[name] for name, pid in self.everybody.items()}
        say(f"  grown by {max(growth.values()) / MIB:.1f} MiB at most ({max(growth, key=growth.get)})")
        for name, grown in growth.items():
            self.assertLess(grown, GROWTH, f"{name} has grown by {grown / MIB:.1f} MiB")

    def every_port(self):
        return [port for ports in self.ports.values() for port in ports]

    def connect(self, port, timeout=20):
        sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.addCleanup(sock.close)
        return sock

    def say_and_listen(self, port, data, finish=True):
        """What comes back before the other side closes."""
        with self.connect(port) as sock:
            try:
                sock.sendall(data)
                if finish:
                    sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has closed already, as it may
            return receive_all(sock)

    def test_there_are_ports_to_try(self):
        self.assertEqual({name: len(ports) for name, ports in self.ports.items()},
                         {"controller": 2, "gateway": 1, "n0": 1, "n1": 1, "n2": 1, "n3": 1})
        for name, port in self.wire_ports.items():
            self.assertIn(port, self.ports[name])

    def test_random_bytes(self):
        seed = random.SystemRandom().randrange(1 << 32)
        say(f"  seed {seed}")
        rng = random.Random(seed)
        for port in self.every_port():
            for size in (1, 3, 4, 39, 40, 44, 1000, 100000):
                self.say_and_listen(port, rng.randbytes(size))
                self.say_and_listen(port, MAGIC + rng.randbytes(size))

    def test_strangers_learn_nothing(self):
        for port in self.wire_ports.values():
            self.assertEqual(self.say_and_listen(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", finish=False), b"")

    def hello(self, oldest=1, newest=1):
        return MAGIC + struct.pack("<HH", oldest, newest) + os.urandom(32)

    def test_half_handshakes(self):
        waiting = []
        for port in self.wire_ports.values():
            for sent in (b"", b"M", MAGIC, self.hello()[:20], self.hello()):
                sock = self.connect(port)
                if sent:
                    sock.sendall(sent)
                waiting.append(sock)
        self.assertEqual(complete(self.up.url), self.text)  # while they wait
        began = time.monotonic()
        for sock in waiting:
            receive_all(sock)  # closed by the other side, or this raises
        self.assertLess(time.monotonic() - began, 10)

    def test_another_version_is_refused(self):
        for name, port in self.wire_ports.items():
            with self.connect(port) as sock:
                sock.sendall(self.hello(900, 901))
                reply = receive(sock, REPLY)
                self.assertEqual(reply[:4], MAGIC)
                status, oldest, newest, chosen = struct.unpack("<HHHH", reply[4:12])
                self.assertEqual(status, VERSION_REFUSED, name)
                self.assertEqual(chosen, 0)
                self.assertTrue(1 <= oldest <= newest < 900)
                self.assertEqual(receive_all(sock), b"")

    def test_a_wrong_proof_is_refused(self):
        for name, port in self.wire_ports.items():
            with self.connect(port) as sock:
                sock.sendall(self.hello(0, 65535))
                status = struct.unpack("<H", receive(sock, REPLY)[4:6])[0]
                self.assertEqual(status, 0)
                sock.sendall(os.urandom(PROOF))
                verdict = receive(sock, VERDICT)
                self.assertEqual(struct.unpack("<H", verdict[:2])[0], TOKENS_DIFFER, name)
                self.assertEqual(verdict[4:], bytes(32))  # it proves nothing to a stranger
                self.assertEqual(receive_all(sock), b"")

    def test_a_hundred_idle_connections(self):
        socks = [self.connect(port) for port in self.every_port() for _ in range(100)]
        self.assertEqual(complete(self.up.url, timeout=20), self.text)
        self.assertEqual(self.up.status()["state"], "ready")
        for sock in socks:
            sock.close()

    def test_http_garbage(self):
        seed = random.SystemRandom().randrange(1 << 32)
        say(f"  seed {seed}")
        rng = random.Random(seed)
        shapes = [
            b"GET / HTTP/9.9\r\n\r\n", b"\r\n\r\n\r\n", b"GET\r\n\r\n", b"GET /v1/models HTTP/1.1\r\n" + b"A: b\r\n" * 10000 + b"\r\n",
            b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n", b"GET /v1/models HTTP/1.1\r\nX: " + b"y" * 100000 + b"\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: -1\r\n\r\n{}",
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 4000000000\r\n\r\n{}",
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}   ",
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nzz\r\n{}",
            b"GET /v1/parts/../../../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /v1/files/..%2f..%2fetc%2fpasswd HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n\r\n",
            b"GET /v1/manifest.json HTTP/1.1\r\nHost: x\r\nRange: bytes=-99999999999999999999\r\n\r\n",
            b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" * 500,
        ]
        for port in self.http_ports:
            for shape in shapes:
                answer = self.say_and_listen(port, shape)
                self.assertNotIn(b"root:", answer)
                if answer:
                    self.assertTrue(answer.startswith(b"HTTP/1."), answer[:80])
                broken = bytearray(shape[:4000])
                for _ in range(8):
                    broken[rng.randrange(len(broken))] = rng.randrange(256)
                self.say_and_listen(port, bytes(broken))

    def test_parts_need_a_ticket(self):
        port = next(p for p in self.http_ports if p in self.ports["controller"])
        for path in ("/v1/manifest.json", "/v1/files/config.json", "/v1/parts/" + "0" * 64 + ".part"):
            for header in ("", "Authorization: Bearer wrong\r\n"):
                answer = self.say_and_listen(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
                self.assertRegex(answer, rb"^HTTP/1\.1 401 ")

    def test_foolish_requests(self):
        url = self.up.url
        def refused(body, status=400, path="/v1/completions", words=()):
            error = self.assert_error(request(url, "POST", path, body), status, words)
            self.assertEqual(error["type"], "invalid_request_error")
            return error
        for body in (b"", b"{", b"null", b"[]", b"\xff\xfe", b"[" * 100000, b'{"a":' * 1000, b'{"prompt": "\\ud800"',
                     b'{"prompt": 1e999}', b"{}", b'{"prompt": "x", "prompt": ', b'\x00' * 1000):
            refused(body)
        for fields in (dict(prompt=[]), dict(prompt=[-1]), dict(prompt=[4096]), dict(prompt=[1 << 40]), dict(prompt=[1.5]),
                       dict(prompt={"a": 1}), dict(max_tokens=0), dict(max_tokens=-5), dict(max_tokens="many"), dict(temperature=-1),
                       dict(temperature="hot"), dict(temperature=100), dict(top_p=2), dict(n=0), dict(n=1000000), dict(stop=[""] * 4),
                       dict(stop=["a"] * 100), dict(stream="yes"), dict(seed="x"), dict(logprobs=1000)):
            refused(completion(**fields))
        for messages in ([], {}, "x", [1], [{"role": "king", "content": "x"}], [{"role": "user"}], [{"content": "x"}]):
            refused(dict(messages=messages), path="/v1/chat/completions")
        refused(completion(model="gpt-4"), 404)
        refused(b"x" * (17 * MIB), 413)
        error = refused(completion(prompt=[1] * 513), words=["512"])
        self.assertEqual(error["code"], "context_length_exceeded")
        refused(completion(prompt="In the beginning " * 1000))
        self.assert_error(request(url, "GET", "/v1/nothing"), 404)
        self.assert_error(request(url, "GET", "/v1/completions"), 405)

    def test_a_node_with_another_token(self):
        token = self.directory / "wrong-token"
        token.write_text("0123456789abcdef0123456789abcdef\n")
        token.chmod(0o600)
        began = time.monotonic()
        node = self.process("stranger", "node", "--join", self.up.controller, "--token-file", token, "--store",
                            self.directory / "stranger-store", "--name", "stranger", "--memory", "64MiB")
        wait_for("the node to say that its token is wrong", lambda: "tokens differ" in node.output(), 5)
        self.assertIsNone(self.up.node("stranger"))
        self.assertEqual(node.popen.wait(20), 4)
        last = node.output().strip().splitlines()[-1]
        say(f"  ended after {time.monotonic() - began:.2f} s: {last}")
        for words in ("myriad node: joining the fleet", self.up.controller, "tokens differ", "5 times", "--token-file"):
            self.assertIn(words, last)
        self.assertEqual(node.output().count("event=join_rejected"), 5)
        done = self.start("gateway", "--join", self.up.controller, "--token-file", token, "--http", "127.0.0.1:0")
        self.assertEqual(done.returncode, 4, done.err)
        self.assertIn("tokens differ", done.err)

    def stranger_at(self, answer):
        """A listener that says `answer` to whoever connects, to the first of them nothing at all; its address and a count of visits."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        visits = []

        def serve():
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with sock:
                    visits.append(sock.recv(HELLO))
                    if len(visits) > 1:
                        sock.sendall(answer)
                        sock.recv(1)  # until the node has read it and leaves
        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}", visits

    def join(self, address, name, token=None):
        return self.process(name, "node", "--join", address, "--token-file", token or self.up.token_file, "--store", self.directory / f"{name}-store",
                            "--name", name, "--memory", "64MiB", "--threads", 1)

    def test_a_node_of_another_version(self):
        address, visits = self.stranger_at(MAGIC + struct.pack("<HHHH", VERSION_REFUSED, 7, 9, 0) + bytes(32))
        node = self.join(address, "old")
        self.assertEqual(node.popen.wait(20), 4)
        last = node.output().strip().splitlines()[-1]
        for words in ("myriad node: joining the fleet", address, "the peer 7..9", "5 times", "version of Myriad"):
            self.assertIn(words, last)
        self.assertEqual(len(visits), 1 + 5)  # whoever answers nothing has refused nothing

    def test_what_is_no_refusal_is_tried_again(self):
        address, visits = self.stranger_at(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        node = self.join(address, "patient")
        wait_for("more tries than rejections are borne", lambda: len(visits) > 7, 40)
        self.assertIsNone(node.popen.poll())
        self.assertIn("does not speak this protocol", node.output())

    def test_two_nodes_of_one_name(self):
        """The later one stays; the earlier one learns why it is not wanted."""
        first = self.join(self.up.controller, "twin")
        wait_for("it to join", lambda: self.up.node("twin"))
        second = self.process("twin-2", "node", "--join", self.up.controller, "--token-file", self.up.token_file, "--store",
                              self.directory / "twin-2-store", "--name", "twin", "--memory", "64MiB", "--threads", 1)
        self.assertEqual(first.popen.wait(20), 4)
        last = first.output().strip().splitlines()[-1]
        for words in ("myriad node: registering node twin", self.up.controller, "incarnation", "--store", "--name"):
            self.assertIn(words, last)
        self.assertIsNone(second.popen.poll())
        self.assertEqual(self.up.node("twin")["state"], "spare")


class Files(Case):
    def refused(self, code, words, *arguments):
        done = self.start(*arguments)
        self.assertEqual(done.returncode, code, f"{arguments}: {done.out[:200]} {done.err}")
        self.assertRegex(done.err, r"(?m)^myriad[a-z -]*: .{20,}")
        for word in words:
            self.assertIn(word, done.err)
        for sign in ("terminate called", "Aborted", "what():", "bad_alloc"):
            self.assertNotIn(sign, done.err)
        return done.err

    def copy_of_model(self):
        path = self.directory / f"model-{len(os.listdir(self.directory))}"
        shutil.copytree(TINY, path)
        path.chmod(0o755)
        for file in path.iterdir():
            file.chmod(0o644)
        return path

    def test_a_model_that_does_not_fit(self):
        said = self.refused(5, [], "fleet", "up", TINY, "--nodes", 2, "--node-memory", "8MiB", "--http", "127.0.0.1:0")
        say(f"  {said.strip()}")
        self.assertRegex(said, r"\d[\d,]* (bytes|MiB|KiB)")  # how much is missing
        self.assertRegex(said, r"missing|short")
        self.assertRegex(said, r"\d+ nodes|--node-memory|--nodes")  # what would fit
        self.assertFalse((self.directory / "run/default/state.json").exists())
        self.refused(5, [], "run", TINY, "-p", "x", "--nodes", 2, "--node-memory", "8MiB")

    def commands(self, model):
        yield "inspect", model
        yield "logits", model, "--ids", "1,2,3", "--digest"
        yield "run", model, "-p", "x", "-n", 2
        yield "cut", model, "--out", self.directory / f"cut-of-{model.name}"
        yield "fleet", "up", model, "--nodes", 2, "--http", "127.0.0.1:0"

    def test_truncated_files(self):
        for name in ("model-00001-of-000002.safetensors", "model-00002-of-000002.safetensors"):
            size = (TINY / name).stat().st_size
            for kept in (0, 7, 100, size // 2, size - 1):
                model = self.copy_of_model()
                os.truncate(model / name, kept)
                for command in self.commands(model):
                    self.refused(3, [name], *command)
                shutil.rmtree(model)

    def test_hostile_headers(self):
        name = "model-00002-of-000002.safetensors"
        whole = (TINY / name).read_bytes()
        length = struct.unpack("<Q", whole[:8])[0]
        header, data = json.loads(whole[8:8 + length]), whole[8 + length:]
        def file_of(header):
            text = json.dumps(header).encode() if not isinstance(header, bytes) else header
            return struct.pack("<Q", len(text)) + text + data
        def changed(**fields):
            copy = json.loads(json.dumps(header))
            next(v for k, v in copy.items() if k != "__metadata__").update(fields)
            return file_of(copy)
        first = next(v for k, v in header.items() if k != "__metadata__")
        begin, end = first["data_offsets"]
        for bad in (struct.pack("<Q", 1 << 63) + whole[8:], struct.pack("<Q", len(whole)) + whole[8:], struct.pack("<Q", 0) + whole[8:],
                    file_of(b"{" * 100000), file_of(b"[]"), file_of(b"null"), file_of(b'{"a": 1}'), file_of(b"\xff" * 100),
                    changed(data_offsets=[begin, end + len(data)]), changed(data_offsets=[end, begin]),
                    changed(data_offsets=[begin, (1 << 64) - 1]), changed(data_offsets=[-8, end]), changed(data_offsets=[begin]),
                    changed(dtype="Q7"), changed(dtype=1), changed(shape=[1 << 62, 1 << 62]), changed(shape=[-1]), changed(shape="x"),
                    changed(shape=[1] * 100000)):
            model = self.copy_of_model()
            (model / name).write_bytes(bad)
            for command in (*self.commands(model),)[:2]:
                self.refused(3, [name], *command)
            shutil.rmtree(model)

    def test_hostile_configs(self):
        config = json.loads((TINY / "config.json").read_text())
        def with_text(**fields):
            return json.dumps(dict(config, text_config=dict(config["text_config"], **fields)))
        for bad in ("", "{", "[]", "null", "[" * 100000, "{}", '{"model_type": "bert"}', json.dumps(dict(config, text_config=7)),
                    with_text(hidden_size=1 << 60), with_text(hidden_size=-1), with_text(hidden_size="wide"), with_text(hidden_size=0),
                    with_text(num_hidden_layers=1 << 40), with_text(num_hidden_layers=0), with_text(num_attention_heads=1 << 31),
                    with_text(num_experts=1 << 40), with_text(num_experts_per_token=17), with_text(vocab_size=1 << 50),
                    with_text(rms_norm_eps="x"), with_text(moe_intermediate_size=97), with_text(linear_attn_config=[]),
                    with_text(q_lora_rank=-96), with_text(kv_lora_rank=1 << 62)):
            model = self.copy_of_model()
            (model / "config.json").write_text(bad)
            for command in (*self.commands(model),)[:2]:
                self.refused(3, [], *command)
            shutil.rmtree(model)

    def test_an_index_that_leaves_its_directory(self):
        name = "model.safetensors.index.json"
        for target in ("../../../../etc/passwd", "/etc/passwd", "", ".", "model-00001-of-000002.safetensors\u0000"):
            model = self.copy_of_model()
            index = json.loads((model / name).read_text())
            index["weight_map"] = dict.fromkeys(index["weight_map"], target)
            (model / name).write_text(json.dumps(index))
            said = self.refused(3, [], "inspect", model)
            self.assertNotIn("root:", said)
            shutil.rmtree(model)


if __name__ == "__main__":
    main()
