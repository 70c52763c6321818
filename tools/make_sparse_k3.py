#!/usr/bin/env python3
"""Writes a sparse full-size Kimi K3 checkpoint: the real config, names, types and shapes, 96 shards, and holes for weights.

  make_sparse_k3.py OUT_DIR [--index] [--layers N] [--seed N]

497,220 tensors and 1,560,860,324,864 bytes of tensor data, of which the disk holds only the headers (about 80 MB): the files are
extended by truncation and read as zeros, so the file system must support sparse files.  As in the released files, layer k lies in
shard k+1, the shared tensors in the last three, and the experts of a layer in no numeric order, the six tensors of one side by
side.  For tests of reading, planning and cutting at full scale.  --layers keeps the first N layers (shards) only.
Needs Python 3 alone.
"""
import argparse
import json
import os
import random
import struct
import sys

LAYERS, HIDDEN, VOCAB = 93, 7168, 163840
KDA_HEADS, KDA_DIM, TAPS = 96, 128, 4
HEADS, Q_RANK, KV_RANK, NOPE, ROPE, V_DIM = 96, 1536, 512, 128, 64, 128
EXPERTS, LATENT, EXPERT_INNER, SHARED, DENSE_INNER = 896, 3584, 3072, 2, 33792
FULL = list(range(4, 93, 4)) + [93]  # MLA layers, 1-based
BYTES = {"BF16": 2, "F32": 4, "U8": 1}


def config(layers):
    full = [l for l in FULL if l <= layers]
    quantization = dict(
        quant_method="compressed-tensors", format="mxfp4-pack-quantized", quantization_status="compressed",
        config_groups=dict(group_0=dict(
            format="mxfp4-pack-quantized", targets=["Linear"],
            weights=dict(num_bits=4, type="float", strategy="group", group_size=32, symmetric=True, dynamic=False,
                         observer="minmax", scale_dtype="torch.uint8"))),
        ignore=["re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*",
                "re:.*vision_tower.*", "re:.*mm_projector.*"])
    text = dict(
        model_type="kimi_linear", architectures=["KimiLinearForCausalLM"], dtype="bfloat16", hidden_size=HIDDEN,
        num_hidden_layers=layers, num_attention_heads=HEADS, num_key_value_heads=HEADS, q_lora_rank=Q_RANK,
        kv_lora_rank=KV_RANK, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, v_head_dim=V_DIM, mla_use_nope=True,
        mla_use_output_gate=True, rms_norm_eps=1e-5, intermediate_size=DENSE_INNER, first_k_dense_replace=1,
        moe_layer_freq=1, moe_intermediate_size=EXPERT_INNER, num_experts=EXPERTS, num_experts_per_token=16,
        num_shared_experts=SHARED, routed_expert_hidden_size=LATENT, latent_moe_use_norm=True, moe_renormalize=True,
        moe_router_activation_func="sigmoid", routed_scaling_factor=1.0, use_grouped_topk=True, topk_method="noaux_tc",
        num_expert_group=1, topk_group=1, hidden_act="situ", activation_situ_beta=4.0, activation_situ_linear_beta=25.0,
        attn_res_block_size=12, num_nextn_predict_layers=0, max_position_embeddings=1048576, vocab_size=VOCAB,
        tie_word_embeddings=False, bos_token_id=163584, eos_token_id=163586, pad_token_id=163839, use_cache=True,
        initializer_range=0.02,
        linear_attn_config=dict(full_attn_layers=full, kda_layers=[l for l in range(1, layers + 1) if l not in full],
                                head_dim=KDA_DIM, num_heads=KDA_HEADS, short_conv_kernel_size=TAPS, gate_lower_bound=-5.0,
                                use_full_rank_gate=True),
        quantization_config=quantization)
    vision = dict(
        activation_func="gelu_pytorch_tanh", attn_bias=False, linear_bias=False, patch_embed_proj_bias=False, patch_size=14,
        init_pos_emb_height=64, init_pos_emb_width=64, init_pos_emb_time=4, pos_emb_type="divided_fixed",
        pos_emb_interpolation_mode="bilinear", merge_kernel_size=[2, 2], merge_type="sd2_tpool", norm_type="rmsnorm",
        mlp_type="mlp2", vt_hidden_size=1024, vt_intermediate_size=4096, vt_num_attention_heads=12, vt_num_hidden_layers=27,
        qkv_hidden_size=1536, mm_hidden_size=1024, mm_projector_type="patchmergerv2", projector_hidden_act="gelu",
        projector_ln_eps=1e-5, text_hidden_size=HIDDEN)
    return dict(architectures=["KimiK3ForConditionalGeneration"], model_type="kimi_k3", dtype="bfloat16",
                bos_token_id=163584, eos_token_id=163586, pad_token_id=163839, ignore_index=-100,
                image_placeholder="<|kimi_image_placeholder|>", media_placeholder_token_id=163605,
                tie_word_embeddings=False, text_config=text, vision_config=vision)


