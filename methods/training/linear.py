"""Least squares: the best linear drafter, in seconds, where training begins.

From "repeat the feature" a drafter begins confidently wrong and spends most of a short training on
getting away from there; the linear map of (embedding, feature) to the next feature is better after
seconds than such a drafter after a hundred thousand tokens.
"""
import torch

ROWS = 150_000  # pairs fitted, if there are so many
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


def solve(pairs, width, d, ridge=RIDGE):
    """(weight [d, width], bias [d]) of least squares over (inputs [n, width], outputs [n, d])."""
    squares = torch.zeros(width + 1, width + 1, dtype=torch.float64)
    products = torch.zeros(width + 1, d, dtype=torch.float64)
    for inputs, outputs in pairs:
        inputs = torch.cat([inputs, torch.ones(len(inputs), 1)], 1)
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
