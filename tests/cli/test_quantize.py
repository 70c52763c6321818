#!/usr/bin/env python3
"""Quantising: what it costs the trained model, budgets, interrupted runs, memory, refusals."""
import importlib.util
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

from harness import MYRIAD, RANDOM_K3, SHARED, SOURCE, TINY, Case, main

STORIES = os.path.join(SHARED or "", "models/stories260K.gguf")
TEXT = TINY / "holdout.txt"
MIB = 1 << 20


def files_of(directory):
    return {p.name: p.read_bytes() for p in sorted(directory.iterdir())}


def weight_bytes(directory):
    return sum(p.stat().st_size for p in directory.glob("*.safetensors"))


class Bars(Case):
    """On tiny-k3: the loss of the original on its hold-out text is known (EXPECTED.json)."""

    def quantize(self, out, *options):
        done = self.start("quantize", TINY, self.directory / out, "--json", *options)
        self.assertEqual(done.returncode, 0, done.err)
        return json.loads(done.out)

    def test_eval_is_what_perplexity_says(self):
        report = self.quantize("eval", "--format", "int8-group", "--eval", TEXT)
        found = report["eval"]
        expected = json.loads((TINY / "EXPECTED.json").read_text())["perplexity"]
        self.assertAlmostEqual(found["original_perplexity"] / expected, 1, delta=0.001)
        self.assertAlmostEqual(found["quantized_perplexity"] / found["original_perplexity"], 1, delta=0.002)
        self.assertLess(found["mean_kl"], 0.01)
        self.assertGreater(found["mean_kl"], 0)
        alone = json.loads(self.run_ok("perplexity", self.directory / "eval", "-f", TEXT))
        self.assertEqual(alone["perplexity"], found["quantized_perplexity"])
        total = report["total"]
        self.assertEqual(total["before"], sum(t["before"] for t in report["tensors"]) + 46_592)
        self.assertLess(total["after"], 0.61 * total["before"])
        self.assertGreater(total["sqnr_db"], 40)
        changed = [t for t in report["tensors"] if "mse" in t]
        self.assertEqual({t["to"] for t in changed}, {"q8_0"})
        self.assertEqual(sum(t["to"] == "mxfp4" for t in report["tensors"]), 192)  # experts stay as they are

    def test_int4_per_group(self):
        for name, windows in (("int4-group", 0), ("int4-zero", 30)):  # 0: all of them
            found = self.quantize(name, "--format", name, "--eval", TEXT, "--eval-windows", windows)["eval"]
            self.assertLess(found["quantized_perplexity"], 1.02 * found["original_perplexity"], name)

    def test_mixed_meets_its_budget_and_beats_int4(self):
        """Calibrated on the text's end, compared on its beginning."""
        text = TEXT.read_bytes()
        end = self.directory / "end.txt"
        end.write_bytes(text[-20_000:])
        options = ("--eval", TEXT, "--eval-windows", 30)
        plain = self.quantize("plain", "--format", "int4-group", *options)
        budget = weight_bytes(self.directory / "plain")
        mixed = self.quantize("mixed", "--format", "mixed", "--budget", budget, "--calibrate", end,
                              "--calibrate-windows", 1, *options)
        self.assertLessEqual(weight_bytes(self.directory / "mixed"), budget)
        self.assertGreaterEqual(weight_bytes(self.directory / "mixed"), 0.99 * budget)
        self.assertLess(mixed["eval"]["quantized_perplexity"], plain["eval"]["quantized_perplexity"])
        self.assertLess(mixed["eval"]["mean_kl"], 0.8 * plain["eval"]["mean_kl"])
        self.assertGreater(len({t["to"] for t in mixed["tensors"] if "mse" in t}), 1)

    def test_runs_anywhere_with_the_same_bits(self):
        self.quantize("zero", "--format", "i4_zero")
        model, ids = self.directory / "zero", ("--ids", "5,17,900,31,4000,2", "--digest")
        local = self.run_ok("logits", model, *ids)
        self.assertEqual(self.run_ok("logits", model, *ids, "--interpreter"), local)
        self.assertEqual(self.run_ok("logits", model, *ids, "--nodes", 2), local)
        shown = json.loads(self.run_ok("inspect", model, "--json"))
        original = json.loads(self.run_ok("inspect", TINY, "--json"))
        self.assertEqual(shown["total"]["parameters"], original["total"]["parameters"])
        self.assertEqual({k: v["parameters"] for k, v in shown["categories"].items()},
                         {k: v["parameters"] for k, v in original["categories"].items()})


