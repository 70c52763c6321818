#!/usr/bin/env python3
"""tools/make_random_gguf.py: sizes, tensors, formats and the statistics of what it writes."""
import argparse
import contextlib
import io
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

try:
    import numpy as np
except ImportError:
    print("skipped: this Python has no numpy")
    sys.exit(77)

SOURCE = Path(os.environ["MYRIAD_SOURCE_DIR"])
sys.path[:0] = [str(SOURCE / "tools"), str(SOURCE / "bench/compare")]
import make_random_gguf
from gguf_bytes import bytes_per_token
from gguf_file import Gguf

# Small, but the head is wide enough and some rows are no multiple of 256.
SMALL = {
    "llama-1b": "--hidden 256 --layers 8 --intermediate 512 --heads 4 --kv-heads 2 --vocab 512",
    "moe-1b": "--hidden 256 --layers 2 --heads 4 --kv-heads 2 --experts 8 --top-k 2 --moe-intermediate 128 --vocab 512",
    "k3": "--hidden 256 --layers 5 --intermediate 512 --heads 2 --q-lora 256 --kv-lora 256 --rope-dim 32 --experts 4 --top-k 2 "
          "--latent 256 --moe-intermediate 128 --vocab 600",
}


class RandomGguf(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name) / "model.gguf"

    def make(self, shape, kind, *more):
        argv = ["make_random_gguf.py", str(self.path), "--shape", shape, "--type", kind, *SMALL[shape].split(), *more]
        with mock.patch("sys.argv", argv), contextlib.redirect_stderr(io.StringIO()):
            make_random_gguf.main()
        return self.path.read_bytes()

    def check_values(self, model):
        for name, (dimensions, kind, values) in model.tensors.items():
            self.assertTrue(np.isfinite(values).all(), name)
            if len(dimensions) < 2 or "conv1d" in name:
                continue
            wanted = 1.0 if name == "token_embd.weight" else 1.2 / dimensions[0] ** 0.5
            # the standard error of a deviation is 0.7 / sqrt(values); formats add a little
            within = 0.02 + 4 / len(values) ** 0.5
            self.assertAlmostEqual(float(np.std(values)) / wanted, 1, delta=within, msg=f"{name} {kind}")
            self.assertAlmostEqual(float(np.mean(values)) / wanted, 0, delta=0.01 + 5 / len(values) ** 0.5, msg=f"{name} {kind}")
            self.assertGreater(len(np.unique(values)), 15, name)

    def test_every_type(self):
        for kind in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q6_K"):
            with self.subTest(kind):
                model = Gguf(self.make("llama-1b", kind))
                self.assertEqual({t[1] for t in model.tensors.values() if len(t[0]) == 2}, {kind})
                self.check_values(model)

    def test_llama(self):
        model = Gguf(self.make("llama-1b", "Q4_K_M"))
        self.check_values(model)
        names = {"token_embd.weight", "output.weight", "output_norm.weight"} | {
            f"blk.{layer}.{stem}.weight" for layer in range(8)
            for stem in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")}
        self.assertEqual(set(model.tensors), names)
        types = {name: t[1] for name, t in model.tensors.items()}
        self.assertEqual(types["output.weight"], "Q6_K")
        more = [0, 3, 6, 7]  # of 8 layers: the first eighth, every third after it, the last eighth
        for layer in range(8):
            for stem in ("attn_v", "ffn_down"):
                self.assertEqual(types[f"blk.{layer}.{stem}.weight"], "Q6_K" if layer in more else "Q4_K", layer)
            self.assertEqual(types[f"blk.{layer}.ffn_up.weight"], "Q4_K")
        self.assertEqual(model.tensors["blk.0.attn_k.weight"][0], (256, 128))
        self.assertEqual(model.metadata["llama.attention.head_count_kv"], 2)

    def test_dense_mxfp4(self):
        model = Gguf(self.make("llama-1b", "MXFP4"))
        self.check_values(model)
        for name, (dimensions, kind, _) in model.tensors.items():
            self.assertEqual(kind, "F32" if len(dimensions) == 1 else "Q8_0" if name in ("token_embd.weight", "output.weight") else "MXFP4")

    def test_mixture_of_experts(self):
        model = Gguf(self.make("moe-1b", "Q4_K_M"))
        self.check_values(model)
        self.assertEqual(model.tensors["blk.1.ffn_gate_exps.weight"][:2], ((256, 128, 8), "Q4_K"))
        self.assertEqual(model.tensors["blk.1.ffn_down_exps.weight"][:2], ((128, 256, 8), "Q8_0"))  # short rows of Q6_K
        self.assertEqual(model.tensors["blk.0.ffn_down_exps.weight"][:2], ((128, 256, 8), "Q5_0"))  # short rows of Q4_K
        self.assertEqual(model.tensors["blk.1.ffn_gate_inp.weight"][:2], ((256, 8), "F32"))

    def test_k3(self):
        for kind in ("MXFP4", "Q4_0"):
            model = Gguf(self.make("k3", kind))
            self.check_values(model)
            self.assertEqual(model.metadata["kimi-k3.attention.head_count_kv"], [0, 0, 0, 1, 1])
            self.assertEqual(len(model.tensors), 4 + 21 + 2 * 29 + 2 * 24)  # as many as the real thing has in such layers
            self.assertEqual(model.tensors["blk.1.ffn_gate_exps.weight"][:2], ((256, 128, 4), kind))
            self.assertEqual(model.tensors["blk.1.ffn_down_exps.weight"][:2], ((128, 256, 4), kind))
            self.assertEqual(model.tensors["blk.3.attn_k_b.weight"][:2], ((128, 256, 2), kind))
            self.assertEqual(model.tensors["blk.1.attn_q.weight"][:2], ((256, 256), "Q8_0" if kind == "MXFP4" else kind))
            self.assertTrue((model.tensors["blk.0.ssm_a"][2] < 0).all())

    def test_vocabularies(self):
        for shape in SMALL:
            metadata = Gguf(self.make(shape, "Q8_0")).metadata
            tokens = metadata["tokenizer.ggml.tokens"]
            self.assertEqual(len(tokens), 600 if shape == "k3" else 512)
            self.assertEqual(len(set(tokens)), len(tokens))
            self.assertEqual(len(metadata["tokenizer.ggml.token_type"]), len(tokens))
            for merge in metadata.get("tokenizer.ggml.merges", []):
                left, right = merge.split(" ")
                self.assertLessEqual({left, right, left + right}, set(tokens))

    def test_same_seed_same_bytes(self):
        first = self.make("moe-1b", "Q4_0")
        self.assertEqual(first, self.make("moe-1b", "Q4_0"))
        other = self.make("moe-1b", "Q4_0", "--seed", "2")
        self.assertEqual(len(first), len(other))
        self.assertNotEqual(first, other)

    def test_bytes_of_a_token(self):
        def size(t):  # of all values, with padding
            return -(-{"F32": 4 * 32, "Q4_0": 18}[t[1]] * len(t[2]) // 32 // 32) * 32
        for shape, share in (("llama-1b", 1), ("moe-1b", 0.25)):
            tensors = Gguf(self.make(shape, "Q4_0")).tensors
            wanted = sum(size(t) * (share if "_exps" in n else 1) for n, t in tensors.items() if n != "token_embd.weight")
            self.assertAlmostEqual(bytes_per_token(self.path), wanted, delta=1, msg=shape)

    def test_usage(self):
        for words, arguments in (("no such size", ["--latent", "64"]), ("--heads", ["--heads", "0"]), ("--vocab", ["--vocab", "12"]),
                                 ("rows of 100", ["--intermediate", "100"])):
            with self.assertRaises(SystemExit) as end, contextlib.redirect_stderr(io.StringIO()) as shown:
                argv = ["make_random_gguf.py", str(self.path), "--shape", "llama-1b", "--type", "Q4_0", *arguments]
                with mock.patch("sys.argv", argv):
                    make_random_gguf.main()
            self.assertIn(words, shown.getvalue() + str(end.exception.code))
            self.assertFalse(self.path.exists())

    def test_sizes_of_the_real_ones(self):
        for shape, kind, megabytes in (("llama-1b", "Q4_0", 620), ("llama-1b", "Q8_0", 1170), ("llama-1b", "Q4_K_M", 668)):
            sizes = {name: None for name in make_random_gguf.SIZES} | {"experts": 0} | make_random_gguf.SHAPES[shape]
            o = argparse.Namespace(shape=shape, type=kind, vocab=32000, context=4096, **sizes)
            planned, total = make_random_gguf.plan(o)
            total += len(make_random_gguf.header(o, planned))
            self.assertAlmostEqual(total / 1e6, megabytes, delta=0.005 * megabytes)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
