"""Adapter files: what training hands to the engine. One safetensors file per trained drafter.

Matrices are [out, in]; int8 ones carry `<name>.scale`, float32 [out], weight = scale[o] * q[o, i].
Which tensors a method has and what they mean: methods/training/README.md.
"""
import json

import torch

from . import tensorfile
from .errors import Failure

FORMAT, VERSION = "evalrun-adapter", "1"


def quantise(weight):
    """(int8 [out, in], float32 scale [out]): symmetric, one scale per row."""
    weight = weight.detach().float().cpu()
    scale = weight.abs().amax(1) / 127
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return torch.round(weight / scale[:, None]).clamp(-127, 127).to(torch.int8), scale


def pack(tensors, kind, bf16_tensors=()):
    """{name: tensor} as stored. kind: int8, bf16 or f32; vectors stay float32."""
    stored = {}
    for name in sorted(tensors):
        tensor = tensors[name].detach().float().cpu()
        if tensor.dim() == 1 or kind == "f32":
            stored[name] = tensor
        elif kind == "bf16" or name in bf16_tensors:
            stored[name] = tensor.to(torch.bfloat16)
        else:
            stored[name], stored[f"{name}.scale"] = quantise(tensor)
    return stored


def unpack(stored):
    """{name: float32 tensor}, without draft_vocab."""
    tensors = {}
    for name, tensor in stored.items():
        if name == "draft_vocab" or name.endswith(".scale"):
            continue
        if tensor.dtype == torch.int8:
            tensor = tensor.float() * stored[f"{name}.scale"][:, None]
        tensors[name] = tensor.float().clone()
    return tensors


def write(path, module, capture_model, kind="int8", tree=None, training=None):
    """Writes the adapter of a trained module; returns its size in bytes."""
    frozen = module.frozen
    stored = pack(module.fold(), kind, module.bf16_tensors)
    if not frozen.vocabulary.is_complete:
        stored["draft_vocab"] = frozen.vocabulary.ids.to(torch.int32).cpu()
    metadata = {
        "format": FORMAT, "version": VERSION, "method": module.name,
        "target_name": str(capture_model["name"]), "target_hash": str(capture_model["hash"]),
        "d_model": str(frozen.shape.d_model), "vocab_size": str(frozen.shape.vocab_size),
        "config": json.dumps(module.config())}
    if tree is not None:
        metadata["tree"] = json.dumps(tree)
    if training is not None:
        metadata["training"] = json.dumps(training)
    return tensorfile.write(path, stored, metadata)


def set_metadata(path, **objects):
    """Replaces metadata entries (JSON objects) of a written adapter."""
    stored, metadata = tensorfile.read(path)
    stored = {name: tensor.clone() for name, tensor in stored.items()}
    return tensorfile.write(path, stored, metadata | {k: json.dumps(v) for k, v in objects.items()})


def read(path):
    """(stored tensors, metadata with config, tree and training as objects)."""
    stored, metadata = tensorfile.read(path)
    if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
        raise Failure(path, f"is no {FORMAT} of version {VERSION}", "train it again")
    for field in ("method", "config", "d_model", "vocab_size"):
        if field not in metadata:
            raise Failure(path, f"metadata field {field} is missing", "train it again")
    parsed = dict(metadata)
    for field in ("config", "tree", "training"):
        if field in metadata:
            parsed[field] = json.loads(metadata[field])
    return stored, parsed


def load(path, methods, frozen_for):
    """The module of an adapter file, for evaluation. frozen_for(draft ids or None) -> Frozen."""
    stored, metadata = read(path)
    if metadata["method"] not in methods:
        raise Failure(path, f"method {metadata['method']} is unknown",
                      f"known: {', '.join(methods)}")
    kind = methods[metadata["method"]]
    ids = stored["draft_vocab"].long() if "draft_vocab" in stored else None
    tensors, config = unpack(stored), metadata["config"]
    if hasattr(kind, "config_of"):
        config = kind.config_of(tensors, config)
    frozen = frozen_for(ids)
    module = kind(frozen, config)
    own = dict(module.named_parameters())
    missing = sorted(set(own) - set(tensors))
    surplus = sorted(set(tensors) - set(own))
    if missing or surplus:
        raise Failure(path, f"tensor {(missing + surplus)[0]} is "
                            f"{'missing' if missing else 'unknown'}",
                      "train it again")
    with torch.no_grad():
        for name, parameter in own.items():
            if parameter.shape != tensors[name].shape:
                raise Failure(path, f"tensor {name} has the shape {list(tensors[name].shape)}, not "
                              f"{list(parameter.shape)}", "is this adapter for this target?")
            parameter.copy_(tensors[name])
    return module.to(frozen.device), metadata
