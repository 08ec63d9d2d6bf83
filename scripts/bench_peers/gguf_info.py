"""What a GGUF file holds: tensors by type, and the bytes a decoding step reads. Header only, no numpy."""
import collections
import os
import struct

# Type id -> (name, values per block, bytes per block); ggml.h.
TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
         6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84),
         11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
         14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
         18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18),
         21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
         29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
         39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18)}
FIXED = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class _Reader:
    def __init__(self, file, path):
        self.file, self.path = file, path

    def number(self, code):
        size = struct.calcsize("<" + code)
        data = self.file.read(size)
        if len(data) != size:
            raise ValueError(f"{self.path}: ends inside the GGUF header; make the file again")
        return struct.unpack("<" + code, data)[0]

    def string(self):
        return self.file.read(self.number("Q")).decode("utf-8", "replace")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            return [self.value(inner) for _ in range(count)]
        if kind not in FIXED:
            raise ValueError(f"{self.path}: unknown type {kind} of a metadata value")
        return self.number(FIXED[kind])


def read(path):
    """{"file_bytes", "tensor_bytes", "step_bytes", "parameters", "types": {type: tensors}, "embedding",
    "output", "kv_row_bytes"}.

    step_bytes: the tensors a step reads in full. An embedding that has its own output matrix beside it
    is left out: a step reads a few of its rows. kv_row_bytes: keys and values of one token in F16.
    """
    with open(path, "rb") as file:
        reader = _Reader(file, path)
        if file.read(4) != b"GGUF":
            raise ValueError(f"{path}: not a GGUF file")
        version = reader.number("I")
        if version not in (2, 3):
            raise ValueError(f"{path}: GGUF version {version}, expected 2 or 3")
        n_tensors, n_values = reader.number("Q"), reader.number("Q")
        metadata = {}
        for _ in range(n_values):
            key = reader.string()
            metadata[key] = reader.value(reader.number("I"))
        types, sizes, kinds, parameters = collections.Counter(), {}, {}, 0
        for _ in range(n_tensors):
            name = reader.string()
            count = 1
            for _ in range(reader.number("I")):
                count *= reader.number("Q")
            kind = reader.number("I")
            reader.number("Q")  # offset
            if kind not in TYPES:
                raise ValueError(f"{path}: tensor {name} has the unknown type {kind}")
            label, values, size = TYPES[kind]
            types[label] += 1
            parameters += count
            kinds[name], sizes[name] = label, count // values * size
    tensor_bytes = sum(sizes.values())
    step_bytes = tensor_bytes
    if "output.weight" in sizes:
        step_bytes -= sizes.get("token_embd.weight", 0)
    family = metadata.get("general.architecture", "")
    layers = metadata.get(family + ".block_count", 0)
    heads = metadata.get(family + ".attention.head_count", 0)
    kv_heads = metadata.get(family + ".attention.head_count_kv", heads)
    head_size = metadata.get(family + ".embedding_length", 0) // heads if heads else 0
    head_size = metadata.get(family + ".attention.key_length", head_size)
    return {"file_bytes": os.path.getsize(path), "tensor_bytes": tensor_bytes, "step_bytes": step_bytes,
            "parameters": parameters, "types": dict(types.most_common()),
            "embedding": kinds.get("token_embd.weight"),
            "output": kinds.get("output.weight", "the embedding"),
            "kv_row_bytes": layers * kv_heads * head_size * 2 * 2}


def summary(info):
    """What read() found, for people."""
    types = ", ".join(f"{count} {kind}" for kind, count in info["types"].items())
    return f"{info['file_bytes'] / 1e6:.1f} MB; {types}; embedding {info['embedding']}, head {info['output']}"