class Demo(Case):
    def test_finer_scales_win(self):
        demo = json.loads(self.run_ok("quantize", "--demo", "--json"))
        self.assertEqual(demo["bytes"], 64 * MIB)
        tensor, channel, group, four, zero = demo["normal"]
        self.assertEqual(tensor["bytes"], 16 * MIB + 4)
        self.assertGreater(tensor["mse"], 1.5 * channel["mse"])
        self.assertGreater(channel["mse"], 2 * group["mse"])
        self.assertGreater(four["mse"], zero["mse"])
        # uniform rounding: a twelfth of the squared step, which is the largest value over 127
        step = 5.4 * 0.02 / 127
        self.assertAlmostEqual(tensor["mse"] / (step * step / 12), 1, delta=0.15)
        self.assertGreater(demo["with_outlier"][0]["mse"], 50 * tensor["mse"])
        self.assertLess(demo["with_outlier"][2]["mse"], 1.01 * group["mse"])


@unittest.skipUnless(importlib.util.find_spec("numpy"), "numpy is missing, which tools/make_random_k3.py needs")
class Interrupted(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.directory / "large"
        subprocess.run([sys.executable, "-B", str(SOURCE / "tools/make_random_k3.py"), str(cls.model), "--hidden", "1024", "--layers", "2",
                        "--experts", "4", "--top-k", "2", "--vocab", "16384"], check=True, stdout=subprocess.DEVNULL)

    def killed_and_continued(self, model, suffix):
        arguments = ("--format", "q4_0", "--threads", 1, "--json")
        reference, out = self.directory / ("whole" + suffix), self.directory / ("killed" + suffix)
        whole = self.run_ok("quantize", model, reference, *arguments)
        partial, journal = self.directory / f"{out.name}.partial", self.directory / f"{out.name}.journal"
        command = [MYRIAD, "quantize", str(model), str(out), *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment)
        deadline = time.monotonic() + 60
        while not journal.exists() or journal.read_bytes().count(b'"tensor"') < 4:  # the fifth is being worked on
            self.assertIsNone(process.poll(), "it was done before it could be killed")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.002)
        busy = self.start("quantize", model, out, *arguments)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertEqual(busy.returncode, 4, busy.err)
        self.assertIn("another process", busy.err)
        self.assertTrue(partial.exists())
        self.assertFalse(out.exists())
        self.assertGreater(sum(f.stat().st_size for f in partial.iterdir()) if partial.is_dir() else partial.stat().st_size, 10_000)
        self.assertEqual(self.run_ok("quantize", model, out, *arguments), whole)  # errors too, of tensors that the killed run wrote
        self.assertFalse(partial.exists() or journal.exists())
        return reference, out

    def test_directory_killed_and_continued(self):
        reference, out = self.killed_and_continued(self.model, "")
        self.assertEqual(files_of(out), files_of(reference))

    def test_killed_while_it_compares(self):
        """OUT is whole then, and only the comparison is done again."""
        for name in ("compared", "compared.gguf"):
            arguments = ("--format", "q4_0", "--eval", TEXT, "--eval-windows", 40, "--threads", 1)
            reference, out = self.directory / f"reference-{name}", self.directory / name
            whole = self.run_ok("quantize", TINY, reference, *arguments)
            process = subprocess.Popen([MYRIAD, "quantize", str(TINY), str(out), *map(str, arguments)], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, env=self.environment)
            deadline = time.monotonic() + 60
            while not out.exists():
                self.assertIsNone(process.poll(), "it was done before it could be killed")
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
            process.wait()
            journal = self.directory / f"{name}.journal"
            self.assertTrue(journal.exists())
            self.assert_fails(2, ["exists already"], "quantize", TINY, out, "--format", "q8_0")
            again = self.start("quantize", TINY, out, *arguments)
            self.assertEqual(again.returncode, 0, again.err)
            self.assertEqual(again.out, whole)
            self.assertIn("is whole already", again.err)
            self.assertFalse(journal.exists())
            self.assert_fails(2, ["exists already"], "quantize", TINY, out, *arguments)

    def test_in_is_not_out(self):
        self.assert_fails(2, ["both IN and OUT"], "quantize", TINY, f"{TINY}/", "--format", "q4_0")

    def test_gguf_from_a_directory_killed_and_continued(self):
        reference, out = self.killed_and_continued(self.model, ".gguf")
        self.assertEqual(out.read_bytes(), reference.read_bytes())
        reference.unlink()
        out.unlink()

    def test_gguf_killed_and_continued(self):
        model = self.directory / "model.gguf"
        subprocess.run([sys.executable, "-B", str(SOURCE / "tools/make_random_gguf.py"), str(model), "--shape", "llama-0.4b", "--type", "BF16",
                        "--hidden", "512", "--layers", "6", "--intermediate", "2048", "--vocab", "4000"], check=True, stdout=subprocess.DEVNULL)
        reference, out = self.killed_and_continued(model, ".gguf")
        self.assertEqual(out.read_bytes(), reference.read_bytes())

    def test_memory_is_a_few_tensors(self):
        """The model has 100 MB and more, its largest matrix 32 MB."""
        size = sum(p.stat().st_size for p in self.model.glob("*.safetensors"))
        self.assertGreater(size, 100e6)
        script = ("import resource, subprocess, sys\n"
                  "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)\n"
                  "sys.stderr.write(done.stderr.decode())\n"
                  "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
                  "sys.exit(done.returncode)")
        for out, name in (("memory", "int8-tensor"), ("memory.gguf", "q8_0")):
            done = subprocess.run([sys.executable, "-c", script, MYRIAD, "quantize", str(self.model), str(self.directory / out), "--format", name],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            self.assertLess(int(done.stdout) * 1024, 48 * MIB)
        shutil.rmtree(self.directory / "memory")
        (self.directory / "memory.gguf").unlink()


def write_llama(directory):
    """A small random model of another family, with tied embeddings: 64 wide, two layers, 128 tokens."""
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2}))
    shapes = {"model.embed_tokens.weight": (128, 64), "model.norm.weight": (64,)}
    for layer in (f"model.layers.{i}." for i in range(2)):
        shapes |= {layer + "input_layernorm.weight": (64,), layer + "post_attention_layernorm.weight": (64,),
                   layer + "self_attn.q_proj.weight": (64, 64), layer + "self_attn.k_proj.weight": (32, 64),
                   layer + "self_attn.v_proj.weight": (32, 64), layer + "self_attn.o_proj.weight": (64, 64),
                   layer + "mlp.gate_proj.weight": (96, 64), layer + "mlp.up_proj.weight": (96, 64), layer + "mlp.down_proj.weight": (64, 96)}
    draw, header, blobs, at = random.Random(1), {}, [], 0
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = [draw.gauss(0, 0.15) if len(shape) == 2 else 1.0 for _ in range(count)]
        blob = b"".join(struct.pack("<f", v)[2:] for v in values)  # the upper half of an f32 is a bf16
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


