"""A small draft model (speculative sampling, Leviathan et al. 2023): the target's first layers,
distilled.

The embedding is the target's; `layers` decoder layers, the final norm and, tied, the rows of the
output matrix in the draft vocabulary. Trained on the answers against the target's distribution (its
16 most probable tokens by default). Differs: published draft models are trained on their own;
cutting one from the target makes it usable after minutes instead of days.
"""
import torch
from torch import nn

from . import batches, layers, losses
from .losses import NO_LABEL
from .unroll import layer_config, layer_shape

RECIPES = {
    "small": {"layers": 3, "batch": 8, "lr": 6e-4, "warmup": 50, "clip": 1.0, "clip_kind": "norm",
              "weight_decay": 0.01, "labels": "16", "hard_share": 0.0, "vocabulary": 16384},
    "paper": {"layers": 4, "batch": 8, "lr": 3e-4, "warmup": 200, "clip": 1.0, "clip_kind": "norm",
              "weight_decay": 0.1, "labels": "full", "hard_share": 0.0, "vocabulary": 0},
}
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
        self.norm = nn.Parameter(torch.ones(frozen.shape.d_model))

    @staticmethod
    def add_options(parser):
        parser.add_argument("--layers", type=int, help="layers cut from the target")
        parser.add_argument("--hard-share", type=float, help="share of the hard label in the loss")

    @staticmethod
    def configure(options, shape):
        return layer_config(shape) | {"layers": options.layers}

    @torch.no_grad()
    def start(self, target, statistics):
        for i, layer in enumerate(self.layers):
            layer.copy_from(target.layer(i), zero_outputs=False)
        self.norm.copy_(target.norm)

    def config(self):
        return layer_config(self.shape) | {"layers": len(self.layers)}

    def fold(self):
        return dict(self.named_parameters())

    def feed(self, capture, sequences, options):
        return batches.Sequences(sequences, options.batch, options.seed)

    def states(self, tokens, rows):
        """States [B, A, d] after the final norm of the tokens at rows [B, A]."""
        n = tokens.shape[1]
        cos, sin = layers.rope_tables(self.shape, n, tokens.device)
        x = self.frozen.embed[tokens]
        for i, layer in enumerate(self.layers):
            h = layer.attention_input(x)
            keys, values = layer.keys_values(h, cos, sin)
            if i + 1 == len(self.layers):
                h, x, at = layers.gather_rows(h, rows), layers.gather_rows(x, rows), rows
            else:
                at = torch.arange(n, device=tokens.device).expand(len(tokens), -1)
            queries = layer.queries(h, cos[at].unsqueeze(1), sin[at].unsqueeze(1))
            x = layer.finish(x, layers.attend(queries, keys, values, layers.block_mask(at, n, 1)))
        return layers.rms_norm(x, self.norm, self.shape.norm_eps)

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
