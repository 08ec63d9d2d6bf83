"""SPACE (Yi et al. 2024, arXiv 2402.11809): semi-autoregressive fine-tuning, the target itself
learns to fill masks.

Changes the target: the tuned model has greedy answers of its own, and SPACE is lossless against
these. `train`: lora (low-rank updates of every matrix, real rows and mask rows alike; merged when
the adapter is loaded) or full (the paper's; exported as a Hugging Face folder by `merge`).
`layout`: packed (ours: the whole answer, with groups after many of its tokens) or paper (one group,
everything after it dropped; with probability p_ar none). p_ar = 1 is ordinary fine-tuning with the
same data: the control. `ar_loss`: kl (to the original's distribution, which keeps the tuned model
close) or hard (the tokens).
"""
import math

import torch
from torch import nn

from ..data import batches
from . import layers, losses, mask_rows

RECIPES = {
    "small": {"masks": 3, "rank": 8, "train": "lora", "layout": "packed", "p_ar": 0.0, "groups": 64,
              "batch": 1, "lr": 5e-4, "mask_rate": 10.0, "warmup": 20, "clip": 1.0,
              "clip_kind": "norm", "weight_decay": 0.0, "decay": 0.8, "labels": "16",
              "hard_share": 0.0, "ar_loss": "kl", "ar_weight": 3.0, "splits": "random",
              "distinct": True, "vocabulary": 12288},
    "paper": {"masks": 5, "rank": 8, "train": "full", "layout": "paper", "p_ar": 0.5, "groups": 1,
              "batch": 32, "lr": 5e-5, "mask_rate": 1.0, "warmup": 1, "clip": 1.0,
              "clip_kind": "norm", "weight_decay": 0.0, "decay": 1.0, "labels": "full",
              "hard_share": 1.0, "ar_loss": "hard", "ar_weight": 1.0, "splits": "random",
              "distinct": False, "vocabulary": 0},
}