def attention(prefix, layer):
    width = KDA_HEADS * KDA_DIM
    if layer + 1 in FULL:
        yield prefix + "q_a_proj.weight", "BF16", (Q_RANK, HIDDEN)
        yield prefix + "q_a_layernorm.weight", "BF16", (Q_RANK,)
        yield prefix + "q_b_proj.weight", "BF16", (HEADS * (NOPE + ROPE), Q_RANK)
        yield prefix + "kv_a_proj_with_mqa.weight", "BF16", (KV_RANK + ROPE, HIDDEN)
        yield prefix + "kv_a_layernorm.weight", "BF16", (KV_RANK,)
        yield prefix + "kv_b_proj.weight", "BF16", (HEADS * (NOPE + V_DIM), KV_RANK)
        yield prefix + "g_proj.weight", "BF16", (HEADS * V_DIM, HIDDEN)
        yield prefix + "o_proj.weight", "BF16", (HIDDEN, HEADS * V_DIM)
        return
    for name in ("q", "k", "v", "g"):
        yield f"{prefix}{name}_proj.weight", "BF16", (width, HIDDEN)
    for name in ("q", "k", "v"):
        yield f"{prefix}{name}_conv1d.weight", "F32", (width, 1, TAPS)
    yield prefix + "A_log", "F32", (-(-KDA_HEADS // 128) * 128,)
    yield prefix + "dt_bias", "F32", (width,)
    yield prefix + "o_norm.weight", "F32", (KDA_DIM,)
    yield prefix + "f_a_proj.weight", "BF16", (KDA_DIM, HIDDEN)
    yield prefix + "f_b_proj.weight", "BF16", (width, KDA_DIM)
    yield prefix + "b_proj.weight", "BF16", (KDA_HEADS, HIDDEN)
    yield prefix + "o_proj.weight", "BF16", (HIDDEN, width)


def layer_tensors(layer, rng):
    p = f"language_model.model.layers.{layer}."
    for name in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"):
        yield p + name + ".weight", "BF16", (HIDDEN,)
    for name in ("self_attention_res_proj", "mlp_res_proj"):
        yield p + name + ".weight", "BF16", (1, HIDDEN)
    yield from attention(p + "self_attn.", layer)
    if layer == 0:
        for name in ("gate_proj", "up_proj"):
            yield f"{p}mlp.{name}.weight", "BF16", (DENSE_INNER, HIDDEN)
        yield p + "mlp.down_proj.weight", "BF16", (HIDDEN, DENSE_INNER)
        return
    m = p + "block_sparse_moe."
    yield m + "gate.weight", "BF16", (EXPERTS, HIDDEN)
    yield m + "gate.e_score_correction_bias", "F32", (EXPERTS,)
    yield m + "routed_expert_down_proj.weight", "BF16", (LATENT, HIDDEN)
    yield m + "routed_expert_up_proj.weight", "BF16", (HIDDEN, LATENT)
    yield m + "routed_expert_norm.weight", "BF16", (LATENT,)
    for name in ("gate_proj", "up_proj"):
        yield f"{m}shared_experts.{name}.weight", "BF16", (SHARED * EXPERT_INNER, HIDDEN)
    yield m + "shared_experts.down_proj.weight", "BF16", (HIDDEN, SHARED * EXPERT_INNER)
    order = list(range(EXPERTS))
    rng.shuffle(order)
    for expert in order:
        matrices = [("w1", EXPERT_INNER, LATENT), ("w2", LATENT, EXPERT_INNER), ("w3", EXPERT_INNER, LATENT)]
        rng.shuffle(matrices)
        for name, rows, cols in matrices:
            w = f"{m}experts.{expert}.{name}.weight"
            yield w + "_packed", "U8", (rows, cols // 2)
            yield w + "_scale", "U8", (rows, cols // 32)


def global_tensors():
    p = "language_model."
    yield p + "model.embed_tokens.weight", "BF16", (VOCAB, HIDDEN)
    yield p + "lm_head.weight", "BF16", (VOCAB, HIDDEN)
    yield p + "model.norm.weight", "BF16", (HIDDEN,)
    yield p + "model.output_attn_res_norm.weight", "BF16", (HIDDEN,)
    yield p + "model.output_attn_res_proj.weight", "BF16", (1, HIDDEN)


def projector_tensors():
    yield "mm_projector.proj.0.weight", "BF16", (4096, 4096)
    yield "mm_projector.proj.2.weight", "BF16", (HIDDEN, 4096)
    yield "mm_projector.post_norm.weight", "BF16", (HIDDEN,)


def vision_tensors():
    v = "vision_tower."
    yield v + "patch_embed.proj.weight", "BF16", (1024, 3, 14, 14)
    yield v + "patch_embed.pos_emb.weight", "BF16", (64, 64, 1024)
    for block in range(27):
        b = f"{v}encoder.blocks.{block}."
        yield b + "wqkv.weight", "BF16", (4608, 1024)
        yield b + "wo.weight", "BF16", (1024, 1536)
        yield b + "mlp.fc0.weight", "BF16", (4096, 1024)
        yield b + "mlp.fc1.weight", "BF16", (1024, 4096)
        yield b + "norm0.weight", "BF16", (1024,)
        yield b + "norm1.weight", "BF16", (1024,)
    yield v + "encoder.final_layernorm.weight", "BF16", (1024,)


def write_shard(path, tensors):
    """A header and a hole; returns the names, how many they are and the bytes of data."""
    header, offset = {}, 0
    for name, dtype, shape in tensors:
        size = BYTES[dtype]
        for n in shape:
            size *= n
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=(offset, offset + size))
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + offset)
    return list(header), offset


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir")
    parser.add_argument("--index", action="store_true", help="write model.safetensors.index.json too")
    parser.add_argument("--layers", type=int, default=LAYERS, help="keep the first N layers only (1 to 93)")
    parser.add_argument("--seed", type=int, default=1, help="of the order of experts")
    a = parser.parse_args()
    if not 1 <= a.layers <= LAYERS:
        parser.error(f"--layers is {a.layers}, expected 1 to {LAYERS}")
    os.makedirs(a.out_dir, exist_ok=True)
    rng = random.Random(a.seed)
    contents = [layer_tensors(layer, rng) for layer in range(a.layers)]
    contents += [global_tensors(), projector_tensors(), vision_tensors()]
    weight_map, total, count = {}, 0, 0
    for number, tensors in enumerate(contents, 1):
        name = f"model-{number:05d}-of-{len(contents):06d}.safetensors"
        names, size = write_shard(os.path.join(a.out_dir, name), tensors)
        total += size
        count += len(names)
        if a.index:
            weight_map.update(dict.fromkeys(names, name))
    with open(os.path.join(a.out_dir, "config.json"), "w") as f:
        json.dump(config(a.layers), f, indent=1)
    if a.index:
        with open(os.path.join(a.out_dir, "model.safetensors.index.json"), "w") as f:
            json.dump(dict(metadata=dict(total_size=total), weight_map=weight_map), f, indent=1)
    on_disk = sum(os.stat(os.path.join(a.out_dir, f)).st_blocks * 512 for f in os.listdir(a.out_dir))
    print(f"{a.out_dir}: {count:,} tensors, {total:,} bytes of data in {len(contents)} shards; {on_disk:,} bytes on disk")
    if on_disk > total // 4:
        print("this file system does not keep holes: use one that does", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
