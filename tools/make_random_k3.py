#!/usr/bin/env python3
"""Writes a random Kimi-K3-shaped checkpoint of a chosen size, in the real Hugging Face layout: BF16 trunk, F32 small tensors, MXFP4
experts, several shards and an index.

  make_random_k3.py OUT_DIR [--bytes 1.2GB] [--hidden 1024] [--layers 12] [--experts 64] … [--seed 1]

With --bytes the number of experts (or, if --experts is given, of layers) is chosen so that the tensors come to about that size; all
else is as the options say.  The layers are KDA, KDA, KDA, MLA, …, and the last is MLA too.  Weights have such scales that signals
keep their size through the layers (see random_checkpoint of k3_ref.py), so logits are finite and not degenerate, but the text of
such a model is noise.  With a vocabulary of 4096 the tokenizer of models/tiny-k3 is put beside it.

Tensors are made and written one at a time; the same options and seed give the same bytes.  Needs numpy.
"""
import argparse
import json
import os
import re
import shutil
import struct
import sys

import numpy as np

TINY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models", "tiny-k3")
TOKENIZER = ("tiktoken.model", "tokenizer_config.json")
TINY_IDS = dict(bos_token_id=4032, eos_token_id=4034, pad_token_id=4095)
WIDTH = {"BF16": 2, "F32": 4, "U8": 1}


