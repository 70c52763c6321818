#!/usr/bin/env python3
"""Writes a GGUF file (v3) of random weights in a usual shape and type, for benchmarks: no weights need to be downloaded.

  make_random_gguf.py OUT.gguf --shape llama-1b --type Q4_K_M [--layers 4] [--hidden 512] … [--seed 1]

Shapes (any size can be changed by an option):
  llama-1b     1.10 B parameters: 2048 wide, 22 layers, FFN 5632, 32 heads, 4 of keys and values, 32,000 tokens
  llama-0.4b   0.43 B: 1024 wide, 24 layers, FFN 4096, 16 heads, 4 of keys and values
  moe-1b       1.02 B (0.23 B of them used for a token): qwen3moe, 1024 wide, 18 layers, 32 experts of 512, 4 chosen
  k3           Kimi K3's kinds of layers and the real width of its experts (3584 x 3072, 17.5 MB each in MXFP4), all else small:
               2048 wide, 5 layers (KDA, KDA, KDA, MLA, MLA), 32 experts, 16 chosen.  The real thing is
               --hidden 7168 --heads 96 --intermediate 33792 --q-lora 1536 --layers 93 --experts 896

Types: F32, BF16, F16, Q8_0, Q4_0, Q6_K are that in every matrix; Q4_K_M has Q6_K for the output and for half of the layers' attn_v
and ffn_down, as llama.cpp makes it; MXFP4 has Q8_0 for embedding and output and, where there are experts, for all but them and
MLA's k_b and v_b.  Rows that are no multiple of 256 fall back from Q4_K to Q5_0 and from Q6_K to Q8_0.  Norms, routers,
convolutions and biases are F32.

Weights are normal with a standard deviation of 1.2/sqrt(columns), so logits are finite and not degenerate, but what such a model
says is noise.  The vocabulary is made up: byte tokens and the shortest words there are.  The same options and seed give the same
bytes.  Tensors are written as they are made, 16 MiB at a time.  Needs numpy.
"""
import argparse
import os
import struct
import sys
import time

import numpy as np

from gguf_blocks import FORMATS

ALIGNMENT = 32
CHUNK = 16 << 20
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
SHAPES = {
    "llama-1b": dict(arch="llama", hidden=2048, layers=22, intermediate=5632, heads=32, kv_heads=4, head_dim=64),
    "llama-0.4b": dict(arch="llama", hidden=1024, layers=24, intermediate=4096, heads=16, kv_heads=4, head_dim=64),
    "moe-1b": dict(arch="qwen3moe", hidden=1024, layers=18, intermediate=4096, heads=16, kv_heads=4, head_dim=64, experts=32,
                   top_k=4, moe_intermediate=512),
    "k3": dict(arch="kimi-k3", hidden=2048, layers=5, intermediate=8192, heads=16, head_dim=128, q_lora=768, kv_lora=512,
               rope_dim=64, experts=32, top_k=16, shared=2, latent=3584, moe_intermediate=3072, res_block=12),
}
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "Q4_K_M": 15, "Q6_K": 18, "BF16": 32, "MXFP4": 38}
SHORT_ROWS = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}


# ---- the tensors of each architecture: (name, dimensions with the columns first, how its values are drawn or None for a matrix)
def normal(deviation, mean=0.0):
    return lambda rng, count: mean + deviation * rng.standard_normal(count, dtype=np.float32)


def norm(name, n):
    return name + ".weight", (n,), normal(0.1, 1.0)


def matrix(name, columns, *rest):
    return name + ".weight", (columns, *rest), None


def router(name, columns, rows):
    return name + ".weight", (columns, rows), normal(1.2 / columns ** 0.5)


def dense_ffn(prefix, o):
    yield matrix(prefix + "ffn_gate", o.hidden, o.intermediate)
    yield matrix(prefix + "ffn_up", o.hidden, o.intermediate)
    yield matrix(prefix + "ffn_down", o.intermediate, o.hidden)


def experts(prefix, o, width):
    yield router(prefix + "ffn_gate_inp", o.hidden, o.experts)
    yield matrix(prefix + "ffn_gate_exps", width, o.moe_intermediate, o.experts)
    yield matrix(prefix + "ffn_up_exps", width, o.moe_intermediate, o.experts)
    yield matrix(prefix + "ffn_down_exps", o.moe_intermediate, width, o.experts)


