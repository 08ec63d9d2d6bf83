"""What every drafter uses of the target without changing it."""
import dataclasses

import torch

from .target import Shape
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

    @classmethod
    def of(cls, target, vocabulary, device="cpu", kind=torch.bfloat16):
        return cls(target.shape, vocabulary.to(device), target.embed.to(device, kind),
                   target.head[vocabulary.ids].to(device, kind), target.norm.to(device), device,
                   kind)

    def autocast(self):
        return torch.autocast(self.device.split(":")[0], dtype=torch.bfloat16,
                              enabled=self.kind == torch.bfloat16)