def parse_bytes(text):
    match = re.fullmatch(r"\s*([0-9.]+)\s*([kMGT]?)(i?)B?\s*", text, re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, expected for example 1.2GB or 700MiB")
    power = " KMGT".index(match[2].upper()) if match[2] else 0
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def mla_layers(layers):
    """1-based."""
    return sorted(set(range(4, layers + 1, 4)) | {layers})


def make_config(o):
    full = mla_layers(o.layers)
    ids = TINY_IDS if o.vocab == 4096 else dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    text = dict(
        model_type="kimi_linear", architectures=["KimiLinearForCausalLM"], dtype="bfloat16", hidden_act="situ",
        activation_situ_beta=4.0, activation_situ_linear_beta=25.0, attn_res_block_size=o.attn_res_block,
        hidden_size=o.hidden, intermediate_size=o.intermediate, num_hidden_layers=o.layers, num_attention_heads=o.heads,
        num_key_value_heads=o.heads, q_lora_rank=o.q_lora, kv_lora_rank=o.kv_lora, qk_nope_head_dim=o.head_dim,
        qk_rope_head_dim=o.rope_dim, v_head_dim=o.head_dim, mla_use_nope=True, mla_use_output_gate=True,
        num_experts=o.experts, num_experts_per_token=o.top_k, num_shared_experts=o.shared,
        moe_intermediate_size=o.moe_intermediate, routed_expert_hidden_size=o.latent, latent_moe_use_norm=True,
        first_k_dense_replace=1, moe_layer_freq=1, moe_renormalize=True, moe_router_activation_func="sigmoid",
        num_expert_group=1, topk_group=1, topk_method="noaux_tc", use_grouped_topk=True, routed_scaling_factor=1.0,
        num_nextn_predict_layers=0, rms_norm_eps=1e-5, vocab_size=o.vocab, tie_word_embeddings=False,
        max_position_embeddings=o.context, **ids,
        linear_attn_config=dict(full_attn_layers=full, kda_layers=[l for l in range(1, o.layers + 1) if l not in full],
                                head_dim=o.head_dim, num_heads=o.heads, short_conv_kernel_size=4, gate_lower_bound=-5.0,
                                use_full_rank_gate=True),
        quantization_config=dict(
            quant_method="compressed-tensors", format="mxfp4-pack-quantized", quantization_status="compressed",
            ignore=["re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*"],
            config_groups=dict(group_0=dict(format="mxfp4-pack-quantized", targets=["Linear"], weights=dict(
                dynamic=False, group_size=32, num_bits=4, scale_dtype="torch.uint8", strategy="group", symmetric=True,
                type="float")))))
    return dict(model_type="kimi_k3", architectures=["KimiK3ForConditionalGeneration"], dtype="bfloat16",
                tie_word_embeddings=False, media_placeholder_token_id=4053 if o.vocab == 4096 else 3, **ids, text_config=text)


# ---- what there is: (name, dtype, shape, how its values are drawn)
def normal(scale, base=0.0):
    return lambda rng, shape: base + scale * rng.standard_normal(shape, dtype=np.float32)


def matrix(name, rows, cols):
    return name + ".weight", "BF16", (rows, cols), normal(1.2 / cols ** 0.5)


def norm(name, n):
    return name + ".weight", "BF16", (n,), normal(0.1, 1.0)


def layer_tensors(o, layer):
    p = f"language_model.model.layers.{layer}."
    a = p + "self_attn."
    width = o.heads * o.head_dim
    yield norm(p + "input_layernorm", o.hidden)
    yield norm(p + "post_attention_layernorm", o.hidden)
    for half in ("self_attention", "mlp"):
        yield norm(p + half + "_res_norm", o.hidden)
        yield p + half + "_res_proj.weight", "BF16", (1, o.hidden), normal(0.3)
    if layer + 1 in mla_layers(o.layers):
        yield matrix(a + "q_a_proj", o.q_lora, o.hidden)
        yield norm(a + "q_a_layernorm", o.q_lora)
        yield matrix(a + "q_b_proj", o.heads * (o.head_dim + o.rope_dim), o.q_lora)
        yield matrix(a + "kv_a_proj_with_mqa", o.kv_lora + o.rope_dim, o.hidden)
        yield norm(a + "kv_a_layernorm", o.kv_lora)
        yield matrix(a + "kv_b_proj", 2 * width, o.kv_lora)
    else:
        for s in "qkv":
            yield matrix(f"{a}{s}_proj", width, o.hidden)
            yield f"{a}{s}_conv1d.weight", "F32", (width, 1, 4), normal(0.6)
        decay = lambda rng, shape: np.where(np.arange(shape[0]) < o.heads, np.log(rng.uniform(0.3, 3, shape)), 0)
        yield a + "A_log", "F32", (-(-o.heads // 128) * 128,), decay
        yield a + "dt_bias", "F32", (width,), normal(1.0)
        yield a + "o_norm.weight", "F32", (o.head_dim,), normal(0.1, 1.0)
        yield matrix(a + "f_a_proj", o.head_dim, o.hidden)
        yield matrix(a + "f_b_proj", width, o.head_dim)
        yield matrix(a + "b_proj", o.heads, o.hidden)
    yield matrix(a + "g_proj", width, o.hidden)
    yield matrix(a + "o_proj", o.hidden, width)
    if layer == 0:
        yield from ffn(p + "mlp.", o.hidden, o.intermediate)
        return
    m = p + "block_sparse_moe."
    yield matrix(m + "gate", o.experts, o.hidden)
    yield m + "gate.e_score_correction_bias", "F32", (o.experts,), normal(0.3)
    yield matrix(m + "routed_expert_down_proj", o.latent, o.hidden)
    yield matrix(m + "routed_expert_up_proj", o.hidden, o.latent)
    yield norm(m + "routed_expert_norm", o.latent)
    if o.shared:
        yield from ffn(m + "shared_experts.", o.hidden, o.shared * o.moe_intermediate)
    for e in range(o.experts):
        for w, rows, cols in (("w1", o.moe_intermediate, o.latent), ("w2", o.latent, o.moe_intermediate),
                              ("w3", o.moe_intermediate, o.latent)):
            name = f"{m}experts.{e}.{w}.weight"
            yield name + "_packed", "U8", (rows, cols // 2), codes
            yield name + "_scale", "U8", (rows, cols // 32), scales(cols)


def ffn(prefix, width, inner):
    yield matrix(prefix + "gate_proj", inner, width)
    yield matrix(prefix + "up_proj", inner, width)
    yield matrix(prefix + "down_proj", width, inner)


def codes(rng, shape):
    return np.frombuffer(rng.bytes(shape[0] * shape[1]), np.uint8)


def scales(cols):
    """Uniform codes have a root mean square of 2.93, so exponents around log2(1.2 / sqrt(cols) / 2.93) give the usual size."""
    exponent = np.log2(1.2 / cols ** 0.5 / 2.93)
    return lambda rng, shape: np.floor(exponent + rng.random(shape, dtype=np.float32)).astype(np.int64) + 127


def groups_of_tensors(o):
    """In the order of the released files: a layer after the other, then what is shared."""
    for layer in range(o.layers):
        yield list(layer_tensors(o, layer))
    p = "language_model."
    yield [(p + "model.embed_tokens.weight", "BF16", (o.vocab, o.hidden), normal(1.0)), matrix(p + "lm_head", o.vocab, o.hidden),
           norm(p + "model.norm", o.hidden), norm(p + "model.output_attn_res_norm", o.hidden),
           (p + "model.output_attn_res_proj.weight", "BF16", (1, o.hidden), normal(0.3))]


def size_of(dtype, shape):
    return WIDTH[dtype] * int(np.prod(shape))


def total_bytes(o):
    return sum(size_of(t[1], t[2]) for group in groups_of_tensors(o) for t in group)


def stored(dtype, values):
    if dtype == "U8":
        return values.astype(np.uint8).tobytes()
    values = np.ascontiguousarray(values, "<f4")
    if dtype == "F32":
        return values.tobytes()
    bits = values.view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def write_shard(path, tensors, rng):
    header, offset = {}, 0
    for name, dtype, shape, _ in tensors:
        size = size_of(dtype, shape)
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=(offset, offset + size))
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, dtype, shape, draw in tensors:
            f.write(stored(dtype, draw(rng, shape)))


def shards_of(o):
    """Lists of tensors of at most about --shard-bytes each; a layer is never cut."""
    shard, size = [], 0
    for group in groups_of_tensors(o):
        group_size = sum(size_of(t[1], t[2]) for t in group)
        if shard and size + group_size > o.shard_bytes:
            yield shard
            shard, size = [], 0
        shard += group
        size += group_size
    yield shard


def fit(o, wanted, field, low):
    """Sets o.<field> to the value from `low` up whose total comes nearest to `wanted`."""
    setattr(o, field, low)
    base = total_bytes(o)
    setattr(o, field, low + 8)
    step = (total_bytes(o) - base) / 8
    guess = max(low, low + round((wanted - base) / step))
    def distance(n):
        setattr(o, field, n)
        return abs(total_bytes(o) - wanted)
    setattr(o, field, min(range(max(low, guess - 2), guess + 3), key=distance))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out_dir")
    p.add_argument("--bytes", type=parse_bytes, default=None, help="about this many bytes of tensors (1.2GB, 700MiB)")
    p.add_argument("--hidden", type=int, default=1024)
    p.add_argument("--layers", type=int, default=None, help="12 if neither this nor --bytes decides")
    p.add_argument("--experts", type=int, default=None, help="a MoE layer; 96 if neither this nor --bytes decides")
    p.add_argument("--top-k", type=int, default=8)
    p.add_argument("--shared", type=int, default=1, help="shared experts")
    p.add_argument("--latent", type=int, default=None, help="default hidden/2")
    p.add_argument("--moe-intermediate", type=int, default=None, help="default hidden")
    p.add_argument("--intermediate", type=int, default=None, help="of the dense first layer; default 4*hidden")
    p.add_argument("--heads", type=int, default=8, help="of KDA and of MLA")
    p.add_argument("--head-dim", type=int, default=64)
    p.add_argument("--rope-dim", type=int, default=32)
    p.add_argument("--q-lora", type=int, default=None, help="default hidden/4")
    p.add_argument("--kv-lora", type=int, default=None, help="default hidden/8")
    p.add_argument("--attn-res-block", type=int, default=4)
    p.add_argument("--vocab", type=int, default=4096)
    p.add_argument("--context", type=int, default=32768)
    p.add_argument("--shard-bytes", type=parse_bytes, default=parse_bytes("256MiB"))
    p.add_argument("--seed", type=int, default=1)
    o = p.parse_args()
    for name, value in dict(latent=o.hidden // 2, moe_intermediate=o.hidden, intermediate=4 * o.hidden, q_lora=o.hidden // 4,
                            kv_lora=o.hidden // 8).items():
        if getattr(o, name) is None:
            setattr(o, name, value)
    for name in ("latent", "moe_intermediate"):
        if getattr(o, name) < 32 or getattr(o, name) % 32:
            p.error(f"--{name.replace('_', '-')} is {getattr(o, name)}, expected a multiple of 32 (MXFP4)")
    for name in ("hidden", "top_k", "heads", "head_dim", "rope_dim", "q_lora", "kv_lora", "intermediate", "vocab", "context"):
        if getattr(o, name) < 1:
            p.error(f"--{name.replace('_', '-')} is {getattr(o, name)}, expected at least 1")
    given_experts = o.experts is not None
    given_layers = o.layers is not None
    o.layers = o.layers or 12
    o.experts = o.experts or max(64, o.top_k)
    wanted = o.bytes if o.bytes is not None else parse_bytes("1.2GB") if not (given_experts or given_layers) else None
    if wanted is not None and not given_experts:
        fit(o, wanted, "experts", o.top_k)
    elif wanted is not None and not given_layers:
        fit(o, wanted, "layers", 2)
    if o.layers < 1 or o.experts < o.top_k:
        p.error(f"{o.layers} layers of {o.experts} experts, {o.top_k} chosen: expected at least one layer and as many experts as are chosen")

    os.makedirs(o.out_dir, exist_ok=True)
    config = make_config(o)
    shards = list(shards_of(o))
    total = sum(size_of(t[1], t[2]) for shard in shards for t in shard)
    packed = sum(size_of(t[1], t[2]) for shard in shards for t in shard if t[1] == "U8")
    weight_map = {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):06d}.safetensors"
        write_shard(os.path.join(o.out_dir, name), tensors, np.random.default_rng([o.seed, number]))
        weight_map.update({t[0]: name for t in tensors})
    with open(os.path.join(o.out_dir, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    with open(os.path.join(o.out_dir, "model.safetensors.index.json"), "w") as f:
        json.dump(dict(metadata=dict(total_size=total), weight_map=weight_map), f, indent=1)
    if o.vocab == 4096:
        for name in TOKENIZER:
            shutil.copyfile(os.path.join(TINY, name), os.path.join(o.out_dir, name))
    print(f"{o.out_dir}: {o.layers} layers, {o.experts} experts, {len(weight_map):,} tensors in {len(shards)} shards, "
          f"{total:,} bytes, {100 * packed / total:.0f} % of them MXFP4 experts")


if __name__ == "__main__":
    sys.exit(main())