def gqa_layer(prefix, o):
    yield norm(prefix + "attn_norm", o.hidden)
    yield matrix(prefix + "attn_q", o.hidden, o.heads * o.head_dim)
    yield matrix(prefix + "attn_k", o.hidden, o.kv_heads * o.head_dim)
    yield matrix(prefix + "attn_v", o.hidden, o.kv_heads * o.head_dim)
    yield matrix(prefix + "attn_output", o.heads * o.head_dim, o.hidden)
    if o.arch == "qwen3moe":
        yield norm(prefix + "attn_q_norm", o.head_dim)
        yield norm(prefix + "attn_k_norm", o.head_dim)
    yield norm(prefix + "ffn_norm", o.hidden)
    yield from experts(prefix, o, o.hidden) if o.experts else dense_ffn(prefix, o)


def kda(p, o):
    width = o.heads * o.head_dim
    for s in "qkv":
        yield matrix(f"{p}attn_{s}", o.hidden, width)
        yield f"{p}ssm_conv1d_{s}.weight", (4, 1, width), normal(0.6)
    yield p + "ssm_a", (o.heads,), lambda rng, count: -rng.uniform(0.3, 3, count)
    yield p + "ssm_dt.bias", (width,), normal(1.0, -3.0)
    yield matrix(p + "ssm_f_a", o.hidden, o.head_dim)
    yield matrix(p + "ssm_f_b", o.head_dim, width)
    yield matrix(p + "ssm_beta", o.hidden, o.heads)
    yield matrix(p + "ssm_g", o.hidden, width)
    yield norm(p + "ssm_norm", o.head_dim)
    yield matrix(p + "attn_output", width, o.hidden)


def mla(p, o):
    width = o.heads * o.head_dim
    yield matrix(p + "attn_q_a", o.hidden, o.q_lora)
    yield norm(p + "attn_q_a_norm", o.q_lora)
    yield matrix(p + "attn_q_b", o.q_lora, o.heads * (o.head_dim + o.rope_dim))
    yield matrix(p + "attn_kv_a_mqa", o.hidden, o.kv_lora + o.rope_dim)
    yield norm(p + "attn_kv_a_norm", o.kv_lora)
    yield matrix(p + "attn_k_b", o.head_dim, o.kv_lora, o.heads)
    yield matrix(p + "attn_v_b", o.kv_lora, o.head_dim, o.heads)
    yield matrix(p + "attn_gate", o.hidden, width)
    yield matrix(p + "attn_output", width, o.hidden)


def is_mla(o, layer):
    """Every fourth layer, and the last."""
    return layer % 4 == 3 or layer == o.layers - 1


def k3_layer(p, o, layer):
    yield norm(p + "attn_norm", o.hidden)
    yield p + "attn_res_score.weight", (o.hidden,), normal(0.3 / o.hidden ** 0.5)
    yield from mla(p, o) if is_mla(o, layer) else kda(p, o)
    yield norm(p + "ffn_norm", o.hidden)
    yield p + "ffn_res_score.weight", (o.hidden,), normal(0.3 / o.hidden ** 0.5)
    if layer == 0:
        yield from dense_ffn(p, o)
        return
    yield matrix(p + "ffn_routed_down", o.hidden, o.latent)
    yield norm(p + "ffn_routed_norm", o.latent)
    yield matrix(p + "ffn_routed_up", o.latent, o.hidden)
    yield from experts(p, o, o.latent)
    yield p + "exp_probs_b.bias", (o.experts,), normal(0.3)
    yield matrix(p + "ffn_gate_shexp", o.hidden, o.shared * o.moe_intermediate)
    yield matrix(p + "ffn_up_shexp", o.hidden, o.shared * o.moe_intermediate)
    yield matrix(p + "ffn_down_shexp", o.shared * o.moe_intermediate, o.hidden)


def tensors(o):
    yield matrix("token_embd", o.hidden, o.vocab)
    yield norm("output_norm", o.hidden)
    yield matrix("output", o.hidden, o.vocab)
    if o.arch == "kimi-k3":
        yield "output_res_score.weight", (o.hidden,), normal(0.3 / o.hidden ** 0.5)
    for layer in range(o.layers):
        prefix = f"blk.{layer}."
        yield from k3_layer(prefix, o, layer) if o.arch == "kimi-k3" else gqa_layer(prefix, o)