class GgufFromADirectory(Case):
    """The trained model: its losses are those of the directory's formats, its texts are read alike."""

    def test_tiny_k3(self):
        windows = ("--window", 128, "--windows", 20)
        original = json.loads(self.run_ok("perplexity", TINY, "-f", TEXT, *windows))["perplexity"]
        for name, limit in (("keep", 1.0005), ("q8_0", 1.003), ("q4_k", 1.08), ("mxfp4", 1.12)):
            out, as_directory = self.directory / f"{name}.gguf", self.directory / name
            report = json.loads(self.run_ok("quantize", TINY, out, "--format", name, "--json"))
            self.assertAlmostEqual(out.stat().st_size, report["total"]["after"], delta=170_000)
            found = json.loads(self.run_ok("perplexity", out, "-f", TEXT, *windows))["perplexity"]
            self.assertLess(found, limit * original, name)
            self.assertGreater(found, 0.99 * original, name)
            if name == "q8_0":
                self.run_ok("quantize", TINY, as_directory, "--format", name)
                beside = json.loads(self.run_ok("perplexity", as_directory, "-f", TEXT, *windows))["perplexity"]
                self.assertLess(abs(found / beside - 1), 1e-3)
        text = json.dumps("In the beginning  <|open|> 12345 \u4e2d\n")
        for options in ((), ("--specials",)):
            self.assertEqual(self.run_ok("tokenize", self.directory / "keep.gguf", *options, input=text),
                             self.run_ok("tokenize", TINY, *options, input=text))
        self.assertEqual(self.run_ok("run", self.directory / "keep.gguf", "-p", "In the beginning", "-n", 24),
                         self.run_ok("run", TINY, "-p", "In the beginning", "-n", 24))
        request = json.dumps({"messages": [{"role": "user", "content": "Hello <|close|>"}]})
        self.assertEqual(self.run_ok("chat-format", self.directory / "keep.gguf", input=request),
                         self.run_ok("chat-format", TINY, input=request))

    def test_mixed_meets_its_budget(self):
        out = self.directory / "mixed.gguf"
        report = json.loads(self.run_ok("quantize", TINY, out, "--format", "mixed", "--budget", 4_000_000, "--calibrate", TEXT, "--window", 64,
                                        "--calibrate-windows", 1, "--json", "--eval", TEXT, "--eval-windows", 10))
        self.assertLessEqual(out.stat().st_size, 4_000_000)
        self.assertGreater(out.stat().st_size, 0.99 * 4_000_000)
        self.assertLess(report["eval"]["quantized_perplexity"], 1.05 * report["eval"]["original_perplexity"])


