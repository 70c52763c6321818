#!/usr/bin/env python3
"""Exit codes and sentences: usage, missing and hostile files, amounts that make no sense."""
import json
import os
import re
import resource
import shutil
import socket
import struct
import subprocess
import unittest

from harness import DEADLINE, MYRIAD, RANDOM_K3, SHARED, SOURCE, TINY, Case, main, with_own_context

STORIES = os.path.join(SHARED or "", "models/stories260K.gguf")
LOST = "writing to standard output"
COMMANDS = ["run", "logits", "perplexity", "inspect", "tokenize", "chat-format", "cut", "controller", "node", "gateway"]
BENCH = ["read", "decode", "prefill", "batch", "hop", "kernels"]
FLEET = ["up", "status", "kill", "down"]


class Usage(Case):
    def test_help(self):
        for words in [[]] + [[c] for c in COMMANDS] + [["fleet"]] + [["fleet", c] for c in FLEET] + [["bench"]] + [["bench", c] for c in BENCH]:
            text = self.run_ok(*words, "--help")
            self.assertIn("exit codes", text, words)
            self.assertNotIn("--ready-fd", text)
        for command in COMMANDS + ["fleet", "bench"]:
            self.assertIn(command, self.run_ok("--help"))
        self.assertRegex(self.run_ok("--version"), r"^myriad \d+\.\d+\.\d+\n$")

    def test_every_option_is_documented(self):
        documented = (SOURCE / "docs/cli.md").read_text()
        for words in [[c] for c in COMMANDS + ["quantize"]] + [["fleet", c] for c in FLEET] + [["bench", c] for c in BENCH]:
            self.assertIn(f"{' '.join(words)}", documented)
            for option in sorted(set(re.findall(r"--[a-z][a-z-]+", self.run_ok(*words, "--help"))) - {"--help"}):
                self.assertRegex(documented, re.escape(option) + r"(?![a-z-])", words)

    def test_usage_errors(self):
        for words, arguments in (
                (["subcommand"], []),
                (["frobnicate"], ["frobnicate"]),
                (["'bench foo'", "prefill"], ["bench", "foo"]),
                (["'fleet foo'", "status"], ["fleet", "foo"]),
                (["--node-memory", "--nodes"], ["run", TINY, "-p", "x", "--node-memory", "64MiB"]),
                (["--interpreter", "--nodes"], ["logits", TINY, "--ids", "1", "--interpreter", "--nodes", 2]),
                (["--interpreter", "--cut-seed"], ["logits", TINY, "--ids", "1", "--interpreter", "--cut-seed", 2]),
                (["--context", "--dry-run"], ["cut", TINY, "--out", "out", "--context", 100]),
                (["--sequences", "--node-memory"], ["cut", TINY, "--dry-run", "--sequences", 100]),
                (["--digest", "--json"], ["logits", TINY, "--ids", "1", "--digest", "--json"]),
                (["--eval-windows", "--eval"], ["quantize", TINY, "out", "--format", "q4_0", "--eval-windows", 2]),
                (["MODEL"], ["run"]),
                (["--frob"], ["run", TINY, "--frob"]),
                (["profile"], ["run", TINY, "-p", "x", "--profile", "best"]),
                (["--tokens"], ["run", TINY, "-p", "x", "-n", "many"]),
                (["--temperature"], ["run", TINY, "-p", "x", "--temperature", "-1"]),
                (["amount of bytes"], ["run", TINY, "-p", "x", "--nodes", 2, "--node-memory", "lots"]),
                (["--ids"], ["logits", TINY]),
                (["id number 2"], ["logits", TINY, "--ids", "1,x"]),
                (["0 to 4095"], ["logits", TINY, "--ids", "1,4096"]),
                (["0 to 4095"], ["logits", TINY, "--ids=-5"]),
                (["--out"], ["cut", TINY]),
                (["65536"], ["bench", "read", "--bytes", "1000"]),
                (["seconds"], ["bench", "read", "--seconds", "0"]),
                (["--method"], ["perplexity", TINY, "-f", TINY / "holdout.txt", "--method", "best"]),
                (["port"], ["gateway", "--join", "here:there", "--token-file", "x"]),
                (["name of a fleet"], ["fleet", "status", "--fleet", "../../etc"])):
            self.assert_fails(2, words, *arguments)

    def test_what_bench_prints(self):
        """Bytes a second where weights are streamed for every token; of a prompt they say nothing."""
        prefill, decode = ["bench", "prefill", TINY, "--prompt", 64], ["bench", "decode", TINY, "--tokens", 4]
        self.assertRegex(self.run_ok(*prefill), r"^prefill: [\d.]+ tokens/s \(64 tokens in [\d.]+ s\)\n$")
        self.assertRegex(self.run_ok(*decode), r"^decode: .* GB/s of weights\)\n$")
        self.assertIn("gigabytes_per_second", json.loads(self.run_ok(*prefill, "--json")))

    def test_addresses(self):
        """Whatever option takes one: which it was, what it held, what was expected, what to try; and nothing is left behind."""
        token, cut = self.directory / "token", self.directory / "cut-for-addresses"
        token.write_text("0123456789abcdef0123456789abcdef\n")
        token.chmod(0o600)
        self.run_ok("cut", TINY, "--out", cut)
        node = ["node", "--token-file", token, "--store", self.directory / "address-store"]
        gateway, nobody = ["gateway", "--token-file", token], ["--join", "127.0.0.1:9"]
        listening = {"--http": [["fleet", "up", TINY], gateway + nobody], "--listen": [["controller", cut, "--token-file", token], node + nobody]}
        for option, commands in listening.items():
            for command in commands:
                for text, why in (("999.1.1.1", "0 to 255"), ("1.2.3.4:80:90", "IPv6"), ("a host", "characters"), ("127.0.0.1:99999", "0 to 65535"),
                                  ("http://127.0.0.1:1", "characters"), ("[::1", "bracket"), ("", "empty")):
                    self.assert_fails(2, [f"reading the option {option}", f'"{text}"', why, "expected ", f"try {option} 127.0.0.1", "'*:"], *command, option, text)
                for text in ("no-such-host.invalid", "192.0.2.1:8099"):  # well-formed, but not of this machine
                    self.assert_fails(2, [f"listening on {text}", option, "expected an address or name of this machine", "try 127.0.0.1", "*"],
                                      *command, option, text)
        for command in (node, gateway):
            for text, why in (("999.1.1.1", "0 to 255"), ("10.0.0.5:x", "0 to 65535"), ("*", "no host"), ("", "no host"), ("10.0.0.5:0", "port 0")):
                self.assert_fails(2, ["reading the option --join", f'"{text}"', why, "expected ", "try --join 10.0.0.5:7200"], *command, "--join", text)
        for text, why in (("10.0.0.7:80", "has a port"), ("999.1.1.1", "0 to 255"), ("*", "no host")):
            self.assert_fails(2, ["reading the option --advertise", f'"{text}"', why, "expected ", "try --advertise"], *node, *nobody, "--advertise", text)
        for text, why in (("999.1.1.1", "no scheme"), ("https://a.example/chat", "a path")):
            self.assert_fails(2, ["reading the option --cors-origin", f'"{text}"', why, "expected ", "try --cors-origin http"],
                              *gateway, *nobody, "--cors-origin", text)
        for text in ("99999", "x", ""):
            self.assert_fails(2, ["reading the option --http-port", f'"{text}"', "0 (a free one) to 65535", "try --http-port 7201"],
                              "controller", cut, "--token-file", token, "--http-port", text)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for option, commands in listening.items():
                for command in commands:
                    self.assert_fails(4, [f"listening on {address}: the port is in use", option, "another port"], *command, option, address)
            self.assert_fails(4, [address, "in use", "--http-port"], "controller", cut, "--token-file", token, "--listen", "127.0.0.1:0", "--http-port",
                              address.split(":")[1])
        self.assert_fails(4, ["no fleet named"], "fleet", "status")

    def test_positions_beyond_the_models_own_context(self):
        """Every command that takes a sequence there says so, once, and does it; none that stays within it says anything."""
        model, text = with_own_context(self.directory, 20), TINY / "holdout.txt"
        ids = ",".join(["5"] * 20)
        for command, within, beyond in (
                ("run", ["run", model, "-p", "In the beginning", "-n", 8], ["run", model, "-p", "In the beginning", "-n", 30]),
                ("run", ["run", model, "-p", "In the", "-n", 4], ["run", model, "-p", "In the", "-n", 4, "--context", 21]),
                ("run", ["run", model, "-p", "In the", "-n", 4, "--nodes", 1], ["run", model, "-p", "In the", "-n", 40, "--nodes", 1]),
                ("logits", ["logits", model, "--ids", ids, "--digest"], ["logits", model, "--ids", ids + ",5", "--digest"]),
                ("logits", ["logits", model, "--ids", ids, "--digest", "--interpreter"], ["logits", model, "--ids", ids + ",5", "--digest", "--interpreter"]),
                ("perplexity", ["perplexity", model, "-f", text, "--window", 20, "--windows", 2], ["perplexity", model, "-f", text, "--window", 21, "--windows", 2]),
                ("bench decode", ["bench", "decode", model, "--prompt", 8, "--tokens", 4], ["bench", "decode", model, "--prompt", 16, "--tokens", 4]),
                ("bench batch", ["bench", "batch", model, "--prompt", 8, "--tokens", 4, "--sequences", 4],
                 ["bench", "batch", model, "--prompt", 16, "--tokens", 4, "--sequences", 4]),
                ("bench prefill", ["bench", "prefill", model, "--prompt", 20], ["bench", "prefill", model, "--prompt", 21]),
                ("quantize", ["quantize", model, self.directory / "within", "--format", "q8_0", "--eval", text, "--eval-windows", 1, "--window", 20],
                 ["quantize", model, self.directory / "beyond", "--format", "q8_0", "--eval", text, "--eval-windows", 1, "--window", 21]),
                ("cut", ["cut", model, "--dry-run", "--node-memory", "64MiB", "--context", 20], ["cut", model, "--dry-run", "--node-memory", "64MiB", "--context", 21])):
            with self.subTest(command=beyond):
                done = self.start(*within)
                self.assertEqual(done.returncode, 0, done.err)
                self.assertNotIn("own context", done.err)
                done = self.start(*beyond)
                self.assertEqual(done.returncode, 0, done.err)
                self.assertEqual(len(re.findall(rf"(?m)^myriad {command}: warning: \d+ positions .* beyond the 20 of the model's own context", done.err)), 1, done.err)
                self.assertEqual(done.err.count("own context"), 1, done.err)

    def test_no_fleet(self):
        for arguments in (["status"], ["down"], ["kill", "n0"]):
            self.assert_fails(4, ["no fleet named 'default'", "fleet up"], "fleet", *arguments)

    def test_context(self):
        for command in (["run", TINY, "-p", "In the beginning", "-n", 50], ["logits", TINY, "--ids", ",".join(["1"] * 53)],
                        ["bench", "prefill", TINY, "--prompt", 53], ["bench", "decode", TINY, "--prompt", 3, "--tokens", 48],
                        ["perplexity", TINY, "-f", TINY / "holdout.txt", "--window", 53]):
            done = self.assert_fails(2, ["--context 10", "raise --context to 53"], *command, "--context", 10)
            self.assertEqual(done.out, "")


