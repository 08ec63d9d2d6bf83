"""Gated low-rank adapters on mask rows (Samragh et al. 2025, arXiv 2507.11851): the target is
untouched, its mask rows run through low-rank updates of every matrix.

After "Your LLM Knows the Future": gated LoRA, so that real rows give the same bits as before.
Differs: no sampler head, no consistency loss; drafts form a tree of the masks' own choices; soft
labels. Its rates are not known to us, so there is no recipe `paper`.
"""
from . import mask_rows


class Gated(mask_rows.MaskRows):
    name = "gated_lora"

    def __init__(self, frozen, config):
        super().__init__(frozen, config)
        self.rank, self.scale = config["rank"], config.get("scale", 1.0)
        self.lora = mask_rows.low_rank_layers(self.shape, self.rank, self.scale)

    @staticmethod
    def add_options(parser):
        mask_rows.MaskRows.add_options(parser)
        parser.add_argument("--rank", type=int, help="of the low-rank updates")

    @staticmethod
    def configure(options, shape):
        return {"masks": options.masks, "rank": options.rank, "distinct": options.distinct,
                "start": options.start}

    def config(self):
        return super().config() | {"rank": self.rank, "scale": self.scale}

    def low_rank(self, index, name, is_mask):
        return self.lora[index][name] if is_mask else None