class OtherFamilies(Case):
    def test_llama(self):
        model = self.directory / "llama"
        write_llama(model)
        ids = ("--ids", "5,17,90,31,2", "--json")
        original = json.loads(self.run_ok("logits", model, *ids))["logits"]
        for name, limit in (("q8_0", 0.03), ("int8-tensor", 0.06), ("i4_zero", 0.4), ("mxfp4", 0.7)):
            out = self.directory / f"llama-{name}"
            report = json.loads(self.run_ok("quantize", model, out, "--format", name, "--json"))
            self.assertEqual(sum("mse" in t for t in report["tensors"]), 15)
            found = json.loads(self.run_ok("logits", out, *ids))["logits"]
            pairs = [(a, b) for x, y in zip(original, found) for a, b in zip(x, y)]
            error = sum((a - b) ** 2 for a, b in pairs) / sum(a * a for a, _ in pairs)
            self.assertLess(error ** 0.5, limit, name)
            self.assertEqual(self.run_ok("logits", out, "--ids", "5,17,90", "--digest"),
                             self.run_ok("logits", out, "--ids", "5,17,90", "--digest", "--interpreter"))


    def test_llama_as_gguf(self):
        """Rows of another order, tied embeddings, no tokenizer."""
        model, out = self.directory / "tied", self.directory / "tied.gguf"
        write_llama(model)
        report = json.loads(self.run_ok("quantize", model, out, "--format", "q8_0", "--json"))
        self.assertEqual(sum("mse" in t for t in report["tensors"]), 15)
        self.run_ok("quantize", model, self.directory / "same", "--format", "q8_0")
        found, beside = (json.loads(self.run_ok("logits", m, "--ids", "5,17,90,31,2", "--json", "--profile", "exact"))["logits"]
                         for m in (out, self.directory / "same"))
        top = max(abs(b) for y in beside for b in y)
        self.assertLess(max(abs(a - b) for x, y in zip(found, beside) for a, b in zip(x, y)), 1e-5 * top)


