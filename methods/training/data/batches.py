"""Sequences of a capture as padded tensors, for drafters that run along a sequence."""
import dataclasses

import torch

from . import capture as captures


@dataclasses.dataclass
class Batch:
    """B sequences, each cut by `offset` pairs in front so that its blocks start there.

    tokens   int64 [B, T+1+S]   row r's pair holds tokens[r+1]; zero behind the end
    hidden   bf16 [B, T, d]     row r: the target's final state of token r; zero behind the end
    residual bf16 [B, T, n*d]   or None
    n        int64 [B]          tokens
    prompt   int64 [B]          prompt tokens
    first    int64 [B]          first row of the window from which is drafted, a multiple of the
    block window   int                rows of the window, a multiple of the block block    int
    """
    tokens: torch.Tensor
    hidden: torch.Tensor
    residual: torch.Tensor
    n: torch.Tensor
    prompt: torch.Tensor
    first: torch.Tensor
    window: int
    block: int

    def rows(self):
        """int64 [B, A]: the window's rows; those after the end repeat the last one and have no
        target."""
        rows = self.first[:, None] + torch.arange(self.window, device=self.first.device)
        return rows.clamp(max=self.hidden.shape[1] - 1)

    def tokens_at(self, q):
        """Ids at positions q [B, A]; positions after the end give any."""
        return self.tokens.gather(1, q.clamp(max=self.tokens.shape[1] - 1))

    def targets(self, step):
        """(positions q [B, A] that the window's rows predict in this step, which of them count).

        Row r predicts token r + 1 + (step+1)*block. The first answer token is pending and not
        drafted.
        """
        unclamped = self.first[:, None] + torch.arange(self.window, device=self.first.device)
        q = unclamped + 1 + (step + 1) * self.block
        return q, (q >= self.prompt[:, None] + 1) & (q <= self.n[:, None] - 1)


def make(capture, sequences, steps, block=1, offsets=None, residual=False, device="cpu"):
    """`steps`: unrolled steps; one block of tokens after the rows is needed for each."""
    offsets = offsets or [0] * len(sequences)
    n = torch.tensor([s.n - o for s, o in zip(sequences, offsets)])
    prompt = torch.tensor([s.prompt - o for s, o in zip(sequences, offsets)])
    pairs = int((n - 1).max())
    width = -(-pairs // block) * block
    batch = len(sequences)
    tokens = torch.zeros(batch, width + 1 + steps * block, dtype=torch.int64)
    hidden = torch.zeros(batch, width, capture.d_model, dtype=torch.bfloat16)
    streams = len(capture.residual_layers) * capture.d_model
    extra = torch.zeros(batch, width, streams, dtype=torch.bfloat16) if residual else None
    for i, (s, o) in enumerate(zip(sequences, offsets)):
        tokens[i, :s.n - o] = capture.tokens(s)[o:]
        hidden[i, :s.n - 1 - o] = capture.rows(s, "hidden", o, s.n - 1)
        if residual:
            extra[i, :s.n - 1 - o] = capture.rows(s, "residual", o, s.n - 1)
    # The first token that is drafted is prompt+1, by row prompt-block.
    first = ((prompt - block).clamp(min=0) // block) * block
    window = int((-(-(n - 1 - first) // block) * block).max())
    return Batch(tokens.to(device), hidden.to(device), None if extra is None else extra.to(device),
                 n.to(device), prompt.to(device), first.to(device), window, block)


class Sequences:
    """Batches of whole sequences of similar length."""

    def __init__(self, sequences, batch, seed):
        self.sequences, self.size, self.seed = sequences, batch, seed
        self.epoch, self.groups = None, None

    def load(self, epoch):
        if self.epoch != epoch:
            self.groups = captures.bucketed(self.sequences, self.size, self.seed, epoch)
            self.epoch = epoch

    def n_batches(self, epoch):
        self.load(epoch)
        return len(self.groups)

    def batch(self, epoch, index):
        self.load(epoch)
        return self.groups[index]
