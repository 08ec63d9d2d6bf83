"""What SPACE, BiTA and gated LoRA share: rows of mask tokens that run through the whole target.

A group of M masks comes after a token x_t. Mask j (1..M) is at position t+j, sees x_0..x_t and the
masks before it in its group, and gives the token x_{t+1+j}: x_{t+1} is what the row of x_t itself
gives. Many groups of a sequence are trained in one pass, each sees its own text only.

Shapes: B sequences of T tokens, G groups each, R = G*M mask rows, d = d_model.
"""
import argparse

import torch
from torch import nn
from torch.nn import functional

from ..data import batches
from . import layers, losses
from .losses import NO_LABEL

PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")
SPLITS = ("random", "consecutive")
STARTS = ("tokens", "normal")
NORMAL = 0.02  # standard deviation


class Factor(nn.Module):
    """scale * (x a^T) b: a [rank, in], b [rank, out] (transposed, so that one scale per row of the
    stored integers serves a component)."""

    def __init__(self, n_in, n_out, rank, scale):
        super().__init__()
        self.scale = scale
        self.a = nn.Parameter(torch.empty(rank, n_in))
        self.b = nn.Parameter(torch.zeros(rank, n_out))
        nn.init.normal_(self.a, std=n_in ** -0.5)

    def forward(self, x):
        return self.scale * (functional.linear(x, self.a) @ self.b)


class Bank(nn.Module):
    """Keys and values of P prefix tokens in one layer, as attention uses them (not rotated)."""

    def __init__(self, length, width):
        super().__init__()
        self.k = nn.Parameter(NORMAL * torch.randn(length, width))
        self.v = nn.Parameter(NORMAL * torch.randn(length, width))


def projection_widths(shape):
    """{name: (inputs, outputs)} of a layer's matrices."""
    d, q, kv = shape.d_model, shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    return {"q": (d, q), "k": (d, kv), "v": (d, kv), "o": (q, d), "gate": (d, shape.d_ffn),
            "up": (d, shape.d_ffn), "down": (shape.d_ffn, d)}


def low_rank_layers(shape, rank, scale):
    return nn.ModuleList(
        nn.ModuleDict({name: Factor(*widths, rank, scale)
                       for name, widths in projection_widths(shape).items()})
        for _ in range(shape.n_layers))


