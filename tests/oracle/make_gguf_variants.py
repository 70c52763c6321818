#!/usr/bin/env python3
"""Fills in what llama.cpp makes of each case of tests/data/gguf_variants.json.

    tests/oracle/make_gguf_variants.py GOLDEN

GOLDEN is the folder golden/gguf of the shared test data. A case names one of its files, changes of its metadata and
tensors, and, written by this script, the 24 most probable tokens after `ids` with their log-probabilities, by llama.cpp
(npm node-llama-cpp as bench/compare/package-lock.json pins it: `npm ci` there first) on the same weights expanded to
F32, with an F32 cache and one thread. Needs Python 3 with numpy, and Node.js. The build and the tests need neither:
src/engine/gguf_variants_test.cc reads the numbers that are there.
"""
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = ROOT / "tests/data/gguf_variants.json"
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
CODES = {"u32": 4, "f32": 6, "bool": 7, "string": 8}
STRING, ARRAY, F32, Q8_0 = 8, 9, 0, 8

EVALUATE = """
import {readFileSync} from "node:fs";
const {getLlama} = await import(process.argv[2]);
const llama = await getLlama({gpu: false, build: "never", usePrebuiltBinaries: true, skipDownload: true, maxThreads: 1,
                              logLevel: "error"});
const {ids, models} = JSON.parse(readFileSync(0, "utf8"));
for (const path of models) {
  const model = await llama.loadModel({modelPath: path, gpuLayers: 0});
  const context = await model.createContext({contextSize: 256, batchSize: 256, threads: 1, flashAttention: false,
                                             sequences: 1, experimentalKvCacheKeyType: "F32",
                                             experimentalKvCacheValueType: "F32"});
  const result = await context.getSequence().controlledEvaluate(
      ids.map((id, i) => i + 1 < ids.length ? id : [id, {generateNext: {probabilities: true}}]));
  console.log(JSON.stringify([...result[ids.length - 1].next.probabilities.entries()]));
  await context.dispose();
  await model.dispose();
}
process.exit(0);
"""


class Reader:
    def __init__(self, path):
        self.bytes = path.read_bytes()
        self.at = 8
        tensors, keys = self.number("Q"), self.number("Q")
        self.metadata = {}
        for _ in range(keys):
            key, code = self.string(), self.number("I")
            self.metadata[key] = (code, self.value(code))
        infos = []
        for _ in range(tensors):
            name, rank = self.string(), self.number("I")
            dims = [self.number("Q") for _ in range(rank)]
            infos.append((name, dims, self.number("I"), self.number("Q")))
        data = -(-self.at // 32) * 32
        self.tensors = {}
        for name, dims, code, offset in infos:
            self.tensors[name] = (dims, self.expanded(code, math.prod(dims), data + offset))

    def number(self, form):
        value = struct.unpack_from("<" + form, self.bytes, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def string(self):
        n = self.number("Q")
        self.at += n
        return self.bytes[self.at - n:self.at]

    def value(self, code):
        if code == STRING:
            return self.string()
        if code == ARRAY:
            element, n = self.number("I"), self.number("Q")
            return element, [self.value(element) for _ in range(n)]
        return self.number(FORMATS[code])

    def expanded(self, code, n, at):
        if code == F32:
            return np.frombuffer(self.bytes, "<f4", n, at)
        assert code == Q8_0
        blocks = np.frombuffer(self.bytes, np.uint8, n // 32 * 34, at).reshape(-1, 34)
        scales = blocks[:, :2].copy().view("<f2").astype("<f4")
        return (blocks[:, 2:].copy().view(np.int8) * scales).astype("<f4").reshape(-1)


def write(path, metadata, tensors):
    def string(text):
        return struct.pack("<Q", len(text)) + text

    def value(code, v):
        if code == STRING:
            return string(v)
        if code == ARRAY:
            return struct.pack("<IQ", v[0], len(v[1])) + b"".join(value(v[0], x) for x in v[1])
        return struct.pack("<" + FORMATS[code], v)

    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
    for key, (code, v) in metadata.items():
        out += string(key) + struct.pack("<I", code) + value(code, v)
    offset = 0
    for name, (dims, values) in tensors.items():
        out += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", F32, offset)
        offset += -(-values.nbytes // 32) * 32
    out += b"\0" * (-len(out) % 32)
    for _, values in tensors.values():
        out += values.tobytes() + b"\0" * (-values.nbytes % 32)
    path.write_bytes(out)


def change(case, metadata, tensors):
    architecture = metadata[b"general.architecture"][1]
    for key, typed in case.get("set", {}).items():
        key = architecture + b"." + key.encode()
        metadata.pop(key, None)
        if typed is not None:
            (kind, v), = typed.items()
            metadata[key] = (CODES[kind], v.encode() if kind == "string" else v)
    for part in case.get("drop", []):  # every tensor whose name contains it
        for name in [n for n in tensors if part.encode() in n]:
            del tensors[name]
    if "copy_block" in case:
        a, b = (f"blk.{i}.".encode() for i in case["copy_block"])
        for name in [n for n in tensors if n.startswith(a)]:
            tensors[name.replace(a, b)] = tensors[name]
    for name, (dims, low, high) in case.get("fill", {}).items():
        steps = np.arange(math.prod(dims), dtype="<f4") / np.float32(math.prod(dims))
        tensors[name.encode()] = (dims, (np.float32(low) + np.float32(high - low) * steps).astype("<f4"))


def main():
    golden = pathlib.Path(sys.argv[1])
    cases = json.loads(CASES.read_text())
    entry = (ROOT / "bench/compare/node_modules/node-llama-cpp/dist/index.js").as_uri()
    if len(sys.argv) > 2:
        entry = pathlib.Path(sys.argv[2]).resolve().as_uri()
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "evaluate.mjs"
        script.write_text(EVALUATE)
        models = [str(pathlib.Path(folder) / f"{i}.gguf") for i in range(len(cases["cases"]))]
        for case, model in zip(cases["cases"], models):
            file = Reader(golden / case["file"])
            change(case, file.metadata, file.tensors)
            write(pathlib.Path(model), file.metadata, file.tensors)
        answer = subprocess.run(["node", str(script), entry], input=json.dumps({"ids": cases["ids"], "models": models}),
                                capture_output=True, text=True)
        answers = answer.stdout.splitlines()
        if answer.returncode:
            sys.exit(f"{cases['cases'][len(answers)]['name']}: {answer.stderr}")
    for case, line in zip(cases["cases"], answers):
        probable = sorted(json.loads(line), key=lambda x: -x[1])[:24]
        case["logprobs"] = [[i, round(math.log(p), 6)] for i, p in probable]
    lines = [json.dumps({k: v for k, v in cases.items() if k != "cases"})[:-1] + ', "cases": [']
    lines.append(",\n".join("  " + json.dumps(case) for case in cases["cases"]))
    CASES.write_text("\n".join(lines) + "\n]}\n")


main()
