"""Torch checkpoints (.pt, .bin) of published drafters as safetensors, names and numbers unchanged.

Such files are pickles: reading one can run any program it holds. torch.load(weights_only=True) reads
tensors alone and refuses everything else. evalrun reads safetensors only.
"""
import pathlib
import pickle
import shutil

import torch

from . import tensorfile
from .errors import Failure
from .progress import say


def add_options(parser):
    parser.add_argument("source", metavar="IN", help="medusa_lm_head.pt, pytorch_model.bin, ...")
    parser.add_argument("out", metavar="OUT", help="the .safetensors file to write; config.json of "
                                                   "IN's folder is copied beside it")


def tensors_of(source):
    """Name -> tensor of a checkpoint; a state dict may be wrapped once."""
    try:
        loaded = torch.load(source, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise Failure(source, "does not exist") from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        first = str(error).strip().split("\n", 1)[0]
        raise Failure(source, f"is cut off, no torch checkpoint, or holds more than tensors ({first})",
                      "fetch it again; programs in checkpoints are not run") from error
    for key in ("state_dict", "model"):
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict) or not loaded or not all(
            isinstance(name, str) and torch.is_tensor(t) for name, t in loaded.items()):
        raise Failure(source, "is no mapping of names to tensors",
                      "expected a state dict, as torch.save(model.state_dict()) writes it")
    return loaded


def run(options):
    source, out = pathlib.Path(options.source), pathlib.Path(options.out)
    if out.suffix != ".safetensors":
        raise Failure("OUT", f"'{out}' must end in .safetensors", code=2)
    tensors = {}
    for name, tensor in tensors_of(source).items():
        if tensor.dtype in (torch.bool, torch.float64):
            tensor = tensor.to(torch.uint8 if tensor.dtype == torch.bool else torch.float32)
        if tensor.dtype not in tensorfile.NAMES:
            raise Failure(source, f"tensor {name} has the type {tensor.dtype}")
        tensors[name] = tensor.contiguous()
    size = tensorfile.write(out, tensors, {"converted_from": source.name})
    config = source.parent / "config.json"
    if config.exists() and not (out.parent / "config.json").exists():
        shutil.copyfile(config, out.parent / "config.json")
    say(f"{out}: {len(tensors)} tensors, {size / 1e6:.1f} MB")
