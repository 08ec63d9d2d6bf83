"""A small draft model (speculative sampling, Leviathan et al. 2023): the target's first layers,
distilled.

The embedding is the target's; `layers` decoder layers, the norm, a matrix `out` and, tied, the rows
of the output matrix in the draft vocabulary. Trained on the answers against the target's
distribution (its 16 most probable tokens by default). Differs: published draft models are trained
on their own, so there is no published recipe for this one. Cutting it from the target makes it
usable after minutes instead of days. The output matrix cannot read what the first layers write. So
`out` begins as the least squares map from there to the final states. After two layers of the
default model this gives 0.21 top-1 before any training, and 0.05 without it. The engine multiplies
it into the output matrix, so it costs nothing.
"""
import argparse
import itertools

import torch
from torch import nn

from ..data import batches
from . import layers, linear, losses
from .losses import NO_LABEL
from .unroll import layer_config, layer_shape

FIT_ROWS = 40_000
DEPTH = 8  # draft positions looked at in evaluation


class Draft(nn.Module):
    name = "draft"
    residual = False
    bf16_tensors = ()
    depth = DEPTH

    def __init__(self, frozen, config):
        super().__init__()
        self.frozen = frozen
        self.shape = layer_shape(config, frozen.shape)
        self.layers = nn.ModuleList(layers.DecoderLayer(self.shape)
                                    for _ in range(config["layers"]))
        d = frozen.shape.d_model
        self.norm = nn.Parameter(torch.ones(d))
        self.out = nn.Linear(d, d, bias=False) if config.get("out") else None

    @staticmethod
    def add_options(parser):
        parser.add_argument("--layers", type=int, help="layers cut from the target")
        parser.add_argument("--out-matrix", action=argparse.BooleanOptionalAction, default=None,
                            help="a matrix between the last layer and the output")
        parser.add_argument("--hard-share", type=float, help="share of the hard label in the loss")

    @staticmethod
    def configure(options, shape):
        return layer_config(shape) | {"layers": options.layers, "out": options.out_matrix}

    @classmethod
    def config_of(cls, tensors, config):
        return config | {"out": "out.weight" in tensors}

    @torch.no_grad()
    def start(self, target, statistics):
        for i, layer in enumerate(self.layers):
            layer.copy_from(target.layer(i), zero_outputs=False)
        self.norm.copy_(target.norm)
        if self.out is not None:
            self.fit_out(*statistics["answers"])

    @torch.no_grad()
    def fit_out(self, data, sequences):
        """norm brings every column to unit size, out is the map from there to the final states."""
        def pairs():
            n = 0
            for at in itertools.count(0, 8):
                batch = batches.make(data, sequences[at:at + 8], 1)
                rows = torch.arange(batch.hidden.shape[1]).expand(len(batch.hidden), -1)
                states = self.raw_states(batch.tokens[:, :batch.hidden.shape[1]], rows)
                for b, s in enumerate(sequences[at:at + 8]):
                    part = slice(s.prompt - 1, s.n - 1)  # the batch ends one state early
                    yield states[b, part], batch.hidden[b, part].float()
                    n += s.n - s.prompt
                if n >= FIT_ROWS or at + 8 >= len(sequences):
                    return

        fitted = list(pairs())
        size = torch.cat([x for x, _ in fitted]).pow(2).mean(0).sqrt().clamp(min=1e-3)
        self.norm.copy_(1 / size)
        scaled = linear.batched((x * self.norm, y) for x, y in fitted)
        self.out.weight.copy_(linear.solve(scaled, len(size), len(size), bias=False)[0])

    def config(self):
        return layer_config(self.shape) | {"layers": len(self.layers)}

    def fold(self):
        return dict(self.named_parameters())

    def feed(self, capture, sequences, options):
        return batches.Sequences(sequences, options.batch, options.seed)

    def raw_states(self, tokens, rows):
        """States [B, A, d] of the tokens at rows [B, A], after the last layer, of unit size."""
        n = tokens.shape[1]
        cos, sin = layers.rope_tables(self.shape, n, tokens.device)
        x = self.frozen.embed[tokens].to(tokens.device)  # start() runs on the CPU
        for i, layer in enumerate(self.layers):
            h = layer.attention_input(x)
            keys, values = layer.keys_values(h, cos, sin)
            if i + 1 == len(self.layers):
                h, x, at = layers.gather_rows(h, rows), layers.gather_rows(x, rows), rows
            else:
                at = torch.arange(n, device=tokens.device).expand(len(tokens), -1)
            queries = layer.queries(h, cos[at].unsqueeze(1), sin[at].unsqueeze(1))
            x = layer.finish(x, layers.attend(queries, keys, values, layers.block_mask(at, n, 1)))
        return layers.rms_norm(x, 1.0, self.shape.norm_eps)

    def to_head(self, x):
        """What the output matrix reads."""
        x = x * self.norm
        return x if self.out is None else self.out(x)

    def states(self, tokens, rows):
        return self.to_head(self.raw_states(tokens, rows))

    def run(self, batch):
        """States at the window's rows moved by one: row r of a pair drafter is token r+1 here."""
        rows = (batch.rows() + 1).clamp(max=batch.hidden.shape[1] - 1)
        return self.states(batch.tokens[:, :batch.hidden.shape[1]], rows)

    def loss(self, sequences, options, rng, fraction):
        batch = batches.make(self.capture, sequences, 1, device=self.frozen.device)
        q, valid = batch.targets(0)
        states = self.run(batch)[valid]
        before = (q - 1).clamp(max=batch.hidden.shape[1] - 1)
        truth = layers.gather_rows(batch.hidden, before)[valid]
        places = self.frozen.vocabulary.place[batch.tokens_at(q)][valid]
        weights = (places != NO_LABEL).float()
        weights = weights / weights.sum().clamp(min=1)
        total = 0.0
        if options.hard_share < 1:
            n_soft = 0 if options.labels == "full" else min(int(options.labels),
                                                            self.frozen.head.shape[0])
            labels, probs = losses.soft_labels(truth, self.frozen.head, n_soft)
            total = total + (1 - options.hard_share) * losses.head_loss(
                states, self.frozen.head, labels, probs, weights)
        if options.hard_share > 0:
            labels, probs = losses.hard_labels(places)
            total = total + options.hard_share * losses.head_loss(
                states, self.frozen.head, labels, probs, weights)
        return total, [len(states)], int((batch.n - batch.prompt).sum())

    @torch.no_grad()
    def ranks(self, capture, sequences, depth=None):
        """[int64 [bases, DEPTH]]: column i is the rank of x_{t+2+i} given all tokens before it."""
        frozen, depth = self.frozen, depth or DEPTH
        out = [None] * len(sequences)
        order = sorted(range(len(sequences)), key=lambda i: sequences[i].n)
        for at in range(0, len(order), 16):
            chosen = [sequences[i] for i in order[at:at + 16]]
            batch = batches.make(capture, chosen, 1, device=frozen.device)
            q, valid = batch.targets(0)
            places = frozen.vocabulary.place[batch.tokens_at(q)]
            with frozen.autocast():
                states = self.run(batch)
            for b, i in enumerate(order[at:at + 16]):
                one = losses.ranks(states[b][valid[b]], frozen.head, places[b][valid[b]]).cpu()
                padded = torch.cat([one, torch.full((depth,), losses.UNREACHABLE)])
                out[i] = torch.stack([padded[j:j + len(one)] for j in range(depth)], 1)
        return out