class Space(mask_rows.MaskRows):
    name = "space"

    def __init__(self, frozen, config):
        super().__init__(frozen, config)
        self.kind = config.get("train", "lora")
        self.rank, self.scale = config.get("rank", 0), config.get("scale", 1.0)
        self.seen = {"positions": 0, "same": 0, "nll": 0.0, "nll_original": 0.0}
        if self.kind == "lora":
            self.lora = mask_rows.low_rank_layers(self.shape, self.rank, self.scale)
            return
        self.full = nn.ModuleList(
            nn.ParameterDict({n: nn.Parameter(t.float().clone()) for n, t in layer.items()})
            for layer in frozen.target_layers())
        self.embed = nn.Parameter(frozen.target.embed.float().clone())
        self.norm = nn.Parameter(frozen.norm.clone())
        self.output = None
        if not frozen.target.tied:
            self.output = nn.Parameter(frozen.target.head.float().clone())

    @staticmethod
    def add_options(parser):
        mask_rows.MaskRows.add_options(parser)
        parser.add_argument("--rank", type=int, help="of the low-rank updates")
        parser.add_argument("--train", choices=("lora", "full"), help="what is trained")
        parser.add_argument("--layout", choices=("packed", "paper"), help="of a sample")
        parser.add_argument("--p-ar", type=float, help="share of samples without masks; 1 = "
                                                       "ordinary fine-tuning")
        parser.add_argument("--ar-loss", choices=("kl", "hard"), help="of the real rows")
        parser.add_argument("--ar-weight", type=float, help="of the real rows' loss")

    @staticmethod
    def configure(options, shape):
        return {"masks": options.masks, "rank": options.rank, "distinct": options.distinct,
                "train": options.train}

    @classmethod
    def config_of(cls, tensors, config):
        return config | {"distinct": len(tensors["mask_embed"]) > 1 or config["masks"] == 1}

    def config(self):
        return super().config() | {"rank": self.rank, "scale": self.scale, "train": self.kind}

    # The tuned model -----------------------------------------------------------------------------
    def weights(self, index):
        return self.full[index] if self.kind == "full" else super().weights(index)

    def low_rank(self, index, name, is_mask):
        return self.lora[index][name] if self.kind == "lora" else None

    def text_embed(self):
        return self.embed if self.kind == "full" else self.frozen.embed

    def final(self, x):
        norm = self.norm if self.kind == "full" else self.frozen.norm
        return layers.rms_norm(x, norm, self.shape.norm_eps)

    def whole_head(self):
        """[V, d], trained when everything is."""
        if self.kind == "full":
            return self.embed if self.output is None else self.output
        return self.frozen.whole_head

    def draft_head(self):
        if self.kind == "full":
            return self.whole_head()[self.frozen.vocabulary.ids]
        return self.frozen.head

    # Training ------------------------------------------------------------------------------------
    def feed(self, capture, sequences, options):
        if options.p_ar >= 1:
            self.unit = "answer tokens"  # there are no mask rows to count
        return super().feed(capture, sequences, options)

    def choose_bases(self, sequences, options, rng):
        plain = [float(torch.rand((), generator=rng)) < options.p_ar for _ in sequences]
        if options.layout == "packed":
            bases = super().choose_bases(sequences, options, rng)
            bases[torch.tensor(plain)] = -1
            return bases
        bases = torch.full((len(sequences), 1), -1)
        for b, s in enumerate(sequences):
            # Every mask has a real target: k tokens follow the next one.
            last = s.n - 2 - self.n_masks
            if not plain[b] and last >= s.prompt - 1:
                bases[b, 0] = int(torch.randint(s.prompt - 1, last + 1, (1,), generator=rng))
        return bases

    def loss(self, sequences, options, rng, fraction):
        """Text and masks with gradients; the text's rows count up to the one before the group
        (paper) or all (packed)."""
        device = self.frozen.device
        batch = batches.make(self.capture, sequences, 1, device=device)
        bases = self.choose_bases(sequences, options, rng).to(device)
        cut = batch.n - 1
        if options.layout == "paper":
            cut = torch.where(bases[:, 0] >= 0, bases[:, 0] + 1, cut)
        width = int(cut.max())
        x, text = self.run_text(batch.tokens[:, :width])
        row = torch.arange(width, device=device)
        counted = (row >= batch.prompt[:, None] - 1) & (row < cut[:, None])
        total = options.ar_weight * self.text_loss(x, batch, counted, options)
        rows = int(counted.sum())
        if bool((bases >= 0).any()):
            states = self.run_masks(text, bases.clamp(min=0))
            q, valid = self.targets(sequences, batch.tokens, bases)
            total = total + self.mask_loss(states, batch, q, valid, options)
            rows = int(valid.sum())
        return total, [float(total.detach())], rows

    def text_loss(self, x, batch, counted, options):
        states = self.final(x)[counted]
        head = self.whole_head()
        width = x.shape[1]
        if options.ar_loss == "kl":
            truth = batch.hidden[:, :width][counted]
            return losses.divergence(states, truth, head, self.frozen.whole_head)
        labels, probs = losses.hard_labels(batch.tokens[:, 1:width + 1][counted])
        weights = torch.full((len(states),), 1 / len(states), device=states.device)
        return losses.head_loss(states, head, labels, probs, weights)

    @torch.no_grad()
    def merged(self):
        """(layers [{name: tensor}], embed, head or None when tied, norm) of the tuned model."""
        frozen = self.frozen
        if self.kind == "full":
            return ([dict(layer) for layer in self.full], self.embed, self.output, self.norm)
        tuned = []
        for layer, low in zip(frozen.target_layers(), self.lora):
            tuned.append(layer | {n: layer[n].float() + self.scale * (low[n].b.T @ low[n].a)
                                  for n in mask_rows.PROJECTIONS})
        target = frozen.target
        return tuned, target.embed, None if target.tied else target.head, target.norm

    # Evaluation ----------------------------------------------------------------------------------
    def note_text(self, x, batch, s):
        """How far the tuned model is from the original on the original's answer."""
        rows = slice(s.prompt - 1, s.n - 1)
        tokens = batch.tokens[0, s.prompt:s.n]
        with self.frozen.autocast():
            logits = (self.final(x[0, rows]) @ self.whole_head().float().T).float()
            truth = (batch.hidden[0, rows].float() @ self.frozen.whole_head.float().T).float()
        self.seen["positions"] += len(tokens)
        self.seen["same"] += int((logits.argmax(-1) == truth.argmax(-1)).sum())
        for name, one in (("nll", logits), ("nll_original", truth)):
            self.seen[name] -= float(one.log_softmax(-1).gather(1, tokens[:, None]).sum())

    def extra_scores(self):
        seen = self.seen
        if not seen["positions"]:
            return {}
        n = seen["positions"]
        return {"same_greedy_token": round(seen["same"] / n, 4), "positions": n,
                "perplexity": round(math.exp(seen["nll"] / n), 4),
                "perplexity_original": round(math.exp(seen["nll_original"] / n), 4)}
