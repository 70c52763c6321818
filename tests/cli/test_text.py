#!/usr/bin/env python3
"""run, tokenize, chat-format, inspect: text in and out."""
import json
import random
import time

from harness import RANDOM_K3, TINY, Case, main, read_json


class Run(Case):
    def test_greedy_text(self):
        expected = read_json(TINY / "EXPECTED.json")
        done = self.start("run", TINY, "-p", expected["greedy_prompt"], "-n", 48, "--profile", "exact")
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(done.out, expected["greedy_prompt"] + expected["greedy_text"] + "\n")
        self.assertIn("48 new tokens", done.err)
        self.assertIn("memory:", done.err)

    def test_same_text_on_nodes(self):
        options = ("run", TINY, "-p", "And it came to pass", "-n", 24, "--temperature", 0.8, "--top-p", 0.9, "--seed", 5)
        want = self.run_ok(*options)
        self.assertEqual(self.run_ok(*options, "--nodes", 4, "--node-memory", "64MiB"), want)
        self.assertEqual(self.run_ok(*options, "--threads", 1), want)
        self.assertNotEqual(self.run_ok(*options[:-1], 6), want)

    def test_prompt_from_file_and_stdin(self):
        want = self.run_ok("run", TINY, "-p", "In the beginning", "-n", 4)
        file = self.directory / "prompt"
        file.write_text("In the beginning")
        self.assertEqual(self.run_ok("run", TINY, "-f", file, "-n", 4), want)
        self.assertEqual(self.run_ok("run", TINY, "-f", "-", "-n", 4, input="In the beginning"), want)


class Tokenize(Case):
    def encode(self, lines):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        return [json.loads(line) for line in self.run_ok("tokenize", TINY, input=text).splitlines()]

    def test_round_trip(self):
        seed = int(time.time())
        print(f"seed {seed}", flush=True)
        rng = random.Random(seed)
        alphabet = "abc ABC 0123\n\t.,'\"\\éßЖ漢字かな한🙂<|open|>"
        texts = ["", " ", "Hello, world!", "<|open|>", "naïve 漢字 🙂"]
        texts += ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 60))) for _ in range(200)]
        ids = self.encode(texts)
        self.assertEqual(len(ids), len(texts))
        back = self.run_ok("tokenize", TINY, "--decode", input="".join(json.dumps(i) + "\n" for i in ids))
        self.assertEqual([json.loads(line) for line in back.splitlines()], texts)

    def test_known_ids(self):
        expected = read_json(TINY / "EXPECTED.json")
        self.assertEqual(self.encode([expected["greedy_prompt"]]), [expected["greedy_prompt_ids"]])

    def test_specials(self):
        plain = json.loads(self.run_ok("tokenize", TINY, input='"<|open|>"\n'))
        special = json.loads(self.run_ok("tokenize", TINY, "--specials", input='"<|open|>"\n'))
        self.assertGreater(len(plain), 1)
        self.assertEqual(len(special), 1)

    def test_bytes_that_are_not_utf8(self):
        ids = json.loads(self.run_ok("tokenize", TINY, input=b'"a\xff\xfeb"\n'))
        self.assertEqual(json.loads(self.run_ok("tokenize", TINY, "--decode", input=json.dumps(ids) + "\n")),
                         "a\ufffd\ufffdb")

    def test_surrogates(self):
        pair = json.loads(self.run_ok("tokenize", TINY, input='"\\ud83d\\ude42"\n'))
        self.assertEqual(pair, self.encode(["🙂"])[0])
        half = json.loads(self.run_ok("tokenize", TINY, input='"\\ud83d"\n'))
        self.assertEqual(half, self.encode(["\ufffd"])[0])

    def test_malformed_lines(self):
        for line in ('nonsense', '"open', '"a" "b"', '"\\x"', '"\\u12"', '{"a": 1}', '"tab\there"'):
            self.assert_fails(1, ["line 2", "expected"], "tokenize", TINY, input=f'"fine"\n{line}\n')
        for line in ('[1, x]', '[1', '[1,]', '[999999]', '[-1]'):
            self.assert_fails(1, ["line 1"], "tokenize", TINY, "--decode", input=f"{line}\n")


class ChatFormat(Case):
    def test_user_turn(self):
        request = {"messages": [{"role": "user", "content": "Hi <|open|>"}]}
        out = json.loads(self.run_ok("chat-format", TINY, input=json.dumps(request) + "\n"))
        self.assertIn(["Hi <|open|>", False], out["segments"])
        text = json.loads(self.run_ok("tokenize", TINY, "--decode", input=json.dumps(out["ids"]) + "\n"))
        self.assertEqual(text, "".join(segment for segment, _ in out["segments"]))

    def test_malformed(self):
        for line, word in (("nonsense", "line 1"), ("{}", "messages"), ('{"messages": [{"role": "alien"}]}', "role")):
            self.assert_fails(1, [word], "chat-format", TINY, input=line + "\n")


class Inspect(Case):
    def test_json(self):
        out = json.loads(self.run_ok("inspect", TINY, "--json"))
        self.assertEqual(out["layers"], 5)
        self.assertEqual(out["total"]["bytes"], sum(c["bytes"] for c in out["categories"].values()))
        self.assertEqual(out["total"]["bytes"], 7773056)

    def test_text(self):
        self.assertIn("routed experts", self.run_ok("inspect", RANDOM_K3))


if __name__ == "__main__":
    main()