class Files(Case):
    def test_missing(self):
        for command in (["run", "-p", "x"], ["logits", "--ids", "1"], ["inspect"], ["cut", "--dry-run"], ["tokenize"]):
            self.assert_fails(3, ["/nowhere/at/all"], command[0], "/nowhere/at/all", *command[1:])
        self.assert_fails(3, ["no-such-text"], "perplexity", TINY, "-f", "no-such-text")
        self.assert_fails(3, ["tiktoken.model"], "run", RANDOM_K3, "-p", "x")  # a model without a tokenizer
        self.assert_fails(3, ["no-token"], "node", "--join", "127.0.0.1:1", "--token-file", "no-token", "--store",
                          self.directory / "store")
        self.assert_fails(3, ["not a cut model", "myriad cut"], "controller", TINY, "--token-file", self.token())

    def test_directories_that_are_no_models(self):
        model = self.directory / "ggufs"
        model.mkdir()
        for command in (["run", model, "-p", "x"], ["inspect", model], ["cut", model, "--dry-run"], ["logits", model, "--ids", "1"],
                        ["quantize", model, self.directory / "out", "--format", "q4_0"]):
            self.assert_fails(3, ["is no model", "neither a config.json", "GGUF"], *command)
        for name in "abcde":
            (model / f"{name}.gguf").write_text("")
        self.assert_fails(3, ["a.gguf, b.gguf, c.gguf and 2 more", "name one of them"], "run", model, "-p", "x")
        cut = self.directory / "interrupted"
        self.run_ok("cut", RANDOM_K3, "--out", cut)
        self.assert_fails(3, ["is a cut model"], "quantize", cut, self.directory / "out", "--format", "q4_0")
        for file in cut.glob("*.json"):
            file.unlink()
        self.assert_fails(3, ["was interrupted", f"--out {cut}"], "run", cut, "-p", "x")

    def test_texts_that_are_no_files(self):
        text = self.run_ok("run", TINY, "-p", "In the", "-n", 2)
        self.assertEqual(self.run_ok("run", TINY, "-f", "/dev/stdin", "-n", 2, input="In the"), text)
        pipe = self.directory / "pipe"
        os.mkfifo(pipe)
        writer = subprocess.Popen(["sh", "-c", 'printf "In the" > "$0"', str(pipe)])
        self.assertEqual(self.run_ok("run", TINY, "-f", pipe, "-n", 2), text)
        writer.wait()
        self.assert_fails(3, ["is a directory", "- for standard input"], "run", TINY, "-f", TINY, "-n", 2)
        self.assert_fails(1, ["/dev/zero", "more than"], "run", TINY, "-f", "/dev/zero", "-n", 2)

    def token(self):
        path = self.directory / "token"
        path.write_text("0123456789abcdef0123456789abcdef\n")
        path.chmod(0o600)
        return path

    def copy(self, name):
        target = self.directory / name
        shutil.copytree(RANDOM_K3, target)
        for path in target.iterdir():
            path.chmod(0o644)
        return target

    def check_hostile(self, model, *words):
        for command in (["inspect"], ["logits", "--ids", "1,2"], ["cut", "--dry-run"]):
            done = self.start(command[0], model, *command[1:])
            if command[0] == "inspect" and done.returncode == 0:
                continue  # the inventory may be fine where the weights are not
            self.assert_fails(3, words, command[0], model, *command[1:])

    def test_hostile_models(self):
        shard = "model-00001-of-000002.safetensors"
        empty = self.directory / "empty"
        empty.mkdir()
        self.check_hostile(empty, "config.json")
        model = self.copy("no-json")
        (model / "config.json").write_text("{" * 1000)
        self.check_hostile(model, "config.json")
        model = self.copy("absurd")
        config = json.loads((model / "config.json").read_text())
        text = config.get("text_config", config)
        text["num_hidden_layers"] = 10**12
        (model / "config.json").write_text(json.dumps(config))
        self.check_hostile(model, "num_hidden_layers")
        model = self.copy("other-kind")
        (model / "config.json").write_text('{"model_type": "gpt2"}')
        self.check_hostile(model, "gpt2")
        model = self.copy("truncated")
        os.truncate(model / shard, 100_000)
        self.check_hostile(model, shard)
        model = self.copy("huge-header")
        with open(model / shard, "r+b") as f:
            f.write(struct.pack("<Q", 1 << 62))
        self.check_hostile(model, shard)
        model = self.copy("missing-shard")
        (model / shard).unlink()
        self.check_hostile(model, shard)

    def test_hostile_cut(self):
        cut = self.directory / "cut"
        self.run_ok("cut", RANDOM_K3, "--out", cut)
        self.run_ok("logits", cut, "--ids", "1,2")
        part = max((cut / "parts").iterdir(), key=lambda p: p.stat().st_size)
        data = bytearray(part.read_bytes())
        data[len(data) // 2] ^= 1
        part.chmod(0o644)
        part.write_bytes(data)
        self.assert_fails(3, [part.name], "logits", cut, "--ids", "1,2")
        manifest = cut / "manifest.json"
        text = manifest.read_text()
        for damaged in (text[:len(text) // 2], "[]", text.replace("parts", "prats")):
            manifest.write_text(damaged)
            self.assert_fails(3, [], "logits", cut, "--ids", "1,2")


class Memory(Case):
    def test_does_not_fit(self):
        done = self.assert_fails(5, ["does not fit", "missing"], "run", TINY, "-p", "x", "--nodes", 2, "--node-memory", "7MiB")
        self.assertNotIn("cutting", done.err)  # it is known before anything is made
        self.assert_fails(5, ["does not fit"], "fleet", "up", TINY, "--nodes", 1, "--node-memory", "8MiB")

    def limited(self, bytes, *arguments):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (bytes, bytes))
        done = subprocess.run([MYRIAD, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment,
                              timeout=DEADLINE, preexec_fn=limit)
        return done.returncode, done.stderr.decode()

    @unittest.skipIf("sanitize" in MYRIAD or "asan" in MYRIAD or "tsan" in MYRIAD, "sanitizers take address space without end")
    def test_limits_of_memory(self):
        code, err = self.limited(256 << 20, "run", TINY, "-p", "x", "-n", 1, "--context", 1 << 20, "--cache-type", "f32")
        self.assertEqual(code, 5, err)
        for words in ("attention state of 1 sequence of 1,048,576 positions", "268,435,456 bytes", "--context"):
            self.assertIn(words, err)
        code, err = self.limited(20 << 20, "run", TINY, "-p", "x", "-n", 1, "--threads", 1)
        self.assertEqual(code, 5, err)
        self.assertNotIn("internal error", err)


class Streams(Case):
    def shell(self, redirection, *arguments, input=b""):
        """`myriad ARGUMENTS REDIRECTION` by the shell: exit code, standard output, standard error."""
        command = ["bash", "-c", f'set -o pipefail; "$@" {redirection}', "sh", MYRIAD, *map(str, arguments)]
        done = subprocess.run(command, input=input, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment, timeout=DEADLINE)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def test_standard_error_is_closed_or_full(self):
        text = self.run_ok("run", TINY, "-p", "In the", "-n", 3)
        for redirection in ("2>&-", "2>/dev/full", "<&- 2>&-"):
            self.assertEqual(self.shell(redirection, "run", TINY, "-p", "In the", "-n", 3)[:2], (0, text), redirection)
            self.assertEqual(self.shell(redirection, "inspect", "nothere")[:2], (3, ""), redirection)
            self.assertEqual(self.shell(redirection, "frobnicate")[:2], (2, ""), redirection)
            out = self.directory / f"quantized{len(redirection)}"
            self.assertEqual(self.shell(redirection, "quantize", TINY, out, "--format", "q4_0")[0], 0, redirection)
        self.assertEqual(self.shell(">&- 2>&- <&-", "inspect", TINY), (0, "", ""))

    def test_standard_output_is_full(self):
        for arguments in (["run", TINY, "-p", "x", "-n", 2], ["inspect", TINY], ["inspect", TINY, "--json"], ["logits", TINY, "--ids", "1,2"],
                          ["logits", TINY, "--ids", "1,2", "--digest"], ["perplexity", TINY, "-f", TINY / "holdout.txt", "--windows", 1],
                          ["bench", "read", "--json", "--bytes", "1MiB", "--seconds", "0.05"], ["cut", TINY, "--dry-run"],
                          ["cut", TINY, "--dry-run", "--json"], ["cut", TINY, "--out", self.directory / "cut"],
                          ["quantize", TINY, self.directory / "out", "--format", "q4_0", "--json"], ["--help"], ["--version"]):
            with self.subTest(arguments=arguments):
                code, _, err = self.shell(">/dev/full", *arguments)
                self.assertEqual(code, 1, err)
                self.assertEqual(err.count(LOST), 1, err)
        for arguments in (["tokenize", TINY], ["chat-format", TINY]):
            line = b'"a"\n' if arguments[0] == "tokenize" else b'{"messages": [{"role": "user", "content": "a"}]}\n'
            code, _, err = self.shell(">/dev/full", *arguments, input=line)
            self.assertEqual((code, err.count(LOST)), (1, 1), err)

    def test_the_reader_goes_away(self):
        _, out, err = self.shell("| head -c 10", "logits", TINY, "--ids", "1,2,3,4,5,6,7,8", "--json")
        self.assertEqual((out, err), ('{"ids": [1', ""))


if __name__ == "__main__":
    main()
