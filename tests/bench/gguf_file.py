"""Reads GGUF files for the tests of what writes them: a second opinion, so it shares nothing with tools/ or bench/. Needs numpy."""
import struct

import numpy as np

FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def f16(blocks):
    return np.ascontiguousarray(blocks).view("<f2").astype(np.float32)


def nibbles(bytes_):
    """Low nibbles first, then high ones."""
    return np.concatenate([bytes_ & 15, bytes_ >> 4], axis=1).astype(np.float32)


def q4_0(b):
    return f16(b[:, :2]) * (nibbles(b[:, 2:]) - 8)


def q5_0(b):
    fifth = np.unpackbits(b[:, 2:6], axis=1, bitorder="little").astype(np.float32)
    return f16(b[:, :2]) * (nibbles(b[:, 6:]) + 16 * fifth - 16)


def q8_0(b):
    return f16(b[:, :2]) * b[:, 2:].view(np.int8)


def mxfp4(b):
    codes = np.concatenate([b[:, 1:] & 15, b[:, 1:] >> 4], axis=1)
    return np.exp2(b[:, :1].astype(np.float32) - 127) * FP4[codes]


def q4_k(b):
    d, low, packed, out = f16(b[:, 0:2]), f16(b[:, 2:4]), b[:, 4:16].astype(np.int32), []
    for j in range(8):
        if j < 4:
            scale, least = packed[:, j] & 63, packed[:, j + 4] & 63
        else:
            scale = packed[:, j + 4] & 15 | packed[:, j - 4] >> 6 << 4
            least = packed[:, j + 4] >> 4 | packed[:, j] >> 6 << 4
        codes = b[:, 16 + j // 2 * 32 : 48 + j // 2 * 32] >> (j % 2 * 4) & 15
        out.append(d * scale[:, None] * codes - low * least[:, None])
    return np.concatenate(out, axis=1)


def q6_k(b):
    d, scales, out = f16(b[:, 208:210]), b[:, 192:208].view(np.int8).astype(np.float32), []
    for element in range(256):
        half, quarter, i = element // 128, element % 128 // 32, element % 32
        low = b[:, half * 64 + quarter % 2 * 32 + i] >> (quarter // 2 * 4) & 15
        high = b[:, 128 + half * 32 + i] >> (quarter * 2) & 3
        out.append(d[:, 0] * scales[:, element // 16] * ((low | high << 4).astype(np.float32) - 32))
    return np.stack(out, axis=1)


# ggml's number -> (name, elements of a block, bytes of a block, blocks -> float32)
TYPES = {
    0: ("F32", 1, 4, lambda b: b.view("<f4")),
    1: ("F16", 1, 2, f16),
    2: ("Q4_0", 32, 18, q4_0),
    6: ("Q5_0", 32, 22, q5_0),
    8: ("Q8_0", 32, 34, q8_0),
    12: ("Q4_K", 256, 144, q4_k),
    14: ("Q6_K", 256, 210, q6_k),
    30: ("BF16", 1, 2, lambda b: (np.ascontiguousarray(b).view("<u2").astype("<u4") << 16).view("<f4")),
    39: ("MXFP4", 32, 17, mxfp4),
}
FORMS = {4: "I", 5: "i", 6: "f", 7: "?", 10: "Q"}


class Gguf:
    """metadata: key -> value; tensors: name -> (dimensions, type name, values as float32 [elements])."""

    def __init__(self, data):
        self.data, self.at, self.metadata, self.tensors = data, 0, {}, {}
        assert self.take(4) == b"GGUF"
        version, tensors, pairs = self.number("I"), self.number("Q"), self.number("Q")
        assert version == 3, version
        for _ in range(pairs):
            key = self.string()
            assert key not in self.metadata, key
            self.metadata[key] = self.value(self.number("I"))
        headers = []
        for _ in range(tensors):
            name = self.string()
            dimensions = [self.number("Q") for _ in range(self.number("I"))]
            headers.append((name, dimensions, self.number("I"), self.number("Q")))
        start = end = -(-self.at // 32) * 32
        for name, dimensions, kind, offset in headers:
            type_name, elements, size, decode = TYPES[kind]
            assert dimensions[0] % elements == 0, name
            assert start + offset == end, f"{name}: a gap or an overlap"
            blocks = np.frombuffer(data, np.uint8, int(np.prod(dimensions)) // elements * size, start + offset).reshape(-1, size)
            assert name not in self.tensors, name
            self.tensors[name] = (tuple(dimensions), type_name, decode(blocks).reshape(-1))
            end = -(-(end + blocks.size) // 32) * 32
        assert end == len(data), "bytes after the last tensor"

    def take(self, count):
        out = self.data[self.at : self.at + count]
        assert len(out) == count
        self.at += count
        return out

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def string(self):
        return self.take(self.number("Q")).decode()

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            element = self.number("I")
            return [self.value(element) for _ in range(self.number("Q"))]
        return self.number(FORMS[kind])
