"""Falcon's glancing: how much is revealed, where, and what."""
import pytest
import torch

from training.drafters import falcon


def test_glance_rates():
    rates = {name: [falcon.glance_rate(name, share) for share in (0, 0.5, 1)]
             for name in falcon.GLANCES}
    assert rates["paper"] == pytest.approx([0.4, 0.2, 0.0])
    assert rates["code"] == pytest.approx([0.45, 0.275, 0.1])
    assert rates["none"] == [0, 0, 0] and rates["random"] == rates["paper"]


@pytest.mark.parametrize("k", [2, 3, 4])
def test_glanced_rows_are_prefixes_of_blocks(world, k):
    loop = falcon.Falcon(world.frozen(), {"k": k, "layers": 1, "input": "fc"})
    batch = loop.make_batch(world.capture, world.train[:6], 1, [0, 1] * 3)
    rng = torch.Generator().manual_seed(0)
    for most in (0, 1, 3, 1000):
        rows = falcon.glanced_rows(batch, [most] * 6, rng)
        assert (rows.sum(1) <= max(most, 0)).all()
        for b in range(6):
            first, n = int(batch.first[b]), int(batch.n[b])
            chosen = rows[b].nonzero().flatten().tolist()
            for r in chosen:
                assert first <= r and r + k <= n - 2  # its feature exists
                assert all(s in chosen for s in range((r // k) * k, r)) and r % k < k - 1
    assert falcon.glanced_rows(batch, [4] * 6, rng).sum() > 0


def test_revealed_rows_hold_the_answer(world):
    module = falcon.Falcon(world.frozen(), {"k": 2, "layers": 1, "input": "fc"})
    batch = module.make_batch(world.capture, world.train[:2], 1)
    tokens, features = module.inputs(batch)
    rows = torch.zeros(features.shape[:2], dtype=torch.bool)
    rows[0, 4] = True
    first, seen = falcon.reveal(tokens, features, rows, 2, couple=True)
    # Token t_{p+k+1} in row p, t_{p+1} elsewhere.
    assert first[0, 4] == tokens[0, 7] and first[0, 5] == tokens[0, 6]
    assert torch.equal(seen[0, 4], features[0, 6]) and torch.equal(seen[0, 5], features[0, 5])
    first, seen = falcon.reveal(tokens, features, rows, 2, couple=False)
    assert first[0, 4] == tokens[0, 7] and torch.equal(seen, features)
