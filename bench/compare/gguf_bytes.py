"""How many bytes of weights a token needs, from the header of a GGUF file: every matrix but the embedding, and of the experts the share
that is chosen."""
import struct

FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
MOST = 1 << 24  # no string or array of a header is longer


class Reader:
    def __init__(self, file):
        self.file = file

    def number(self, form):
        size = struct.calcsize("<" + form)
        data = self.file.read(size)
        if len(data) != size:
            raise ValueError(f"{self.file.name}: ends inside its header")
        return struct.unpack("<" + form, data)[0]

    def count(self):
        n = self.number("Q")
        if n > MOST:
            raise ValueError(f"{self.file.name}: a length of {n} at offset {self.file.tell() - 8}, expected at most {MOST}")
        return n

    def string(self):
        return self.file.read(self.count()).decode("utf-8", "replace")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            element = self.number("I")
            return [self.value(element) for _ in range(self.count())]
        return self.number(FORMS[kind])


def tensors(path):
    """Metadata, and name -> bytes. A tensor's size is what lies between its offset and the next one's, so padding counts."""
    with open(path, "rb") as file:
        r = Reader(file)
        if file.read(4) != b"GGUF" or r.number("I") not in (2, 3):
            raise ValueError(f"{path}: not a GGUF file of version 2 or 3")
        tensor_count, pair_count = r.count(), r.count()
        metadata = {}
        for _ in range(pair_count):
            key = r.string()
            metadata[key] = r.value(r.number("I"))
        offsets = {}
        for _ in range(tensor_count):
            name = r.string()
            for _ in range(r.number("I")):
                r.number("Q")
            r.number("I")
            offsets[name] = r.number("Q")
        alignment = metadata.get("general.alignment", 32)
        data = -(-file.tell() // alignment) * alignment
        end = file.seek(0, 2) - data
    order = sorted(offsets, key=offsets.get)
    ends = [offsets[name] for name in order[1:]] + [end]
    return metadata, {name: e - offsets[name] for name, e in zip(order, ends)}


def bytes_per_token(path):
    metadata, sizes = tensors(path)
    arch = metadata["general.architecture"]
    experts = metadata.get(arch + ".expert_count", 0)
    used = metadata.get(arch + ".expert_used_count", 0) / experts if experts else 1
    total = 0.0
    for name, size in sizes.items():
        if name == "token_embd.weight" and "output.weight" in sizes:
            continue
        total += size * used if "_exps." in name else size
    return round(total)