# ---- which format a matrix gets
def more_bits(layer, layers):
    """The layers whose most sensitive matrices llama.cpp gives more bits: the first and last eighths, and every third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def format_of(name, columns, o):
    stem = name.removesuffix(".weight").split(".")[-1]
    kind = o.type
    if o.type == "Q4_K_M":
        important = stem == "attn_v" or stem.startswith("ffn_down")
        kind = "Q6_K" if stem == "output" or important and more_bits(int(name.split(".")[1]), o.layers) else "Q4_K"
    elif o.type == "MXFP4":
        trunk = o.experts and not stem.endswith("_exps") and stem not in ("attn_k_b", "attn_v_b")
        kind = "Q8_0" if trunk or stem in ("token_embd", "output") else "MXFP4"
    if columns % FORMATS[kind][1]:
        kind = SHORT_ROWS.get(kind, kind)
    if columns % FORMATS[kind][1]:
        sys.exit(f"make_random_gguf.py: {name} has rows of {columns}, which {kind} cannot hold: expected a multiple of {FORMATS[kind][1]}")
    return kind


# ---- vocabularies
def spm_vocabulary(size):
    """Special and byte tokens, then the words over 27 letters by length: every one is two shorter ones, so all can be reached."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    kinds = [2, 3, 3] + [6] * 256
    letters = "\u2581abcdefghijklmnopqrstuvwxyz"
    words = [""]
    while len(tokens) < size:
        words = [w + letter for w in words for letter in letters][:size]
        tokens += words[: size - len(tokens)]
    kinds += [1] * (size - len(kinds))
    scores = [0.0] * 259 + [-float(i) for i in range(size - 259)]
    return [("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.pre", STRING, "default"),
            ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)), ("tokenizer.ggml.scores", ARRAY, (F32, scores)),
            ("tokenizer.ggml.token_type", ARRAY, (I32, kinds)), ("tokenizer.ggml.unknown_token_id", U32, 0),
            ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2),
            ("tokenizer.ggml.add_bos_token", BOOL, True)]