def same_heads(pairs, kind):
    """(keys, values) [B, heads, n, head_dim] of equal head counts: a prefix may have all query
    heads, then the others are repeated."""
    heads = max(k.shape[1] for k, _ in pairs)
    return [tuple(x.to(kind).repeat_interleave(heads // x.shape[1], 1)
                  if x.shape[1] < heads else x.to(kind) for x in pair) for pair in pairs]


class MaskRows(nn.Module):
    """Subclasses add what is trained besides the mask embeddings."""
    residual = False
    bf16_tensors = ("mask_embed",)
    unit = "mask rows"
    score_rows = 48000  # masks after the held-out text, in evaluation: they are expensive

    def __init__(self, frozen, config):
        super().__init__()
        self.frozen, self.shape = frozen, frozen.shape
        self.n_masks = config["masks"]
        self.distinct = config.get("distinct", True)
        self.start_kind = config.get("start", "tokens")  # not in the adapter
        self.mask_embed = nn.Parameter(torch.zeros(self.n_masks if self.distinct else 1,
                                                   frozen.shape.d_model))

    @staticmethod
    def add_options(parser):
        parser.add_argument("--masks", type=int, help="mask tokens of a group (M, k)")
        parser.add_argument("--groups", type=int, help="mask groups per sequence and step")
        parser.add_argument("--splits", choices=SPLITS, help="where the groups of a sequence stand")
        parser.add_argument("--start", choices=STARTS, help="of masks and shallow prompts. tokens: "
                            "near frequent tokens; normal: N(0, 0.02), as the papers say")
        parser.add_argument("--decay", type=float, help="weight of mask j is decay^(j-1)")
        parser.add_argument("--hard-share", type=float, help="share of the hard label in the loss")
        parser.add_argument("--distinct", action=argparse.BooleanOptionalAction, default=None,
                            help="an embedding per mask, or one for all of a group")
        parser.add_argument("--mask-rate", type=float,
                            help="learning rate of the mask embeddings, in units of --lr")

    @property
    def depth(self):
        return self.n_masks

    def config(self):
        return {"masks": self.n_masks, "distinct": self.distinct}

    def fold(self):
        return dict(self.named_parameters())

    @torch.no_grad()
    def start(self, target, statistics):
        """Every mask begins as the mean of frequent tokens, with noise to tell them apart, or
        normal."""
        if self.start_kind == "normal":
            self.mask_embed.normal_(0, NORMAL)
            return
        frequent = self.frequent_tokens()
        noise = torch.randn(self.mask_embed.shape) * float(frequent.pow(2).mean().sqrt())
        self.mask_embed.copy_(frequent.mean(0) + 0.3 * noise)

    def frequent_tokens(self):
        """Embeddings of the most frequent tokens, where the weights are while start() runs: the CPU."""
        frozen = self.frozen
        return frozen.embed[frozen.vocabulary.most_frequent(200)].float().to(self.mask_embed.device)

    def rate_of(self, name, options):
        """Learning rate of a parameter, in units of the one that was given."""
        return options.mask_rate if name == "mask_embed" else 1.0

    # Forward -------------------------------------------------------------------------------------
    def weights(self, index):
        """The matrices and norms of a layer."""
        return self.frozen.layers[index]

    def low_rank(self, index, name, is_mask):
        """The Factor of a matrix for mask rows or real rows, None without one."""
        return None

    def prefix(self, index, batch):
        """(keys, values) [B, KV, P, head_dim] that mask rows see before the text, or None."""
        return None

    def linear(self, index, name, x, is_mask):
        y = functional.linear(x, self.weights(index)[name])
        factor = self.low_rank(index, name, is_mask)
        return y if factor is None else y + factor(x)

    def split(self, x, heads):
        return x.view(*x.shape[:2], heads, self.shape.head_dim).transpose(1, 2)

    def layer(self, index, x, turn, seen, allowed, is_mask):
        """(x after the layer, its own (keys, values)). seen: [(keys, values)] before its own,
        allowed bool [B, 1, rows, all keys]."""
        shape, eps = self.shape, self.shape.norm_eps
        h = layers.rms_norm(x, self.weights(index)["attn_norm"], eps)
        queries = layers.rotate(self.split(self.linear(index, "q", h, is_mask), shape.n_heads),
                                *turn)
        own = (layers.rotate(self.split(self.linear(index, "k", h, is_mask), shape.n_kv_heads),
                             *turn),
               self.split(self.linear(index, "v", h, is_mask), shape.n_kv_heads))
        kind = own[1].dtype
        keys, values = (torch.cat(parts, 2) for parts in zip(*same_heads([*seen, own], kind)))
        mixed = layers.attend(queries.to(kind), keys, values, allowed)
        x = x + self.linear(index, "o", mixed, is_mask)
        h = layers.rms_norm(x, self.weights(index)["ffn_norm"], eps)
        gate = functional.silu(self.linear(index, "gate", h, is_mask))
        return x + self.linear(index, "down", gate * self.linear(index, "up", h, is_mask),
                               is_mask), own

    def turn_at(self, positions, tables):
        """Rotation of rows at positions [B, rows]."""
        return tables[0][positions].unsqueeze(1), tables[1][positions].unsqueeze(1)

    def run_text(self, tokens):
        """(x [B, T, d] before the final norm, [(keys, values)] per layer) of real rows."""
        n = tokens.shape[1]
        tables = layers.rope_tables(self.shape, n, tokens.device)
        positions = torch.arange(n, device=tokens.device).expand(len(tokens), -1)
        turn = self.turn_at(positions, tables)
        allowed = layers.block_mask(positions, n, 1)
        x, kept = self.text_embed()[tokens].float(), []
        for index in range(self.shape.n_layers):
            x, own = self.layer(index, x, turn, [], allowed, False)
            kept.append(own)
        return x, kept

    def run_masks(self, text, bases):
        """States [B, G, M, d] of mask groups after rows `bases` [B, G] of text (run_text's keys and
        values)."""
        batch, groups = bases.shape
        n, m = text[0][0].shape[2], self.n_masks
        device = bases.device
        slot = torch.arange(m, device=device)
        positions = (bases[:, :, None] + 1 + slot).flatten(1)
        tables = layers.rope_tables(self.shape, n + m + 1, device)
        turn = self.turn_at(positions, tables)
        rows = groups * m
        sees_text = (torch.arange(n, device=device) <= bases[:, :, None, None])
        sees_text = sees_text.expand(-1, -1, m, -1).reshape(batch, 1, rows, n)
        number = torch.arange(rows, device=device)
        same = (number[:, None] // m == number // m) & (number <= number[:, None])
        same = same.expand(batch, 1, -1, -1)
        embed = self.mask_embed if self.distinct else self.mask_embed.expand(m, -1)
        x = embed.repeat(groups, 1).expand(batch, -1, -1)
        for index in range(self.shape.n_layers):
            bank = self.prefix(index, batch)
            seen, allowed = [text[index]], [sees_text, same]
            if bank is not None:
                seen.insert(0, bank)
                length = bank[0].shape[2]
                allowed.insert(0, torch.ones(batch, 1, rows, length, dtype=torch.bool,
                                             device=device))
            x, _ = self.layer(index, x, turn, seen, torch.cat(allowed, -1), True)
        return self.final(x).view(batch, groups, m, -1)

    def text_embed(self):
        return self.frozen.embed

    def draft_head(self):
        """Output matrix of the draft vocabulary."""
        return self.frozen.head

    def final(self, x):
        return layers.rms_norm(x, self.frozen.norm, self.shape.norm_eps)

    # Training ------------------------------------------------------------------------------------
    def feed(self, capture, sequences, options):
        return batches.Sequences([s for s in sequences if s.n_bases > 0], options.batch,
                                 options.seed)

    def choose_bases(self, sequences, options, rng):
        """int64 [B, G] rows of the text after which groups stand; -1 = no group. A base needs at
        least one target."""
        chosen = torch.full((len(sequences), options.groups), -1)
        for b, s in enumerate(sequences):
            n = s.n_bases
            if options.splits == "consecutive":
                first = int(torch.randint(max(n - options.groups, 0) + 1, (1,), generator=rng))
                mine = torch.arange(first, min(first + options.groups, n))
            else:
                mine = torch.randperm(n, generator=rng)[:options.groups].sort().values
            chosen[b, :len(mine)] = mine + s.prompt - 1
        return chosen[:, :max(1, int((chosen >= 0).sum(1).max()))]

    def targets(self, sequences, tokens, bases):
        """(positions q [B, G, M] that the masks give, which of them exist)."""
        n = torch.tensor([s.n for s in sequences], device=tokens.device)
        q = bases[:, :, None] + 2 + torch.arange(self.n_masks, device=tokens.device)
        return q, (bases[:, :, None] >= 0) & (q < n[:, None, None])

    def places_of(self, batch, q):
        """Places in the draft vocabulary of the tokens at q [B, G, M], NO_LABEL outside it."""
        return self.frozen.vocabulary.place[batch.tokens_at(q.flatten(1)).view(q.shape)]

    def mask_weights(self, batch, q, valid, options):
        """[B, G, M]: what the row of a mask weighs beside those of the others, 1 on average over a
        group; 0 where its token does not exist or is not in the draft vocabulary."""
        share = options.decay ** torch.arange(self.n_masks, device=q.device).float()
        return (valid & (self.places_of(batch, q) != NO_LABEL)) * (share / share.mean())

    def mask_loss(self, states, batch, q, valid, options):
        """Cross entropy of states [B, G, M, d] against the target's own distribution or the tokens,
        a mean by mask_weights()."""
        frozen, head = self.frozen, self.draft_head()
        places = self.places_of(batch, q)
        weights = self.mask_weights(batch, q, valid, options)[valid]
        weights = weights / weights.sum().clamp(min=1e-6)
        picked, total = states[valid], 0.0
        if options.hard_share < 1:
            before = (q - 1).clamp(0, batch.hidden.shape[1] - 1)
            truth = layers.gather_rows(batch.hidden, before.flatten(1)).view(*q.shape, -1)[valid]
            n_soft = 0 if options.labels == "full" else min(int(options.labels),
                                                            frozen.head.shape[0])
            labels, probs = losses.soft_labels(truth, frozen.head, n_soft)
            total = (1 - options.hard_share) * losses.head_loss(picked, head, labels, probs, weights)
        if options.hard_share > 0:
            labels, probs = losses.hard_labels(places[valid])
            total = total + options.hard_share * losses.head_loss(picked, head, labels, probs,
                                                                  weights)
        return total

    def text_width(self, bases):
        return int(bases.max()) + 1

    def loss(self, sequences, options, rng, fraction):
        """The text runs without gradients: nothing of it is trained."""
        batch = batches.make(self.capture, sequences, 1, device=self.frozen.device)
        bases = self.choose_bases(sequences, options, rng).to(self.frozen.device)
        with torch.no_grad():
            _, text = self.run_text(batch.tokens[:, :self.text_width(bases)])
        states = self.run_masks(text, bases.clamp(min=0))
        q, valid = self.targets(sequences, batch.tokens, bases)
        total = self.mask_loss(states, batch, q, valid, options)
        return total, [float(total.detach())], int(valid.sum())

    # Evaluation ----------------------------------------------------------------------------------
    @torch.no_grad()
    def ranks(self, capture, sequences, depth=None):
        """[int64 [bases, M]] per sequence, for the first `score_rows` masks; nothing for later ones."""
        out, left, at_once = [], self.score_rows // self.n_masks, 64
        for s in sequences:
            if left <= 0:
                out.append(torch.zeros(0, self.n_masks, dtype=torch.int64))
                continue
            left -= s.n_bases
            out.append(self.ranks_of(capture, s, at_once))
        return out

    def ranks_of(self, capture, s, at_once):
        frozen = self.frozen
        batch = batches.make(capture, [s], 1, device=frozen.device)
        with frozen.autocast():
            x, text = self.run_text(batch.tokens[:, :s.n])
        self.note_text(x, batch, s)
        parts = []
        for first in range(s.prompt - 1, s.n - 2, at_once):
            bases = torch.arange(first, min(first + at_once, s.n - 2), device=frozen.device)[None]
            until = int(bases.max()) + 1
            with frozen.autocast():
                states = self.run_masks([(k[:, :, :until], v[:, :, :until]) for k, v in text],
                                        bases)
            q, valid = self.targets([s], batch.tokens, bases)
            places = frozen.vocabulary.place[batch.tokens_at(q.flatten(1))].view(q.shape)
            places = torch.where(valid, places, NO_LABEL)
            parts.append(losses.ranks(states.flatten(0, 2), self.draft_head(), places.flatten())
                         .view(-1, self.n_masks).cpu())
        return torch.cat(parts) if parts else torch.zeros(0, self.n_masks, dtype=torch.int64)

    def note_text(self, x, batch, s):
        """For modules that change the target: x [1, T, d] before the final norm."""

    def extra_scores(self):
        """What evaluation reports besides acceptance, of the sequences ranks() saw."""
        return {}
