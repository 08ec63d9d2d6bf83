"""PaSS (Monea, Joulin, Grave 2023, arXiv 2311.13581): look-ahead embeddings at the end of the input.

The target is frozen, and nothing but the L embeddings is trained: no prefix as in BiTA, no updates.
`--masks` is L. The draft is a chain, so the adapter holds the chances of a chain and of no tree.

Differs: groups after many tokens of an answer share one pass over its text, labels are soft, mask j
weighs 0.8^(j-1), masks begin near frequent tokens, a draft vocabulary: recipes.py. The paper's rates
and amounts are not known to us, so there is no recipe `paper`.
"""
from .. import evaluate
from . import mask_rows


class Pass(mask_rows.MaskRows):
    name = "pass"
    unit = "look-ahead rows"
    chain_only = True

    def __init__(self, frozen, config):
        super().__init__(frozen, config)
        self.depths = []

    @staticmethod
    def configure(options, shape):
        return {"masks": options.masks, "distinct": options.distinct, "start": options.start}

    def ranks(self, capture, sequences, depth=None):
        found = super().ranks(capture, sequences, depth)
        self.depths = [evaluate.chain_depths(ranks) for ranks in found if len(ranks)]
        return found

    def extra_scores(self):
        """As the paper decodes: one forward drafts, the next verifies."""
        return {"two_calls_tau": round(evaluate.two_calls_tau(self.depths), 4)}
