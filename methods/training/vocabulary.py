"""The tokens a drafter may propose: those most frequent in the answers it is trained on.

The output matrix dominates the cost of training and drafting; rare tokens are hardly ever drafted
right. A head trained on such a list must be drafted with it: the others' logits were never trained.
"""
import numpy as np
import torch

PROMPT_SHARE = 0.1  # a token of a prompt counts so much of a token of an answer


class Vocabulary:
    """ids: ascending target ids, int64 [Vd]; place: position of each target id or -1, int64 [V]."""

    def __init__(self, ids, vocab_size):
        self.ids = torch.as_tensor(ids, dtype=torch.int64)
        self.size, self.target_size = len(self.ids), vocab_size
        self.place = torch.full((vocab_size,), -1, dtype=torch.int64)
        self.place[self.ids] = torch.arange(self.size)
        self.ranked = self.ids  # most frequent first, where that is known

    def most_frequent(self, n):
        return self.ranked[:n]

    @property
    def is_complete(self):
        return self.size == self.target_size

    def to(self, device):
        moved = Vocabulary.__new__(Vocabulary)
        moved.ids, moved.place = self.ids.to(device), self.place.to(device)
        moved.ranked = self.ranked.to(device)
        moved.size, moved.target_size = self.size, self.target_size
        return moved


def choose(capture, sequences, vocab_size, size):
    """The `size` most frequent tokens (0 or more than there are: all), ties to the smaller id."""
    size = vocab_size if size <= 0 else min(size, vocab_size)
    counts = np.zeros(vocab_size)
    for s in sequences:
        ids = capture.tokens(s).numpy()
        counts += np.bincount(ids[s.prompt:], minlength=vocab_size)
        counts += PROMPT_SHARE * np.bincount(ids[s.fresh:s.prompt], minlength=vocab_size)
    order = np.argsort(-counts, kind="stable")[:size]
    words = Vocabulary(torch.from_numpy(np.sort(order)), vocab_size)
    words.ranked = torch.from_numpy(order.copy())
    return words


def coverage(capture, sequences, vocabulary):
    """Share of the answer tokens of these sequences that the list holds."""
    inside = total = 0
    for s in sequences:
        answer = capture.tokens(s)[s.prompt:]
        inside += int((vocabulary.place[answer] >= 0).sum())
        total += len(answer)
    return inside / max(total, 1)
