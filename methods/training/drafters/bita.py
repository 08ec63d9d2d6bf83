"""BiTA (Lin et al. 2024, arXiv 2401.12522): mask embeddings and a prefix that only mask rows see.

The target is frozen. `prompt`: deep (keys and values of P tokens in every layer), shallow (P input
embeddings that run through the target once, at positions 0..P-1) or none.

Differs, whatever the recipe: (1) mask j after y_0..y_k learns y_(k+1+j). Equation 1, read
literally, gives it y_(k+j), of which y_(k+1) is what the last real row says already. The paper's
decoding and its program need the former. (2) A shallow prompt sees itself alone, so that the
adapter holds its keys and values like a deep one's, and has no dropout. Nothing is released for it.
(3) The last groups of an answer stay, with the masks whose tokens exist; the program ends where all
M exist. (4) The loss is a mean over the mask rows of the whole batch, the program's over those of a
device.
Differs in the recipe `paper`: (5) 64 neighbouring groups share one pass over a sample's text, as in
the program; the text draws one place a sample.
Differs in the recipe `small`: (6) the prefix has the target's key/value heads, the program's all
query heads. (7) Masks begin near frequent tokens, a shallow prompt as such (`start`); the paper's
begin normal. (8) Groups stand at random places of one answer, labels are soft, mask j weighs
0.8^(j-1), no dropout, a draft vocabulary, rate and optimiser: recipes.py.
"""
import torch
from torch import nn
from torch.nn import functional

from . import layers, mask_rows

PROMPTS = ("deep", "shallow", "none")
# Weights of the largest target with the fewer masks: the paper's "13B" models have 13.02e9.
FEW_MASKS = 14e9


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
        if isinstance(options.masks, dict):  # by the size of the target
            options.masks = options.masks["13B" if shape.n_weights <= FEW_MASKS else "larger"]
        return {"masks": options.masks, "prompt": options.prompt, "start": options.start,
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
        if self.soft is not None and self.start_kind == "normal":
            self.soft.normal_(0, mask_rows.NORMAL)
        elif self.soft is not None:
            frequent = self.frequent_tokens()
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
        spread = (x.view(self.length, -1, shape.head_dim).transpose(0, 1).expand(batch, -1, -1, -1)
                  for x in (bank.k, bank.v))
        # Drawn for every sample, as in the program.
        return tuple(functional.dropout(x, self.dropout, self.training and self.dropout > 0)
                     for x in spread)

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