class Refusals(Case):
    def test_arguments(self):
        out = self.directory / "out"
        text = self.directory / "short.txt"
        text.write_text("too short")
        mixed = ["quantize", TINY, out, "--format", "mixed"]
        for code, words, command in [
                (2, ["IN, OUT and --format"], ["quantize", TINY]),
                (2, ["--format"], ["quantize", TINY, out, "--format", "int3"]),
                (2, ["--budget", "--calibrate"], mixed),
                (2, ["--budget"], ["quantize", TINY, out, "--format", "q4_0", "--budget", "4bpw"]),
                (2, ["--budget", "many"], mixed + ["--budget", "many", "--calibrate", TEXT]),
                (2, ["short.txt", "tokens"], mixed + ["--budget", "4.5bpw", "--calibrate", text]),
                (3, ["none.txt"], mixed + ["--budget", "4.5bpw", "--calibrate", self.directory / "none.txt"]),
                (3, ["none.txt"], ["quantize", TINY, out, "--format", "q4_0", "--eval", self.directory / "none.txt"]),
                (2, ["short.txt", "tokens"], ["quantize", TINY, out, "--format", "q4_0", "--eval", text]),
                (2, ["too small", "least"], mixed + ["--budget", "1MB", "--calibrate", TEXT]),
                (2, ["exists already"], ["quantize", TINY, self.directory, "--format", "q4_0"]),
                (3, ["no directory"], ["quantize", TINY, self.directory / "no/where", "--format", "q4_0"]),
                (3, ["out.gguf", "no GGUF file can hold"], ["quantize", TINY, self.directory / "out.gguf", "--format", "int8-channel"]),
                (3, ["out.GGUF", "no GGUF file can hold"], ["quantize", TINY, self.directory / "out.GGUF", "--format", "I4_ZERO"]),
                (3, ["nothing-here"], ["quantize", self.directory / "nothing-here", out, "--format", "q4_0"]),
                (2, ["--demo"], ["quantize", TINY, out, "--demo"]),
        ]:
            with self.subTest(command=command):
                self.assert_fails(code, words, *command)
                self.assertEqual(self.start(*command).out, "")
                self.assertEqual([p.name for p in self.directory.iterdir() if p.name.startswith("out")], [])  # no journal either

    def test_formats_in_capitals(self):
        self.run_ok("quantize", RANDOM_K3, self.directory / "lower", "--format", "q4_0")
        self.run_ok("quantize", RANDOM_K3, self.directory / "upper", "--format", "Q4_0")
        self.assertEqual(files_of(self.directory / "lower"), files_of(self.directory / "upper"))

    def test_damaged_weights(self):
        model = self.directory / "damaged"
        shutil.copytree(RANDOM_K3, model)
        shard = next(iter(sorted(model.glob("*.safetensors"))))
        data = bytearray(shard.read_bytes())
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        name = next(n for n, e in header.items() if n.endswith("self_attn.q_proj.weight"))
        begin = 8 + length + header[name]["data_offsets"][0]
        data[begin:begin + 2] = b"\x80\x7f"  # infinity
        shard.write_bytes(data)
        self.assert_fails(3, [name.removeprefix("language_model.").removesuffix(".weight"), "row 0 column 0", "inf"],
                          "quantize", model, self.directory / "out", "--format", "int8-channel")

    def test_damaged_gguf(self):
        """Also in what is only copied."""
        whole, damaged = self.directory / "whole.gguf", self.directory / "damaged.gguf"
        self.run_ok("quantize", RANDOM_K3, whole, "--format", "q8_0")
        data = whole.read_bytes()
        for what in (b"output_norm.weight", b"blk.0.attn_q.weight"):
            at, offsets = data.index(what) - 8, []
            while 0 < (length := struct.unpack_from("<Q", data, at)[0]) < 100:  # to the end of the list of tensors
                dimensions = struct.unpack_from("<I", data, at + 8 + length)[0]
                at += 8 + length + 4 + 8 * dimensions + 4 + 8
                offsets.append(struct.unpack_from("<Q", data, at - 8)[0])
            begin = (at + 31) // 32 * 32 + offsets[0]
            spoiled = bytearray(data)
            spoiled[begin:begin + 4] = b"\x00\x7e\xc0\x7f" if what.endswith(b"q.weight") else b"\x00\x00\xc0\x7f"
            damaged.write_bytes(spoiled)
            with self.subTest(tensor=what):
                self.assert_fails(3, [what.decode(), "no finite number"], "quantize", damaged, self.directory / "out.gguf", "--format", "keep")

    def test_damaged_scales(self):
        """Of a quantised directory, when it is run."""
        out = self.directory / "scales"
        self.run_ok("quantize", RANDOM_K3, out, "--format", "q4_0")
        shard = out / "model.safetensors"
        data = bytearray(shard.read_bytes())
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        name = next(n for n in header if n.endswith("o_proj.weight_q4_0"))
        begin = 8 + length + header[name]["data_offsets"][0]
        data[begin:begin + 2] = b"\x00\x7e"  # NaN
        shard.write_bytes(data)
        self.assert_fails(3, [name.removeprefix("language_model.").removesuffix(".weight_q4_0")], "logits", out, "--ids", "1,2")


