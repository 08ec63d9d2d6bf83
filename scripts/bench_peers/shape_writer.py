"""Writes a shape as an F16 GGUF file, tensor by tensor; needs numpy and the gguf package."""
import gguf
import numpy as np

from . import shapes

PIECE = 1 << 22  # values drawn at once
BIAS_DEVIATION = 0.1


def copy_tokenizer(writer, source, size):
    """The tokenizer of a model file, with `size` tokens."""
    fields = {key: field for key, field in gguf.GGUFReader(source).fields.items()
              if key.startswith("tokenizer.")}
    values = {key: field.contents() for key, field in fields.items()}
    ours = "tokenizer.ggml."
    tokens = values[ours + "tokens"]
    types = values.get(ours + "token_type", [1] * len(tokens))
    tokens, types, merges = shapes.vocabulary(tokens, types, values.get(ours + "merges", []), size)
    for key, value in {"tokens": tokens, "token_type": types, "merges": merges}.items():
        if ours + key in values:
            values[ours + key] = value
    if ours + "scores" in values:
        values[ours + "scores"] = (values[ours + "scores"] + [0.0] * size)[:size]
    for key, value in values.items():
        kinds = fields[key].types
        writer.add_key_value(key, value, kinds[0], kinds[-1] if len(kinds) > 1 else None)


def draw(name, shape, config, rng):
    """Matrices: deviation 1 / sqrt(inputs), so that values keep their size from layer to layer."""
    if name == "rope_freqs.weight":
        return np.asarray(shapes.rope_factors(config), dtype=np.float32)
    if len(shape) == 1:
        return np.ones(shape, np.float32) if name.endswith("norm.weight") else (
            BIAS_DEVIATION * rng.standard_normal(shape, dtype=np.float32))
    values = np.empty(shape, dtype=np.float16)
    flat = values.reshape(-1)
    deviation = np.float32(shape[1] ** -0.5)
    for begin in range(0, flat.size, PIECE):
        part = flat[begin:begin + PIECE]
        part[:] = rng.standard_normal(part.size, dtype=np.float32) * deviation
    return values


def write(target, shape, tokenizer, seed):
    config = shape["config"]
    writer = gguf.GGUFWriter(target, shapes.FAMILIES[config["model_type"]])
    for key, value in shapes.metadata(shape).items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(key, value)
    copy_tokenizer(writer, tokenizer, config["vocab_size"])
    listed = shapes.tensors(config)
    for name, size in listed:
        kind = np.dtype(np.float16 if len(size) == 2 else np.float32)
        writer.add_tensor_info(name, size, kind, int(np.prod(size)) * kind.itemsize)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for index, (name, size) in enumerate(listed):
        # A generator per tensor: what one holds depends on no other.
        writer.write_tensor_data(draw(name, size, config, np.random.default_rng([seed, index])))
    writer.close()
