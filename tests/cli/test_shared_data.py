#!/usr/bin/env python3
"""Kimi's own vocabulary and chat prompts. The data may not be part of the project: MYRIAD_TEST_DATA names the folder."""
import json
import os
import sys

from harness import SHARED, TINY, Case, main, read_json


class Tokenizer(Case):
    def test_kimi_vocabulary(self):
        cases = read_json(os.path.join(SHARED, "golden/kimi_tokenizer_ids.json"))["cases"]
        lines = "".join(json.dumps(case["text"]) + "\n" for case in cases)
        out = self.run_ok("tokenize", os.path.join(SHARED, "tokenizers/kimi_k2.tiktoken"), input=lines).splitlines()
        self.assertEqual(len(out), len(cases))
        for line, case in zip(out, cases):
            self.assertEqual(json.loads(line), case["ids"], case["text"][:80])


class Chat(Case):
    def test_k3_prompts(self):
        cases = read_json(os.path.join(SHARED, "golden/k3_chat_segments.json"))["cases"]
        lines = "".join(json.dumps(case["input"]) + "\n" for case in cases)
        out = self.run_ok("chat-format", TINY, input=lines).splitlines()
        self.assertEqual(len(out), len(cases))
        for line, case in zip(out, cases):
            self.assertEqual(json.loads(line)["segments"], case["segments"], case["name"])


if __name__ == "__main__":
    if not os.path.isdir(SHARED):
        print("skipped: MYRIAD_TEST_DATA does not name the folder with the shared test data")
        sys.exit(77)
    main()
