"""A device that is none: what is "on" it are CPU tensors, and an operation of theirs with others is an
error, as on a GPU. Its name is PyTorch's `meta`, which has no values of its own."""
import contextlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = "meta"
MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
# Tensors on a device may be indexed by those of the CPU.
INDEXES = {torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default,
           torch.ops.aten._index_put_impl_.default}


class OnDevice(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device=DEVICE)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, operation, types, arguments=(), named=None):
        return run(operation, arguments, named or {})

    def __reduce_ex__(self, protocol):  # of torch.save
        return self.inner.__reduce_ex__(protocol)

    def tolist(self):
        return self.inner.tolist()

    def numpy(self):
        raise RuntimeError("numpy() of a tensor on a device")


class Mode(TorchDispatchMode):
    """Tensors that are made on the device are such ones, too."""

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        return run(operation, arguments, named or {})


def is_on(x):
    return isinstance(x, OnDevice)


def run(operation, arguments, named):
    tensors = [x for x in tree_leaves((arguments, named)) if isinstance(x, torch.Tensor)]
    there, here = [x for x in tensors if is_on(x)], [x for x in tensors if not is_on(x)]
    result_there = bool(there)
    if named.get("device") is not None:
        result_there = torch.device(named["device"]).type == DEVICE
        named = named | {"device": "cpu"}
    allowed = operation in MOVES or operation in INDEXES and is_on(arguments[0])
    if there and not allowed and any(x.dim() > 0 for x in here):
        raise RuntimeError(f"{operation}: tensors of two devices")
    result = operation(*tree_map(inner_of, arguments), **tree_map(inner_of, named))
    if operation._schema.name.endswith("_") and not operation._schema.name.endswith("__"):
        return arguments[0] if isinstance(arguments[0], torch.Tensor) else None
    return tree_map(outer_of, result) if result_there else result


def inner_of(x):
    return x.inner if is_on(x) else x


def outer_of(x):
    return OnDevice(x) if isinstance(x, torch.Tensor) and not is_on(x) else x


@contextlib.contextmanager
def device(monkeypatch):
    """Until its end there is DEVICE. It has no autocast: give --precision f32."""
    tensor = torch.tensor
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    # It is made on the CPU and moved in one step that no mode sees.
    monkeypatch.setattr(torch, "tensor", lambda data, *, device="cpu", **named:
                        tensor(data, **named).to(device))
    with Mode():
        yield
    monkeypatch.undo()
