#!/usr/bin/env python3
"""Caches and kept prefixes: what they store and share changes no token that it should not."""
import concurrent.futures
import os
import pathlib

from system import PROMPT, TINY, Case, completion, holdout_ids, main, request, say

LONG_PROMPT = PROMPT + " the heaven and the earth were finished, and all the host of them" * 6


class Caches(Case):
    def answer(self, fleet, **fields):
        answer = request(fleet.url, "POST", "/v1/completions", completion(**fields))
        self.assertEqual(answer.status, 200, answer.body)
        body = answer.json()
        return body["choices"][0]["text"], body["usage"]["prompt_tokens_details"]["cached_tokens"], body["usage"]["prompt_tokens"]

    def test_a_prompt_that_begins_like_an_earlier_one_gives_the_same_text(self):
        prompts = [LONG_PROMPT, LONG_PROMPT + " And the evening", LONG_PROMPT + " In the days of",
                   PROMPT + " the waters were gathered", LONG_PROMPT + " And the evening and the morning"]
        plain = self.fleet(TINY, "--nodes", 2, "--node-memory", "64MiB", "--prefixes", 0)
        expected = [self.answer(plain, prompt=p) for p in prompts]
        self.assertEqual([kept for _, kept, _ in expected], [0] * len(prompts))
        plain.stop()
        fleet = self.fleet(TINY, "--nodes", 3, "--node-memory", "64MiB")
        kept = []
        for prompt, (text, _, tokens) in zip(prompts, expected):
            found, cached, count = self.answer(fleet, prompt=prompt)
            self.assertEqual(found, text, prompt)
            self.assertEqual(count, tokens)
            self.assertLess(cached, tokens)
            kept.append(cached)
        say(f"  tokens of the prompts that were kept: {kept}")
        self.assertEqual(kept[0], 0)
        self.assertGreater(kept[1], 64)
        self.assertGreater(kept[2], 64)
        self.assertGreater(kept[4], 64)

    def test_the_same_prompt_again_is_not_computed_again(self):
        """All but its last token, whatever is asked about it: the same bits as from the first token on."""
        asked = [dict(max_tokens=1), dict(max_tokens=24), dict(max_tokens=24, temperature=1, seed=3, logprobs=3), dict(max_tokens=24, temperature=1, seed=4, n=2),
                 dict(max_tokens=24), dict(max_tokens=8, stream=False, echo=True)]

        def answers(fleet):
            found = []
            for fields in asked:
                answer = request(fleet.url, "POST", "/v1/completions", completion(prompt=LONG_PROMPT, **fields))
                self.assertEqual(answer.status, 200, answer.body)
                found.append(answer.json())
            return found
        plain = self.fleet(TINY, "--nodes", 2, "--node-memory", "64MiB", "--prefixes", 0)
        expected = answers(plain)
        plain.stop()
        for name, options in (("kept", ()), ("one", ("--prefixes", 1)), ("drafts", ("--draft-tokens", 4)), ("long", ("--step-rows", 16, "--cache-type", "f32"))):
            if name == "long":  # another cache, another model
                plain = self.fleet(TINY, "--nodes", 1, "--node-memory", "64MiB", "--prefixes", 0, "--cache-type", "f32")
                expected = answers(plain)
                plain.stop()
            fleet = self.fleet(TINY, "--nodes", 3, "--node-memory", "64MiB", *options, name=name)
            tokens = expected[0]["usage"]["prompt_tokens"]
            self.assertGreater(tokens, 64)
            for i, (was, now) in enumerate(zip(expected, answers(fleet))):
                self.assertEqual(now["choices"], was["choices"], (name, asked[i]))
                self.assertEqual(now["usage"]["prompt_tokens_details"]["cached_tokens"], 0 if i == 0 else tokens - 1, (name, asked[i]))
                self.assertEqual(now["usage"]["prompt_tokens"], tokens)
            fleet.stop()

    def test_conveniences_give_way_where_pages_are_few(self):
        """Kept prefixes and copies before guesses take pages; nobody is refused for them."""
        expected = self.run_ok("run", TINY, "-p", LONG_PROMPT, "-n", 30)[len(LONG_PROMPT):]
        for name, options in (("drafts", ("--prefixes", 0, "--draft-tokens", 6, "--sequences", 2, "--cache-positions", 512)),
                              ("both", ("--prefixes", 2, "--draft-tokens", 6, "--sequences", 3, "--cache-positions", 1024))):
            fleet = self.fleet(TINY, "--nodes", 2, "--node-memory", "64MiB", "--context", 512, *options, name=name)
            for _ in range(4):
                self.assertEqual(self.answer(fleet, prompt=LONG_PROMPT, max_tokens=30)[0].rstrip(), expected.rstrip())
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                for text, _, _ in pool.map(lambda _: self.answer(fleet, prompt=LONG_PROMPT, max_tokens=30), range(12)):
                    self.assertEqual(text.rstrip(), expected.rstrip())
            fleet.stop()

    def test_a_model_from_a_gguf_file_is_served_with_its_tokenizer(self):
        data = os.environ.get("MYRIAD_TEST_DATA")
        story = pathlib.Path(data or "/nonexistent") / "models/stories260K.gguf"
        if not story.exists():
            self.skipTest("MYRIAD_TEST_DATA has no models/stories260K.gguf")
        directory = self.directory / "stories-q8"
        self.run_ok("quantize", story, directory, "--format", "q8_0")
        for model in (story, directory):
            expected = self.run_ok("run", model, "-p", "Once upon a time", "-n", 30)
            fleet = self.fleet(model, "--nodes", 2, "--node-memory", "64MiB", "--context", 128, name=model.stem)
            name = fleet.status()["model"]
            answer = request(fleet.url, "POST", "/v1/completions",
                             completion(model=name, prompt="Once upon a time", max_tokens=30))
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual("Once upon a time" + answer.json()["choices"][0]["text"].rstrip(), expected.rstrip())
            fleet.stop()

    def test_guesses_change_no_token(self):
        for sampling in ({}, {"temperature": 0.6, "seed": 5}):
            texts = []
            for name, drafts in (("none", 0), ("some", 6)):
                fleet = self.fleet(TINY, "--nodes", 3, "--node-memory", "64MiB", "--draft-tokens", drafts, name=name)
                texts.append(self.answer(fleet, prompt=LONG_PROMPT, max_tokens=120, **sampling)[0])
                fleet.stop()
            self.assertEqual(texts[0], texts[1])

    def test_every_type_of_cache_is_the_same_everywhere(self):
        ids = self.directory / "cache-ids"
        ids.write_text(",".join(map(str, holdout_ids(self, 60))))
        seen = set()
        for kind in ("f32", "bf16", "f16", "i8"):
            options = ("logits", TINY, "--ids-file", ids, "--digest", "--profile", "exact", "--cache-type", kind)
            digest = self.run_ok(*options).strip()
            self.assertEqual(self.run_ok(*options, "--interpreter").strip(), digest, kind)
            self.assertEqual(self.run_ok(*options, "--nodes", 3, "--node-memory", "64MiB").strip(), digest, kind)
            seen.add(digest)
        self.assertEqual(len(seen), 4, "each rounds otherwise")

    def test_a_pool_that_is_too_small_is_refused(self):
        done = self.start("fleet", "up", TINY, "--nodes", 1, "--context", 4096, "--cache-positions", 100, "--fleet", "small")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("one sequence must fit", done.err)


if __name__ == "__main__":
    main()
