"""The first layers of a GGUF model as a model of its own, to draft for the whole one.

    cut_layers.py SOURCE.gguf LAYERS TARGET.gguf

Embedding, last norm, output matrix and tokenizer stay as they are, bit by bit. scripts/serve calls it with a Python
that has the package gguf.
"""
import os
import pathlib
import re
import sys

LAYER = re.compile(r"blk\.(\d+)\.")


def is_kept(tensor, layers):
    """Whether a tensor of this name belongs to the first `layers` layers, or to none."""
    layer = LAYER.match(tensor)
    return layer is None or int(layer.group(1)) < layers


def cut_value(key, value, family, whole, layers):
    """The value of a metadata key in the cut model: `whole` layers are `layers` now."""
    if key == f"{family}.block_count":
        return layers
    # Layers at the end that predict further tokens are cut off, too.
    if key == f"{family}.nextn_predict_layers":
        return 0
    # One value for each layer.
    if key.startswith(f"{family}.") and isinstance(value, list) and len(value) == whole:
        return value[:layers]
    return value


def cut(source, layers, target):
    """Writes the target, which appears when it is complete. ValueError where the source cannot be cut so."""
    import gguf
    try:
        reader = gguf.GGUFReader(source)
    except (ValueError, IndexError) as error:  # not the format, or cut off
        raise ValueError(f"{source} is no GGUF file that can be read: {error}") from error
    values = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    family = values.get("general.architecture")
    whole = values.get(f"{family}.block_count")
    if not isinstance(whole, int):
        raise ValueError(f"{source}: {family}.block_count is missing, so its layers cannot be counted")
    if values.get("split.count", 1) > 1:
        raise ValueError(f"{source} is one part of a model; join them with llama-gguf-split --merge")
    if not 1 <= layers < whole:
        raise ValueError(f"{source} has {whole} layers: 1 to {whole - 1} of them can be kept, not {layers}")
    target = pathlib.Path(target)
    part = target.with_name(target.name + ".part")
    writer = gguf.GGUFWriter(part, family, endianess=reader.endianess)
    writer.data_alignment = int(reader.alignment)
    for key, value in values.items():
        if key == "general.architecture" or value == []:
            continue  # the writer has the first, and writes no empty lists
        kinds = reader.fields[key].types
        inner = kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, cut_value(key, value, family, whole, layers), kinds[0], inner)
    kept = [tensor for tensor in reader.tensors if is_kept(tensor.name, layers)]
    for tensor in kept:
        data = tensor.data
        writer.add_tensor_info(tensor.name, data.shape, data.dtype, data.nbytes, tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in kept:
        writer.write_tensor_data(tensor.data, tensor_endianess=reader.endianess)
    writer.close()
    os.replace(part, target)


def main(arguments):
    if len(arguments) != 3 or not arguments[1].isdecimal():
        print(__doc__, file=sys.stderr)
        return 2
    try:
        cut(arguments[0], int(arguments[1]), arguments[2])
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 7
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
