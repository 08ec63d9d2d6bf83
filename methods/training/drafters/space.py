"""SPACE (Yi et al. 2024, arXiv 2402.11809): semi-autoregressive fine-tuning, the target itself
learns to fill masks.

Changes the target: the tuned model has greedy answers of its own, and SPACE is lossless against
these. `train`: lora (low-rank updates of every matrix, real rows and mask rows alike; merged when
the adapter is loaded) or full (the paper's; exported as a Hugging Face folder by `merge`).
`layout`: packed (ours: the whole answer, with groups after many of its tokens) or paper (one group,
everything after it dropped; with probability p_ar none). p_ar = 1 is ordinary fine-tuning with the
same data: the control. `ar_loss`: kl (to the original's distribution, which keeps the tuned model
close) or hard (the tokens). `loss_by`: token (equation 3: rows of text and masks weigh the same) or
mean (all rows of text weigh as much as all masks; a mask then weighs as many times what a row of
text does as there are more of these). Training counts both weights: token_weights().

Differs, whatever the recipe: (1) equations 2 and 3 count y_m twice and k + 1 masks. Real rows give
y_1..y_m here and k masks the tokens after it, as in the program. (2) p_ar and m are drawn anew in
every pass, in the program once. (3) The loss is a mean over the batch, the program's over the two
samples of a device. (4) Masks are embeddings of their own, not a row of the vocabulary.
Differs in the recipe `small`: (5) low-rank updates of all rows, the whole answer with 64 groups, no
samples without masks. (6) `loss_by` is mean, with text three times (`ar_weight`): a mask row weighs
0.32 of a row of text, as counted on the default model. (7) Real rows learn the original's
distribution, masks its 16 likeliest tokens; mask j weighs 0.8^(j-1). (8) An embedding per mask,
begun near frequent tokens (`start`). (9) A draft vocabulary, rate and optimiser: recipes.py.
"""
import math

import torch
from torch import nn

from ..data import batches
from ..trainer import generator
from . import layers, losses, mask_rows

LOSS_BY = ("token", "mean")
COUNTED_UPDATES = 32  # in which rows are counted for token_weights()


def term_weights(loss_by, ar_weight, n_text, n_masks):
    """Factors of two means, over n_text rows of text and n_masks mask rows, in the loss."""
    if loss_by == "mean":
        return ar_weight, 1.0
    total = max(ar_weight * n_text + n_masks, 1e-6)
    return ar_weight * n_text / total, n_masks / total


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
        parser.add_argument("--loss-by", choices=LOSS_BY, help="token: every row of text and masks "
                            "weighs the same, as equation 3 says; mean: all rows of text weigh as "
                            "much as all masks")

    @staticmethod
    def configure(options, shape):
        return {"masks": options.masks, "rank": options.rank, "distinct": options.distinct,
                "train": options.train, "start": options.start}

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

    def rows_of(self, sequences, options, rng):
        """(batch, bases, text rows that count [B, T], positions q and existence of the masks'
        tokens, weight of all mask rows). Of the text all rows count, or those up to the group
        (layout paper)."""
        device = self.frozen.device
        batch = batches.make(self.capture, sequences, 1, device=device)
        bases = self.choose_bases(sequences, options, rng).to(device)
        cut = batch.n - 1
        if options.layout == "paper":
            cut = torch.where(bases[:, 0] >= 0, bases[:, 0] + 1, cut)
        row = torch.arange(int(cut.max()), device=device)
        counted = (row >= batch.prompt[:, None] - 1) & (row < cut[:, None])
        q, valid = self.targets(sequences, batch.tokens, bases)
        n_masks = float(self.mask_weights(batch, q, valid, options).sum())
        return batch, bases, counted, q, valid, n_masks

    def loss(self, sequences, options, rng, fraction):
        """Text and masks, both with gradients."""
        batch, bases, counted, q, valid, n_masks = self.rows_of(sequences, options, rng)
        rows = int(counted.sum())
        of_text, of_masks = term_weights(options.loss_by, options.ar_weight, rows, n_masks)
        x, text = self.run_text(batch.tokens[:, :counted.shape[1]])
        total = of_text * self.text_loss(x, batch, counted, options)
        if bool((bases >= 0).any()):
            states = self.run_masks(text, bases.clamp(min=0))
            total = total + of_masks * self.mask_loss(states, batch, q, valid, options)
            rows = int(valid.sum())
        return total, [float(total.detach())], rows

    def token_weights(self, feed, options):
        """How often a mask row weighs what a row of text does, under either `loss_by`: counted in
        the first updates of the training, over those that have masks. None without masks."""
        n_updates, text, masks = min(COUNTED_UPDATES, feed.n_batches(0)), 0, 0.0
        ratios = dict.fromkeys(LOSS_BY, 0.0)
        for step in range(n_updates):
            *_, counted, _, _, n_masks = self.rows_of(feed.batch(0, step), options,
                                                      generator(options.seed, step))
            n_text = int(counted.sum())
            text, masks = text + n_text, masks + n_masks
            for name in LOSS_BY if n_masks > 0 else ():
                of_text, of_masks = term_weights(name, options.ar_weight, n_text, n_masks)
                # A mask row's share of its mean, by a text row's; counted once a mask row.
                ratios[name] += of_masks * n_text / max(of_text, 1e-6)
        if masks == 0:
            return None
        return {"loss_by": options.loss_by, "updates": n_updates,
                "text_rows": round(text / n_updates, 1), "mask_rows": round(masks / n_updates, 1),
                "mask_row": {name: round(total / masks, 3) for name, total in ratios.items()}}

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
