"""Safetensors files: memory-mapped reading with clear errors, and atomic writing."""
import json
import os
import pathlib

import numpy as np
import torch

from .errors import Failure

# Stored name: (numpy type of the same width, torch type).
DTYPES = {"F32": ("<f4", torch.float32), "F16": ("<f2", torch.float16),
          "BF16": ("<i2", torch.bfloat16),
          "I8": ("|i1", torch.int8), "U8": ("|u1", torch.uint8), "I32": ("<i4", torch.int32),
          "I64": ("<i8", torch.int64)}
NAMES = {torch_type: name for name, (_, torch_type) in DTYPES.items()}
LARGEST_HEADER = 100 << 20


def read(path):
    """(tensors mapped into memory, metadata). Nothing is read before it is used."""
    path = pathlib.Path(path)
    try:
        size = path.stat().st_size
        with open(path, "rb") as handle:
            n = int.from_bytes(handle.read(8), "little")
            if size < 8 or n > min(size - 8, LARGEST_HEADER):
                raise Failure(path, "is cut off or no safetensors file", "make it again")
            header = json.loads(handle.read(n))
    except OSError as error:
        raise Failure(path, f"cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise Failure(path, "has a broken header", "make it again") from error
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] not in DTYPES:
            raise Failure(path, f"tensor {name} has the unknown type {entry['dtype']}")
        numpy_type, torch_type = DTYPES[entry["dtype"]]
        begin, end = entry["data_offsets"]
        shape, width = tuple(entry["shape"]), np.dtype(numpy_type).itemsize
        if 8 + n + end > size or end - begin != width * int(np.prod(shape, dtype=np.int64)):
            raise Failure(path, f"tensor {name} does not fit into the file",
                          "the file is cut off; make it again")
        if end == begin:
            tensors[name] = torch.empty(shape, dtype=torch_type)
            continue
        # Mode "c": torch warns about maps that cannot be written; nobody writes.
        array = np.memmap(path, numpy_type, "c", offset=8 + n + begin, shape=shape)
        tensors[name] = torch.from_numpy(array).view(torch_type)
    return tensors, metadata


def write(path, tensors, metadata=None):
    """Writes through a temporary file, so that a reader never sees half of it."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    header, at, parts = {}, 0, []
    if metadata:
        header["__metadata__"] = metadata
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        n = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [at, at + n]}
        at += n
        parts.append(tensor)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as handle:
        handle.write(len(text).to_bytes(8, "little") + text)
        for tensor in parts:
            handle.write(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(temporary, path)
    return path.stat().st_size
