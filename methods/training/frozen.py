"""What every drafter uses of the target without changing it."""
import dataclasses
import functools

import torch

from .target import Shape, Target
from .vocabulary import Vocabulary


@dataclasses.dataclass
class Frozen:
    """embed [V, d] and head [Vd, d] (the draft vocabulary's rows) in `kind`; the rest float32."""
    shape: Shape
    vocabulary: Vocabulary
    embed: torch.Tensor
    head: torch.Tensor
    norm: torch.Tensor
    device: str
    kind: torch.dtype  # of the GEMMs: bfloat16 or float32
    target: Target

    def target_layers(self):
        """The target's layers in float32, one at a time."""
        return (self.target.layer(i) for i in range(self.shape.n_layers))

    @functools.cached_property
    def whole_head(self):
        """[V, d]: the target's output matrix, all of it."""
        return self.target.head.to(self.device, self.kind)

    @functools.cached_property
    def layers(self):
        """The target's layers, [{name: tensor}]: matrices in `kind`, norms float32. Loaded when
        asked for."""
        return [{name: tensor.to(self.device, self.kind if tensor.dim() == 2 else torch.float32)
                 for name, tensor in layer.items()} for layer in self.target_layers()]

    @classmethod
    def of(cls, target, vocabulary, device="cpu", kind=torch.bfloat16):
        return cls(target.shape, vocabulary.to(device), target.embed.to(device, kind),
                   target.head[vocabulary.ids].to(device, kind), target.norm.to(device), device,
                   kind, target)

    def autocast(self):
        return torch.autocast(self.device.split(":")[0], dtype=torch.bfloat16,
                              enabled=self.kind == torch.bfloat16)
