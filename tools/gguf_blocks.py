"""Random blocks of ggml's number formats, made directly: codes that look like a quantised normal distribution and scales that give
the wanted standard deviation, without quantising anything.  Needs numpy.

A format is a function blocks(rng, count, sigma) -> uint8 [count, bytes of a block].  Codes come out of a table of normal quantiles that
is indexed by random bits, because that is several times faster than drawing normal numbers and rounding them.
"""
from functools import lru_cache
from statistics import NormalDist

import numpy as np


def random_bits(rng, count, dtype):
    """`count` numbers of all values that `dtype` has."""
    width = np.dtype(dtype).itemsize
    return rng.bit_generator.random_raw(-(-count * width // 8)).view(dtype)[:count]


@lru_cache
def normal_quantiles(count):
    """float64 [count]: the standard normal distribution cut into `count` equally likely pieces, each by its middle."""
    inverse = NormalDist().inv_cdf
    return np.array([inverse((i + 0.5) / count) for i in range(count)])


@lru_cache
def integer_codes(count, low, high, deviation, centre=0.0):
    """int64 [count]: round(centre + deviation * normal), clipped."""
    return np.clip(np.rint(centre + deviation * normal_quantiles(count)), low, high).astype(np.int64)


def mean_square(values):
    return float(np.mean(np.square(np.asarray(values, np.float64))))


@lru_cache
def nibble_pairs(nibbles):
    """uint8 [65536]: two independent nibbles of a distribution that is given as 256 equally likely values."""
    n = np.array(nibbles, np.uint8)
    return (n[None, :] | n[:, None] << 4).reshape(-1)


def pairs(rng, shape, nibbles):
    count = int(np.prod(shape))
    return nibble_pairs(tuple(int(n) for n in nibbles))[random_bits(rng, count, np.uint16)].reshape(shape)


# Scales differ from block to block by up to a quarter: 256 equally likely factors.
JITTER = 1 + 0.25 * (2 * (np.arange(256) + 0.5) / 256 - 1)


def scales(rng, count, base):
    """float16 [count, 1] as bytes."""
    table = (base * JITTER).astype("<f2")
    return table[random_bits(rng, count, np.uint8)].reshape(count, 1).view(np.uint8)


def of_table(dtype):
    """Blocks of one number: 65,536 values of it."""
    def blocks(rng, count, sigma):
        table = normal_quantiles(65536) * sigma / np.sqrt(mean_square(normal_quantiles(65536)))
        if dtype == "bf16":
            bits = table.astype("<f4").view("<u4")
            table = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
        else:
            table = table.astype(dtype)
        return table[random_bits(rng, count, np.uint16)].reshape(count, 1).view(np.uint8)
    return blocks


def q8_0(rng, count, sigma):
    """f16 d, 32 int8: d * code."""
    codes = integer_codes(65536, -127, 127, 54.0)
    out = np.empty((count, 34), np.uint8)
    out[:, :2] = scales(rng, count, sigma / np.sqrt(mean_square(codes) * mean_square(JITTER)))
    out[:, 2:] = codes.astype(np.int8).view(np.uint8)[random_bits(rng, count * 32, np.uint16)].reshape(count, 32)
    return out


def q4_0(rng, count, sigma):
    """f16 d, 16 bytes of nibbles (low: elements 0-15, high: 16-31): d * (code - 8)."""
    codes = integer_codes(256, -8, 7, 3.8)
    out = np.empty((count, 18), np.uint8)
    out[:, :2] = scales(rng, count, sigma / np.sqrt(mean_square(codes) * mean_square(JITTER)))
    out[:, 2:] = pairs(rng, (count, 16), codes + 8)
    return out


def q5_0(rng, count, sigma):
    """f16 d, 32 fifth bits, 16 bytes of nibbles: d * (code - 16)."""
    codes = integer_codes(256, -16, 15, 7.5)
    drawn = (codes + 16).astype(np.uint8)[random_bits(rng, count * 32, np.uint8)].reshape(count, 32)
    out = np.empty((count, 22), np.uint8)
    out[:, :2] = scales(rng, count, sigma / np.sqrt(mean_square(codes) * mean_square(JITTER)))
    out[:, 2:6] = np.packbits(drawn >> 4, axis=1, bitorder="little")
    out[:, 6:] = drawn[:, :16] & 15 | drawn[:, 16:] << 4
    return out


def q4_k(rng, count, sigma):
    """f16 d, f16 dmin, 8 pairs of six-bit scale s and offset m in 12 bytes, 128 bytes of nibbles: d*s*code - dmin*m in groups of 32.
    The offsets are about what centres the codes."""
    codes = integer_codes(256, 0, 15, 3.6, 7.5)
    s = random_bits(rng, count * 8, np.uint8).reshape(count, 8) % 29 + 32  # 32 … 60
    m = s - 1 + random_bits(rng, count * 8, np.uint8).reshape(count, 8) % 3  # s - 1 … s + 1
    square = mean_square(np.arange(32, 61)) * mean_square(codes - 7.5) + 7.5 ** 2 * mean_square([-1, 0, 1])
    d = scales(rng, count, sigma / np.sqrt(square * mean_square(JITTER)))
    out = np.empty((count, 144), np.uint8)
    out[:, 0:2] = d
    out[:, 2:4] = (d.view("<f2").astype(np.float32) * 7.5).astype("<f2").view(np.uint8)
    out[:, 4:8] = s[:, :4] | (s[:, 4:] >> 4) << 6
    out[:, 8:12] = m[:, :4] | (m[:, 4:] >> 4) << 6
    out[:, 12:16] = s[:, 4:] & 15 | (m[:, 4:] & 15) << 4
    out[:, 16:] = pairs(rng, (count, 128), codes)
    return out


def q6_k(rng, count, sigma):
    """128 bytes of low nibbles, 64 of upper pairs of bits, 16 int8 scales, f16 d: d * scale * (code - 32) in groups of 16."""
    codes = integer_codes(256, -32, 31, 13.5)
    drawn = (codes + 32).astype(np.uint8)[random_bits(rng, count * 256, np.uint8)].reshape(count, 2, 4, 32)
    s = random_bits(rng, count * 16, np.uint8).reshape(count, 16)
    magnitude = (s & 63) + 64  # 64 … 127
    out = np.empty((count, 210), np.uint8)
    low = drawn & 15
    out[:, :128] = (low[:, :, :2] | low[:, :, 2:] << 4).reshape(count, 128)
    high = drawn >> 4
    out[:, 128:192] = (high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6).reshape(count, 64)
    out[:, 192:208] = np.where(s & 64, magnitude, -magnitude.astype(np.int8).astype(np.int16)).astype(np.int8).view(np.uint8)
    base = sigma / np.sqrt(mean_square(np.arange(64, 128)) * mean_square(codes) * mean_square(JITTER))
    out[:, 208:] = scales(rng, count, base)
    return out


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


@lru_cache
def fp4_codes(deviation):
    """Of a normal distribution, the nearest of FP4: 256 equally likely codes, a zero being half the time a negative one."""
    values = deviation * normal_quantiles(256)
    nearest = np.abs(np.abs(values)[:, None] - FP4[None, :8]).argmin(axis=1)
    return tuple(int(c) for c in nearest + 8 * (values < 0))


def mxfp4(rng, count, sigma):
    """E8M0 exponent e, 16 bytes of nibbles (low: elements 0-15, high: 16-31): 2^(e-127) * FP4[code]. Half the blocks have the next
    higher exponent."""
    exponent = int(np.floor(np.log2(sigma / 2.2)))  # so that the deviation of the codes is between 1.4 and 2.8
    wanted = sigma / 2.0 ** exponent / np.sqrt(2.5)  # (1 + 4) / 2 is the mean square of the two scales
    low, high = 0.5, 6.0
    for _ in range(40):  # rounding and clipping change the deviation: find what gives the wanted one
        middle = (low + high) / 2
        low, high = (middle, high) if mean_square(FP4[list(fp4_codes(middle))]) < wanted ** 2 else (low, middle)
    out = np.empty((count, 17), np.uint8)
    out[:, 0] = exponent + 127 + (random_bits(rng, count, np.uint8) & 1)
    out[:, 1:] = pairs(rng, (count, 16), fp4_codes(low))
    return out


# name -> (ggml's number, elements of a block, bytes of a block, how to draw blocks)
FORMATS = {
    "F32": (0, 1, 4, of_table("<f4")),
    "F16": (1, 1, 2, of_table("<f2")),
    "BF16": (30, 1, 2, of_table("bf16")),
    "Q4_0": (2, 32, 18, q4_0),
    "Q5_0": (6, 32, 22, q5_0),
    "Q8_0": (8, 32, 34, q8_0),
    "Q4_K": (12, 256, 144, q4_k),
    "Q6_K": (14, 256, 210, q6_k),
    "MXFP4": (39, 32, 17, mxfp4),
}
