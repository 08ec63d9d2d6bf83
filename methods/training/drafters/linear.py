"""Least squares: the best linear drafter, in seconds, where training begins.

From "repeat the feature" a drafter begins confidently wrong and spends most of a short training on
getting away from there; the linear map of (embedding, feature) to the next feature is better after
seconds than such a drafter after a hundred thousand tokens.
"""
import math

import torch

from .layers import rms_norm

ROWS = 150_000  # pairs fitted at most
RIDGE = 1e-3  # of the mean of the diagonal


def pair_rows(data, sequences, name="hidden"):
    """Yields (tokens t+1, rows t of `name`, features of t+1) of the answers, until ROWS pairs."""
    n = 0
    for s in sequences:
        first, last = s.prompt - 1, s.n - 2
        if last <= first:
            continue
        tokens = data.tokens(s)[first + 1:last + 1]
        rows = data.rows(s, name, first, last).float()
        yield tokens, rows, data.rows(s, "hidden", first + 1, last + 1).float()
        n += len(tokens)
        if n >= ROWS:
            break


def solve(pairs, width, d, bias=True, ridge=RIDGE):
    """(weight [d, width], bias [d]) of least squares over (inputs [n, width], outputs [n, d]).

    bias = False: without one, zeros are returned.
    """
    squares = torch.zeros(width + 1, width + 1, dtype=torch.float64)
    products = torch.zeros(width + 1, d, dtype=torch.float64)
    for inputs, outputs in pairs:
        inputs = torch.cat([inputs, torch.full((len(inputs), 1), float(bias))], 1)
        squares += (inputs.T @ inputs).double()
        products += (inputs.T @ outputs).double()
    strength = ridge * squares.diagonal().mean()
    regular = squares + strength * torch.eye(width + 1, dtype=torch.float64)
    solution = torch.linalg.solve(regular, products).float()
    return solution[:-1].T.contiguous(), solution[-1].contiguous()


def batched(rows, size=4096):
    """Joins the small pieces of single answers: products of few rows are slow."""
    held, n = [], 0
    for piece in rows:
        held.append(piece)
        n += len(piece[0])
        if n >= size:
            yield [torch.cat(part) for part in zip(*held)]
            held, n = [], 0
    if held:
        yield [torch.cat(part) for part in zip(*held)]


def next_feature(data, sequences, embed, embed_scale):
    """(weight [d, 2d], bias [d]): feature t+1 from [embedding of t+1 * scale ; feature t]."""
    d = embed.shape[1]

    def pairs():
        for tokens, rows, features in batched(pair_rows(data, sequences)):
            yield torch.cat([embed[tokens].float() * embed_scale, rows], 1), features

    return solve(pairs(), 2 * d, d)


def next_from_streams(data, sequences, embed, column_scale, norm, norm_eps):
    """weight [d, n*d + d]: feature t+1, before the norm's weight, from scaled streams of t and the
    normed embedding of t+1 (EAGLE-3's attention reads that). No bias: streams have constant parts.
    """
    d = embed.shape[1]

    def pairs():
        for tokens, rows, features in batched(pair_rows(data, sequences, "residual")):
            e = rms_norm(embed[tokens].float(), 1.0, norm_eps)
            yield torch.cat([rows * column_scale, e], 1), features / norm

    return solve(pairs(), len(column_scale) + d, d, bias=False)[0]


@torch.no_grad()
def look_ahead(layer, constant, columns=slice(None)):
    """Sets queries and keys so that attention depends on the distance alone, and looks ahead.

    What attention reads has a large constant part, its mean `constant` [columns]; queries and keys
    made of it alone are the same at all rows, and the rotation makes their product a function of
    the distance D: here the sum of sin(theta_i * D) over all frequencies. That is 0 for the row
    itself, about 3 for the next row, more for later ones and about -4 for every row before. So a
    row that sees no later one looks at itself.
    """
    sharpness = 2.5
    width, half = layer.shape.head_dim, layer.shape.head_dim // 2
    level = float(constant.norm())
    row = (sharpness * math.sqrt(width)) ** 0.5 / level ** 2 * constant
    layer.q.weight.zero_()
    layer.k.weight.zero_()
    for kv in range(layer.shape.n_kv_heads):
        layer.k.weight[kv * width:kv * width + half, columns] = row
    for head in range(layer.shape.n_heads):
        # A quarter turn ahead of the key: cos becomes sin.
        layer.q.weight[head * width + half:(head + 1) * width, columns] = row


@torch.no_grad()
def pass_on(layer, reads, writes, columns=slice(None)):
    """Sets values and outputs so that attention adds writes @ reads @ (what it reads).

    reads [r, columns], writes [d, r]; as many of the r as key/value heads hold, the first ones.
    """
    width = layer.shape.head_dim
    group = layer.shape.n_heads // layer.shape.n_kv_heads
    layer.v.weight.zero_()
    layer.o.weight.zero_()
    for kv in range(layer.shape.n_kv_heads):
        part = slice(kv * width, (kv + 1) * width)
        n = len(reads[part])
        layer.v.weight[kv * width:kv * width + n, columns] = reads[part]
        at = kv * group * width  # the group's first head
        layer.o.weight[:, at:at + n] = writes[:, part]
