#!/usr/bin/env python3
"""GGUF files through the whole program: text, perplexity, fleets, the API. The data is not part of the project: MYRIAD_TEST_DATA names it."""
import json
import os
import pathlib
import struct
import sys

from harness import SHARED, Case, main, read_json

STORIES = os.path.join(SHARED or "", "models/stories260K.gguf")
STORIES_Q8 = os.path.join(SHARED or "", "models/stories260K-q8_0.gguf")
STORY = ("Once upon a time, there was a little girl named Lily. She loved to play outside in the park. ")  # llama.cpp's greedy text


class Stories(Case):
    def test_the_story_that_llama_cpp_tells(self):
        for model in (STORIES, STORIES_Q8):
            for extra in ((), ("--nodes", 3), ("--profile", "exact")):
                text = self.run_ok("run", model, "-p", "Once upon a time", "-n", 60, *extra)
                self.assertTrue(text.startswith(STORY), text)

    def test_control_tokens_are_no_text(self):
        """Told to go on, the model ends its story and begins another one, by tokens that are not shown."""
        text = self.run_ok("run", STORIES, "-p", "Once upon a time", "-n", 500, "--ignore-end")
        self.assertEqual(text.count("Once upon a time"), 2, text)
        self.assertNotRegex(text, "</?s>")

    def test_perplexity_by_llama_cpps_method(self):
        for model in (STORIES, STORIES_Q8):
            out = json.loads(self.run_ok("perplexity", model, "-f", os.path.join(SHARED, "corpora/tinystories_sample.txt"), "--window", 256,
                                         "--windows", 40, "--method", "llama.cpp"))
            self.assertAlmostEqual(out["perplexity"], 3.95, delta=0.02)

    def test_tokens_go_there_and_back(self):
        texts = ["Once upon a time", " two  spaces", "naïve café – 日本語 🙂", "line\nbreak\ttab", ""]
        ids = self.run_ok("tokenize", STORIES, input="".join(json.dumps(t) + "\n" for t in texts))
        back = self.run_ok("tokenize", STORIES, "--decode", input=ids).splitlines()
        self.assertEqual([json.loads(line) for line in back], texts)


class Refusals(Case):
    def test_types_that_cannot_be_run(self):
        """A matrix in the last layer is of a type that nobody knows: known before anything is loaded."""
        model = self.directory / "odd.gguf"
        data = bytearray(pathlib.Path(STORIES).read_bytes())
        name = b"blk.4.ffn_down.weight"
        at = data.index(struct.pack("<Q", len(name)) + name) + 8 + len(name)
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0]
        struct.pack_into("<I", data, at, 99)
        model.write_bytes(data)
        shown = self.start("inspect", model)
        self.assertEqual(shown.returncode, 0)
        self.assertIn("type 99 (cannot be run)", shown.out)
        self.assertIn("cannot be run", shown.err)
        self.assertIn("blk.4.ffn_down.weight", shown.err)
        types = json.loads(self.run_ok("inspect", model, "--json"))["types"]
        self.assertEqual({name: t["runs"] for name, t in types.items()}, {"F32": True, "type 99": False})
        for command in (["run", "-p", "x"], ["logits", "--ids", "1"], ["logits", "--ids", "1", "--nodes", 2], ["cut", "--dry-run"],
                        ["perplexity", "-f", model], ["fleet", "up", "--http", "127.0.0.1:0"]):
            words = command[:1] if command[0] != "fleet" else command[:2]
            done = self.assert_fails(3, ["blk.4.ffn_down.weight is of type 99, a type", "Q8_0"], *words, model, *command[len(words):])
            self.assertEqual(done.out, "")

    def test_chat_format_without_a_template(self):
        for model in (STORIES, os.path.join(SHARED, "golden/gguf/qwen3-dense-F32.gguf")):
            self.assert_fails(3, ["neither a chat template nor", "Kimi"], "chat-format", model, input="{}\n")


class Fleets(Case):
    def test_every_type_is_cut_and_run_like_k3(self):
        golden = read_json(os.path.join(SHARED, "golden/gguf/golden.json"))["files"]
        for name in ("llama-dense-Q4_K_M.gguf", "qwen3moe-moe-Q8_0.gguf", "deepseek2-moe-Q4_K_M.gguf", "kimi-k3-moe-MXFP4.gguf"):
            model = os.path.join(SHARED, "golden/gguf", name)
            ids = ",".join(map(str, golden[name]["ids"]))
            local = self.run_ok("logits", model, "--ids", ids, "--digest")
            self.assertEqual(self.run_ok("logits", model, "--ids", ids, "--digest", "--interpreter"), local)
            self.assertEqual(self.run_ok("logits", model, "--ids", ids, "--digest", "--nodes", 5, "--cut-seed", 11, "--prefill-chunk", 7), local)

    def test_inspect_names_the_types(self):
        out = json.loads(self.run_ok("inspect", os.path.join(SHARED, "golden/gguf/llama-dense-Q4_K_M.gguf"), "--json"))
        self.assertEqual(out["architecture"], "llama")
        self.assertIn("Q4_K", out["types"])
        self.assertGreater(out["categories"]["gqa_attention"]["bytes"], 0)


if __name__ == "__main__":
    if not SHARED or not os.path.isdir(SHARED):
        print("skipped: MYRIAD_TEST_DATA does not name the folder with the shared test data")
        sys.exit(77)
    main()