@unittest.skipUnless(os.path.exists(STORIES), "MYRIAD_TEST_DATA does not name the folder with the shared test data")
class Gguf(Case):
    def test_a_file_from_a_file(self):
        original = json.loads(self.run_ok("perplexity", STORIES, "-f", TEXT, "--window", 64, "--windows", 40))["perplexity"]
        for name, limit in (("q8_0", 1.005), ("q4_0", 1.25), ("q4_k", 1.25), ("mxfp4", 1.35)):
            out = self.directory / f"{name}.gguf"
            report = json.loads(self.run_ok("quantize", STORIES, out, "--format", name, "--json"))
            self.assertLess(report["total"]["after"], 0.5 * report["total"]["before"])
            self.assertAlmostEqual(out.stat().st_size, report["total"]["after"], delta=20_000)
            found = json.loads(self.run_ok("perplexity", out, "-f", TEXT, "--window", 64, "--windows", 40))["perplexity"]
            self.assertLess(found, limit * original, name)
        self.assertEqual(self.run_ok("quantize", STORIES, self.directory / "upper.GGUF", "--format", "Q4_0", "--json"),
                         self.run_ok("quantize", STORIES, self.directory / "lower.gguf", "--format", "q4_0", "--json"))
        self.assertEqual((self.directory / "upper.GGUF").read_bytes(), (self.directory / "lower.gguf").read_bytes())
        self.assertEqual(self.run_ok("tokenize", self.directory / "upper.GGUF", input='"a"'), self.run_ok("tokenize", STORIES, input='"a"'))
        self.assert_fails(3, ["no GGUF file can hold"], "quantize", STORIES, self.directory / "x.gguf", "--format", "int8-channel")

    def test_a_directory_from_a_file(self):
        """What changes its layout but not its type keeps every bit; formats that no GGUF file can hold find their place."""
        for name in ("llama-dense-Q8_0", "llama-moe-Q8_0", "qwen2-dense-Q8_0", "qwen3moe-moe-Q8_0"):
            model, out = os.path.join(SHARED, f"golden/gguf/{name}.gguf"), self.directory / name
            self.run_ok("quantize", model, out, "--format", "q8_0")
            ids = ("--ids", "1,2,3,44,5", "--digest")
            self.assertEqual(self.run_ok("logits", out, *ids), self.run_ok("logits", model, *ids), name)
        for name in ("kimi-k3-moe-MXFP4", "deepseek2-moe-Q8_0"):  # MLA, whose keys and values come together
            model, out = os.path.join(SHARED, f"golden/gguf/{name}.gguf"), self.directory / name
            report = json.loads(self.run_ok("quantize", model, out, "--format", "q8_0", "--json"))
            total = json.loads(self.run_ok("inspect", model, "--json"))["total"]
            self.assertEqual(report["total"]["before"], total["bytes"], name)
            first, second = (json.loads(self.run_ok("logits", m, "--ids", "1,2,3,44,5", "--json"))["logits"] for m in (model, out))
            pairs = [(a, b) for x, y in zip(first, second) for a, b in zip(x, y)]
            self.assertLess(sum((a - b) ** 2 for a, b in pairs) / sum(a * a for a, _ in pairs), 0.05 ** 2, name)
        out = self.directory / "stories"
        report = json.loads(self.run_ok("quantize", STORIES, out, "--format", "int8-channel", "--json", "--eval", TEXT, "--window", 64,
                                        "--eval-windows", 40))
        self.assertLess(report["eval"]["quantized_perplexity"], 1.01 * report["eval"]["original_perplexity"])
        self.assertTrue(self.run_ok("run", out, "-p", "Once upon a time", "-n", 20).startswith("Once upon a time, there was a little girl"))


if __name__ == "__main__":
    main()
