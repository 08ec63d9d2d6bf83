"""Medusa-1 (Cai et al. 2024, arXiv 2401.10774): heads on the final state, each for a token further
on.

Head k at position t gives token t+2+k from h_t: h <- h + SiLU(W h + b), `blocks` times, then the
output matrix.

Differs, whatever the recipe: (1) the output matrix is the target's own, restricted to the draft
vocabulary and frozen. The published heads train a copy of it each; a small target is all output
matrix. (2) A batch is of positions, drawn from all answers. The program's is of whole sequences.
(3) The first head weighs 1, the paper's 0.8: a factor of the whole loss. (4) AdamW is in float32,
the program's in 8 bits. (5) Text is the target's own answers by default, the paper's ShareGPT's.
Differs in the recipe `small`: (6) four heads for five, a draft vocabulary, rate and optimiser:
recipes.py.
"""
import torch
from torch import nn
from torch.nn import functional

from . import losses
from .losses import NO_LABEL


class Medusa(nn.Module):
    name = "medusa"
    residual = False

    def __init__(self, frozen, config):
        super().__init__()
        self.frozen, self.n_heads, self.n_blocks = frozen, config["heads"], config["blocks"]
        d = frozen.shape.d_model
        self.heads = nn.ModuleList(nn.ModuleList(nn.Linear(d, d) for _ in range(self.n_blocks))
                                   for _ in range(self.n_heads))

    @staticmethod
    def add_options(parser):
        parser.add_argument("--heads", type=int, help="heads = draft positions")
        parser.add_argument("--blocks", type=int, help="residual blocks per head")

    @staticmethod
    def configure(options, shape):
        return {"heads": options.heads, "blocks": options.blocks}

    @torch.no_grad()
    def start(self, target, statistics):
        """Zero blocks: every head begins as the target's own head."""
        for parameter in self.parameters():
            parameter.zero_()

    def config(self):
        return {"heads": self.n_heads, "blocks": self.n_blocks}

    def fold(self):
        return dict(self.named_parameters())

    bf16_tensors = ()

    def head(self, index, h):
        for block in self.heads[index]:
            h = h + functional.silu(block(h))
        return h

    @property
    def depth(self):
        return self.n_heads

    def feed(self, capture, sequences, options):
        return Positions(capture, sequences, self.frozen, options.batch, self.n_heads, options.seed)

    def loss(self, batch, options, rng, fraction):
        h, places = batch
        total, parts = 0, []
        for k in range(self.n_heads):
            known = places[:, k] != NO_LABEL
            labels, probs = losses.hard_labels(places[:, k])
            weights = known.float() / known.sum().clamp(min=1)
            one = losses.head_loss(self.head(k, h), self.frozen.head, labels, probs, weights)
            total = total + options.decay ** k * one
            parts.append(float(one.detach()))
        return total, parts, len(h)

    @torch.no_grad()
    def ranks(self, capture, sequences, depth=None):
        """[int64 [bases, heads]] per sequence."""
        frozen, out = self.frozen, []
        for s in sequences:
            h = capture.rows(s, "hidden", s.prompt - 1, s.n - 2).to(frozen.device)
            tokens = capture.tokens(s).to(frozen.device)
            columns = []
            for k in range(self.n_heads):
                q = torch.arange(s.prompt + 1, s.n, device=frozen.device) + k
                places = torch.where(q < s.n, frozen.vocabulary.place[tokens[q.clamp(max=s.n - 1)]],
                                     NO_LABEL)
                with frozen.autocast():
                    columns.append(losses.ranks(self.head(k, h.to(frozen.kind)), frozen.head,
                                                places))
            out.append(torch.stack(columns, 1).cpu())
        return out


class Positions:
    """Base positions of all sequences, drawn without replacement, `batch` at a time."""

    def __init__(self, capture, sequences, frozen, batch, n_heads, seed):
        self.capture, self.frozen, self.size, self.seed = capture, frozen, batch, seed
        parts, rows, places = [], [], []
        for s in sequences:
            t = torch.arange(s.prompt - 1, s.n - 2)
            parts.append(torch.full_like(t, s.part))
            rows.append(t + s.start)
            tokens = frozen.vocabulary.place.cpu()[capture.tokens(s)]
            tokens = torch.cat([tokens, torch.full((n_heads,), NO_LABEL)])
            places.append(torch.stack([tokens[t + 2 + k] for k in range(n_heads)], 1))
        self.parts, self.rows, self.places = torch.cat(parts), torch.cat(rows), torch.cat(places)
        self.order, self.epoch = None, None

    def n_batches(self, epoch):
        return max(1, len(self.rows) // self.size)

    def batch(self, epoch, index):
        if self.epoch != epoch:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            self.order, self.epoch = torch.randperm(len(self.rows), generator=generator), epoch
        chosen = self.order[index * self.size:(index + 1) * self.size]
        h = self.capture.hidden_at(self.parts[chosen], self.rows[chosen])
        device = self.frozen.device
        return h.to(device, self.frozen.kind), self.places[chosen].to(device)
