"""BiTA (Lin et al. 2024, arXiv 2401.12522): mask embeddings and a prefix that only mask rows see.

The target is frozen. `prompt`: deep (keys and values of P tokens in every layer), shallow (P input
embeddings that run through the target once, at positions 0..P-1) or none. A shallow prompt sees
itself alone, so that the adapter holds its keys and values like a deep one's.
"""
import torch
from torch import nn
from torch.nn import functional

from . import layers, mask_rows

PROMPTS = ("deep", "shallow", "none")
RECIPES = {
    "small": {"masks": 3, "prefix_length": 16, "prompt": "deep", "prefix_heads": "kv", "groups": 64,
              "batch": 1, "lr": 1e-2, "mask_rate": 1.0, "warmup": 20, "clip": 1.0,
              "clip_kind": "norm", "weight_decay": 0.0, "decay": 0.8, "labels": "16",
              "hard_share": 0.0, "splits": "random", "distinct": True, "dropout": 0.0,
              "vocabulary": 12288},
    # The paper's and its program's: consecutive splits, hard labels, dropout on the prefix.
    "paper": {"masks": 3, "prefix_length": 16, "prompt": "deep", "prefix_heads": "all",
              "groups": 64, "batch": 128, "lr": 3e-2, "mask_rate": 1.0, "warmup": 1, "clip": 1.0,
              "clip_kind": "norm", "weight_decay": 0.01, "decay": 1.0, "labels": "full",
              "hard_share": 1.0, "splits": "consecutive", "distinct": True, "dropout": 0.1,
              "vocabulary": 0},
}


class Bita(mask_rows.MaskRows):
    name = "bita"

    def __init__(self, frozen, config):
        super().__init__(frozen, config)
        shape = self.shape
        self.prompt, self.length = config["prompt"], config["prefix_length"]
        self.heads = config.get("prefix_heads", "kv")
        self.dropout = config.get("dropout", 0.0)
        self.soft = None
        width = (shape.n_heads if self.heads == "all" else shape.n_kv_heads) * shape.head_dim
        if self.prompt == "deep":
            self.banks = nn.ModuleList(mask_rows.Bank(self.length, width)
                                       for _ in range(shape.n_layers))
            self.bf16_tensors = ("mask_embed", *(f"banks.{i}.{x}" for i in range(shape.n_layers)
                                                 for x in "kv"))
        elif self.prompt == "shallow":
            self.soft = nn.Parameter(torch.zeros(self.length, shape.d_model))
        self.shallow = None

    @staticmethod
    def add_options(parser):
        mask_rows.MaskRows.add_options(parser)
        parser.add_argument("--prefix-length", type=int, help="prefix tokens (P)")
        parser.add_argument("--prompt", choices=PROMPTS, help="kind of prefix")
        parser.add_argument("--prefix-heads", choices=("kv", "all"),
                            help="heads of the prefix: the target's key/value heads, or all of its "
                                 "query heads as in the released program")
        parser.add_argument("--dropout", type=float, help="of the prefix, in training")

    @staticmethod
    def configure(options, shape):
        return {"masks": options.masks, "prompt": options.prompt,
                "prefix_length": 0 if options.prompt == "none" else options.prefix_length,
                "prefix_heads": "kv" if options.prompt == "shallow" else options.prefix_heads,
                "dropout": options.dropout, "distinct": options.distinct}

    @classmethod
    def config_of(cls, tensors, config):
        """Adapters hold keys and values, whatever they were made of."""
        has = "banks.0.k" in tensors
        return config | {"prompt": "deep" if has else "none", "dropout": 0.0}

    def config(self):
        return super().config() | {"prefix_length": self.length, "prefix_heads": self.heads,
                                   "prompt": self.prompt}

    @torch.no_grad()
    def start(self, target, statistics):
        super().start(target, statistics)
        if self.soft is not None:
            frequent = self.frozen.embed[self.frozen.vocabulary.most_frequent(200)].float()
            self.soft.copy_(frequent[torch.randperm(len(frequent))[:self.length]])

    def run_masks(self, text, bases):
        self.shallow = self.run_soft() if self.soft is not None else None
        return super().run_masks(text, bases)

    def run_soft(self):
        """[(keys, values)] [1, KV, P, head_dim] per layer of the shallow prompt, which sees itself
        alone."""
        positions = torch.arange(self.length, device=self.soft.device)[None]
        tables = layers.rope_tables(self.shape, self.length, self.soft.device)
        turn, x, kept = self.turn_at(positions, tables), self.soft[None], []
        allowed = layers.block_mask(positions, self.length, 1)
        for index in range(self.shape.n_layers):
            x, own = self.layer(index, x, turn, [], allowed, False)
            kept.append(own)
        return kept

    def prefix(self, index, batch):
        if self.shallow is not None:
            return tuple(x.expand(batch, -1, -1, -1) for x in self.shallow[index])
        if self.prompt != "deep":
            return None
        bank, shape = self.banks[index], self.shape
        return tuple(functional.dropout(x, self.dropout, self.training and self.dropout > 0)
                     .view(self.length, -1, shape.head_dim).transpose(0, 1)
                     .expand(batch, -1, -1, -1) for x in (bank.k, bank.v))

    @torch.no_grad()
    def fold(self):
        tensors = {n: p for n, p in self.named_parameters() if n != "soft"}
        if self.soft is not None:
            with self.frozen.autocast():
                for i, (keys, values) in enumerate(self.run_soft()):
                    for name, x in (("k", keys), ("v", values)):
                        tensors[f"banks.{i}.{name}"] = x[0].transpose(0, 1).flatten(1).float()
            self.bf16_tensors = ("mask_embed", *(n for n in tensors if n.startswith("banks.")))
        return tensors
