"""Decoder layers of the drafters and the attention of unrolled drafting.

Shapes: B sequences, T rows (pairs of a sequence, row r = pair r), A rows of the window from which
is drafted, d = d_model, H heads in G groups of KV. Rows come in blocks of k (1 for EAGLE): a row
sees all rows of earlier blocks and of its own. Unrolled step j drafts on: its row r stands for pair
r + j*k, and sees the true rows up to its block and its own block in steps 1..j. That is what one
sees when drafting from this block, for all blocks at once.
"""
import math

import torch
from torch import nn
from torch.nn import functional

from ..target import LAYER_TENSORS


def rms_norm(x, weight, eps):
    """In float32 whatever the autocast says; weight None = the identity (published EAGLE-1
    layers)."""
    if weight is None:
        return x
    wide = x.float()
    return wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight


def rope_tables(shape, n, device):
    """(cos, sin), float32 [n, head_dim], for half-split rotation."""
    half = torch.arange(0, shape.head_dim, 2, dtype=torch.float32, device=device) / shape.head_dim
    angles = torch.outer(torch.arange(n, dtype=torch.float32, device=device),
                         shape.rope_theta ** -half)
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """x [B, heads, rows, head_dim]; cos and sin broadcast to [B, 1, rows, head_dim]."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class DecoderLayer(nn.Module):
    """A Llama layer; `d_in` is the width of what attention reads (2d for EAGLE-3)."""

    def __init__(self, shape, attn_norm=True, d_in=None):
        super().__init__()
        self.shape = shape
        d, d_in = shape.d_model, d_in or shape.d_model
        self.q = nn.Linear(d_in, shape.n_heads * shape.head_dim, bias=False)
        self.k = nn.Linear(d_in, shape.n_kv_heads * shape.head_dim, bias=False)
        self.v = nn.Linear(d_in, shape.n_kv_heads * shape.head_dim, bias=False)
        self.o = nn.Linear(shape.n_heads * shape.head_dim, d, bias=False)
        self.attn_norm = nn.Parameter(torch.ones(d)) if attn_norm else None
        self.ffn_norm = nn.Parameter(torch.ones(d))
        self.gate = nn.Linear(d, shape.d_ffn, bias=False)
        self.up = nn.Linear(d, shape.d_ffn, bias=False)
        self.down = nn.Linear(shape.d_ffn, d, bias=False)

    @torch.no_grad()
    def copy_from(self, tensors, zero_outputs):
        """Starts as a target's layer. zero_outputs: adds nothing to the residual stream at
        first."""
        for name in LAYER_TENSORS:
            mine = getattr(self, name)
            if mine is None:
                continue
            mine = mine.weight if isinstance(mine, nn.Linear) else mine
            theirs = tensors[name].to(mine)
            # More key/value heads than the target: each one several times.
            if name in ("k", "v") and mine.shape[0] > theirs.shape[0]:
                head = theirs.view(-1, self.shape.head_dim, theirs.shape[1])
                theirs = head.repeat_interleave(mine.shape[0] // theirs.shape[0], 0).flatten(0, 1)
            if zero_outputs and name in ("o", "down"):
                mine.zero_()
            elif mine.shape == theirs.shape:
                mine.copy_(theirs)
            else:  # [q, k, v of width 2d]: the copy reads the second half, the feature
                mine.zero_()
                mine[:, -theirs.shape[1]:].copy_(theirs)

    def attention_input(self, x):
        return rms_norm(x, self.attn_norm, self.shape.norm_eps)

    def queries(self, h, cos, sin):
        return rotate(self.split(self.q(h), self.shape.n_heads), cos, sin)

    def keys_values(self, h, cos, sin):
        keys = rotate(self.split(self.k(h), self.shape.n_kv_heads), cos, sin)
        return keys, self.split(self.v(h), self.shape.n_kv_heads)

    def split(self, x, heads):
        return x.view(*x.shape[:2], heads, self.shape.head_dim).transpose(1, 2)

    def finish(self, x, mixed):
        """Residual stream after the layer, from the one before it and the heads' output."""
        x = x + self.o(mixed)
        h = rms_norm(x, self.ffn_norm, self.shape.norm_eps)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


def attend(queries, keys, values, allowed, own=(), block=1):
    """Attention of R rows over T true rows and, for unrolled steps, over blocks of their own.

    queries [B, H, R, D]; keys and values [B, KV, T, D]; allowed bool, broadcast to [B, 1, R, T].
    own: the (keys, values) [B, KV, R, D] of steps 1..j; row r sees there the rows of its own block.
    Returns [B, R, H*D].
    """
    batch, heads, rows, width = queries.shape
    kv = keys.shape[1]
    group = heads // kv
    q = queries.reshape(batch, kv, group * rows, width) * (1.0 / math.sqrt(width))
    scores = (q @ keys.transpose(-1, -2)).float().view(batch, kv, group, rows, -1)
    scores = scores.masked_fill(~allowed.unsqueeze(1), float("-inf"))
    if not own:
        weights = torch.softmax(scores, -1).to(values.dtype)
        mixed = weights.view(batch, kv, group * rows, -1) @ values
        return join_heads(mixed.view(batch, heads, rows, width))

    n_true = scores.shape[-1]
    blocks = rows // block
    qb = q.view(batch, kv, group, blocks, block, width)

    def own_block(x):  # [B, KV, R, D] -> [B, KV, 1, blocks, block, D]
        return x.reshape(batch, kv, 1, blocks, block, width)

    parts = [scores]
    for own_keys, _ in own:
        keyed = own_block(own_keys)
        # Products of single rows: matmul of 1 x D by D x 1 is slow, element by element is not.
        parts += [(qb * keyed[..., c:c + 1, :]).sum(-1, dtype=torch.float32)
                  .view(batch, kv, group, rows, 1) for c in range(block)]
    weights = torch.softmax(torch.cat(parts, -1), -1).to(values.dtype)
    mixed = (weights[..., :n_true].reshape(batch, kv, group * rows, n_true) @ values)
    mixed = mixed.view(batch, kv, group, blocks, block, width)
    at = n_true
    for _, own_values in own:
        valued = own_block(own_values)
        for c in range(block):
            share = weights[..., at].view(batch, kv, group, blocks, block, 1)
            mixed = mixed + share * valued[..., c:c + 1, :]
            at += 1
    return join_heads(mixed.reshape(batch, heads, rows, width))


def join_heads(x):
    """[B, H, R, D] -> [B, R, H*D]."""
    return x.transpose(1, 2).flatten(2)


def block_mask(query_rows, n_keys, block):
    """bool [B, 1, R, T]: row r sees the rows of earlier blocks and its own. query_rows [B, R]."""
    end = (query_rows // block + 1) * block
    return torch.arange(n_keys, device=query_rows.device) < end[:, None, :, None]


def gather_rows(x, rows):
    """x [B, T, d] at rows [B, A] -> [B, A, d]."""
    return x.gather(1, rows.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