def bpe_vocabulary(size, pre):
    """All bytes, then pairs of them with their merges, and three control tokens last."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    others = [b for b in range(256) if b not in plain]
    symbol = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}
    order = sorted(range(256), key=lambda b: (not chr(b).isascii() or not chr(b).islower(), b))
    merges = [(symbol[a], symbol[b]) for a in order for b in order][: size - 259]
    control = ["[BOS]", "[EOS]", "[PAD]"]
    tokens = [symbol[b] for b in range(256)] + [a + b for a, b in merges] + control
    return [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, pre),
            ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
            ("tokenizer.ggml.token_type", ARRAY, (I32, [1] * (size - 3) + [3] * 3)),
            ("tokenizer.ggml.merges", ARRAY, (STRING, [f"{a} {b}" for a, b in merges])),
            ("tokenizer.ggml.bos_token_id", U32, size - 3), ("tokenizer.ggml.eos_token_id", U32, size - 2),
            ("tokenizer.ggml.padding_token_id", U32, size - 1), ("tokenizer.ggml.add_bos_token", BOOL, False)]


# ---- metadata
def metadata(o):
    a = o.arch + "."
    common = [("general.architecture", STRING, o.arch), ("general.name", STRING, f"random {o.shape} {o.type}"),
              ("general.quantization_version", U32, 2), ("general.file_type", U32, FILE_TYPES[o.type]),
              (a + "context_length", U32, o.context), (a + "embedding_length", U32, o.hidden), (a + "block_count", U32, o.layers),
              (a + "feed_forward_length", U32, o.intermediate), (a + "vocab_size", U32, o.vocab),
              (a + "attention.head_count", U32, o.heads), (a + "attention.layer_norm_rms_epsilon", F32, 1e-5)]
    moe = [(a + "expert_count", U32, o.experts), (a + "expert_used_count", U32, o.top_k),
           (a + "expert_feed_forward_length", U32, o.moe_intermediate)] if o.experts else []
    if o.arch == "kimi-k3":
        kv_heads = [int(is_mla(o, layer)) for layer in range(o.layers)]
        return common + moe + [
            (a + "attention.head_count_kv", ARRAY, (I32, kv_heads)), (a + "ssm.conv_kernel", U32, 4),
            (a + "kda.head_dim", U32, o.head_dim), (a + "kda.gate_lower_bound", F32, -5.0),
            (a + "attention.q_lora_rank", U32, o.q_lora), (a + "attention.kv_lora_rank", U32, o.kv_lora),
            (a + "rope.dimension_count", U32, o.rope_dim), (a + "attention.key_length", U32, o.kv_lora + o.rope_dim),
            (a + "attention.value_length", U32, o.kv_lora), (a + "attention.key_length_mla", U32, o.head_dim + o.rope_dim),
            (a + "attention.value_length_mla", U32, o.head_dim), (a + "leading_dense_block_count", U32, 1),
            (a + "expert_shared_count", U32, o.shared), (a + "expert_weights_scale", F32, 1.0),
            (a + "expert_weights_norm", BOOL, True), (a + "expert_gating_func", U32, 2), (a + "expert_group_used_count", U32, 1),
            (a + "expert_latent_length", U32, o.latent), (a + "attn_res.block_size", U32, o.res_block),
            (a + "activation.situ_beta", F32, 4.0), (a + "activation.situ_linear_beta", F32, 25.0),
        ] + bpe_vocabulary(o.vocab, "kimi-k2")
    return common + moe + [
        (a + "attention.head_count_kv", U32, o.kv_heads), (a + "attention.key_length", U32, o.head_dim),
        (a + "attention.value_length", U32, o.head_dim), (a + "rope.dimension_count", U32, o.head_dim),
        (a + "rope.freq_base", F32, 10000.0)] + spm_vocabulary(o.vocab)


def packed_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def packed(kind, value):
    if kind == STRING:
        return packed_string(value)
    if kind == ARRAY:
        element, values = value
        return struct.pack("<IQ", element, len(values)) + b"".join(packed(element, v) for v in values)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)


# ---- the file
def plan(o):
    """(name, dimensions, format, bytes, offset, draw) of every tensor, and where the last one ends."""
    out, offset = [], 0
    for name, dimensions, draw in tensors(o):
        kind = "F32" if draw else format_of(name, dimensions[0], o)
        elements = int(np.prod(dimensions))
        size = elements // FORMATS[kind][1] * FORMATS[kind][2]
        out.append((name, dimensions, kind, size, offset, draw))
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    return out, offset


def header(o, planned):
    pairs = metadata(o)
    out = [b"GGUF", struct.pack("<IQQ", 3, len(planned), len(pairs))]
    out += [packed_string(key) + struct.pack("<I", kind) + packed(kind, value) for key, kind, value in pairs]
    for name, dimensions, kind, _, offset, _ in planned:
        out.append(packed_string(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, FORMATS[kind][0], offset))
    data = b"".join(out)
    return data + b"\0" * (-len(data) % ALIGNMENT)


def write_tensor(f, o, index, tensor):
    name, dimensions, kind, size, _, draw = tensor
    rng = np.random.Generator(np.random.SFC64([o.seed, index]))
    if draw:
        f.write(np.ascontiguousarray(draw(rng, int(np.prod(dimensions))), "<f4").tobytes())
    else:
        _, _, block_bytes, blocks = FORMATS[kind]
        sigma = 1.0 if name == "token_embd.weight" else 1.2 / dimensions[0] ** 0.5
        left = size // block_bytes
        while left:
            count = min(left, CHUNK // block_bytes)
            f.write(blocks(rng, count, sigma))
            left -= count
    f.write(b"\0" * (-size % ALIGNMENT))


def write_model(o):
    planned, total = plan(o)
    start, shown = time.monotonic(), 0.0
    temporary = o.out + ".partial"
    with open(temporary, "wb") as f:
        f.write(header(o, planned))
        for index, tensor in enumerate(planned):
            write_tensor(f, o, index, tensor)
            if sys.stderr.isatty() and time.monotonic() - shown > 0.2:
                shown = time.monotonic()
                print(f"\r{o.out}: {100 * tensor[4] // total} %", end="", file=sys.stderr)
        size = f.tell()
    os.replace(temporary, o.out)
    parameters = sum(int(np.prod(t[1])) for t in planned)
    clear = "\r" if sys.stderr.isatty() else ""
    print(f"{clear}{o.out}: {len(planned)} tensors, {parameters:,} parameters, {size:,} bytes in {time.monotonic() - start:.1f} s",
          file=sys.stderr)


SIZES = ("hidden", "layers", "intermediate", "heads", "kv_heads", "head_dim", "q_lora", "kv_lora", "rope_dim", "experts", "top_k",
         "shared", "latent", "moe_intermediate", "res_block")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", metavar="OUT.gguf")
    p.add_argument("--shape", choices=SHAPES, required=True)
    p.add_argument("--type", choices=FILE_TYPES, required=True)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--vocab", type=int, default=32000)
    p.add_argument("--context", type=int, default=4096)
    for name in SIZES:
        p.add_argument("--" + name.replace("_", "-"), type=int)
    o = p.parse_args()
    shape = {"experts": 0, "top_k": 0, "moe_intermediate": 0} | SHAPES[o.shape]
    for name in SIZES:
        given = getattr(o, name)
        if given is None:
            setattr(o, name, shape.get(name))
        elif not shape.get(name):
            p.error(f"--{name.replace('_', '-')}: {o.shape} has no such size")
        elif given < 1:
            p.error(f"--{name.replace('_', '-')} is {given}, expected at least 1")
    o.arch = shape["arch"]
    if not 300 <= o.vocab <= 65536:
        p.error(f"--vocab is {o.vocab}, expected 300 to 65536")
    if o.experts and o.top_k > o.experts:
        p.error(f"--top-k is {o.top_k} of {o.experts} experts, expected at most as many as there are")
    if o.seed < 0:
        p.error(f"--seed is {o.seed}, expected 0 or more")
    write_model(o)


if __name__ == "__main__":
    main()
