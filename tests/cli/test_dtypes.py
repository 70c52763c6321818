"""A checkpoint whose trunk is stored in F32: the header has the last word. In `exact` the bits are those of the BF16 original; in `fast`
whoever keeps weights in F32 gets activations in F32."""
import json
import shutil
import struct

from harness import RANDOM_LINEAR, Case, ids_text, main, read_json


def widen(source, target):
    """The same safetensors file with every BF16 tensor in F32."""
    data = source.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    out, blobs, at = {}, [], 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = body[begin:end]
        if entry["dtype"] == "BF16":
            raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
        out[name] = {"dtype": "F32", "shape": entry["shape"], "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        blobs.append(raw)
    text = json.dumps(out).encode()
    target.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


class Types(Case):
    def test_f32_trunk(self):
        ids = ids_text(read_json(RANDOM_LINEAR / "golden.json")["ids"])
        for dtype in ("float32", "bfloat16"):
            model = self.directory / dtype
            model.mkdir()
            config = read_json(RANDOM_LINEAR / "config.json")
            config["dtype"] = dtype
            (model / "config.json").write_text(json.dumps(config))
            for shard in RANDOM_LINEAR.glob("*.safetensors"):
                widen(shard, model / shard.name)
            expected = self.run_ok("logits", RANDOM_LINEAR, "--ids", ids, "--profile", "exact", "--digest")
            self.assertEqual(self.run_ok("logits", model, "--ids", ids, "--profile", "exact", "--digest"), expected)
            local = self.run_ok("logits", model, "--ids", ids, "--digest")
            self.assertEqual(self.run_ok("logits", model, "--ids", ids, "--digest", "--interpreter"), local)
            self.assertEqual(self.run_ok("logits", model, "--ids", ids, "--digest", "--nodes", 2), local)
            shutil.rmtree(model)


if __name__ == "__main__":
    main()
