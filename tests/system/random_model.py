"""A checkpoint of random weights in the shape of Kimi K3, of a chosen size, without anything but Python: the tensors of
tools/make_sparse_k3.py at other sizes, filled with bytes instead of holes.

Every value is a finite number of a usual size, but no more care is taken (tools/make_random_k3.py takes it, and needs numpy): for tests
of memory and placement.
"""
import importlib.util
import json
import random
import shutil
import struct

PIECE = 1 << 20


def shape_of(source):
    """The module with the tensors' names; a copy of its own, because its sizes are changed."""
    spec = importlib.util.spec_from_file_location("k3_shape", source / "tools/make_sparse_k3.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sizes(layers, hidden, experts):
    full = sorted(set(range(4, layers + 1, 4)) | {layers})
    return dict(LAYERS=layers, HIDDEN=hidden, VOCAB=4096, KDA_HEADS=8, KDA_DIM=64, HEADS=8, Q_RANK=hidden // 4, KV_RANK=hidden // 8,
                NOPE=64, ROPE=32, V_DIM=64, EXPERTS=experts, LATENT=hidden // 2, EXPERT_INNER=hidden, SHARED=1, DENSE_INNER=4 * hidden,
                FULL=full)


def write_weights(file, dtype, size, name, rng):
    if name.endswith("_scale"):
        return file.write(bytes([121]) * size)  # 2^-6
    if dtype == "F32":
        return file.write(struct.pack("<f", 0.5) * (size // 4))
    if name.endswith("norm.weight"):
        return file.write(struct.pack("<H", 0x3F80) * (size // 2))  # 1
    signs = bytes(0x3C | (b & 0x80) for b in range(256))  # bf16 from 0.008 to 0.03, of either sign
    while size:
        piece = min(size, PIECE)
        data = rng.randbytes(piece)
        if dtype == "BF16":
            mixed = bytearray(data)
            mixed[1::2] = data[1::2].translate(signs)
            data = bytes(mixed)
        file.write(data)
        size -= piece


def make(source, out, layers, hidden, experts, top_k=8, seed=1):
    """Writes it and returns the bytes of its tensors."""
    shape = shape_of(source)
    for name, value in sizes(layers, hidden, experts).items():
        setattr(shape, name, value)
    config = shape.config(layers)
    text = config["text_config"]
    ids = dict(bos_token_id=4032, eos_token_id=4034, pad_token_id=4095)
    text.update(ids, num_experts_per_token=top_k, attn_res_block_size=4, max_position_embeddings=32768)
    config.update(ids, media_placeholder_token_id=4053)
    del config["vision_config"]
    out.mkdir(parents=True)
    (out / "config.json").write_text(json.dumps(config, indent=1))
    for name in ("tiktoken.model", "tokenizer_config.json"):
        shutil.copy(source / "models/tiny-k3" / name, out / name)
    rng = random.Random(seed)
    shards = [list(shape.layer_tensors(layer, rng)) for layer in range(layers)] + [list(shape.global_tensors())]
    total = 0
    for number, tensors in enumerate(shards, 1):
        path = out / f"model-{number:05d}-of-{len(shards):06d}.safetensors"
        _, size = shape.write_shard(path, tensors)
        with open(path, "r+b") as f:
            f.seek(8 + struct.unpack("<Q", f.read(8))[0])
            for name, dtype, dims in tensors:
                count = shape.BYTES[dtype]
                for n in dims:
                    count *= n
                write_weights(f, dtype, count, name, rng)
        total += size
    return total
