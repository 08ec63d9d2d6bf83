"""Layers against transformers and against plain row-by-row drafting (parity.Rows)."""
import pytest
import torch

from training import parity
from training.drafters import draft, eagle, eagle3, falcon, layers, losses, medusa
from training.tests import made_up


def modules(world):
    frozen = world.frozen(30)
    kinds = [("eagle", eagle.Eagle, {"attn_norm": True}),
             ("bare", eagle.Eagle, {"attn_norm": False}),
             ("eagle3", eagle3.Eagle3, {"residual_layers": [1, 2, 3]})]
    for k in (1, 2, 3):
        for n in (1, 2):
            kinds.append((f"falcon-{k}-{n}", falcon.Falcon, {"k": k, "layers": n, "input": "fc"}))
    for kind in ("per_token", "recurrent"):
        kinds.append((f"falcon-{kind}", falcon.Falcon, {"k": 2, "layers": 1, "input": kind,
                                                        "scale": 1.5,
                                                        "skip": kind == "recurrent"}))
    for name, kind, config in kinds:
        module = kind(frozen, config)
        parity.randomise(module, torch.Generator().manual_seed(3))
        yield name, module


NAMES = ["eagle", "bare", "eagle3", *(f"falcon-{k}-{n}" for k in (1, 2, 3) for n in (1, 2)),
         "falcon-per_token",
         "falcon-recurrent"]


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_unrolled_steps_are_what_drafting_computes(world, name):
    """Every step of unroll() equals drafting from that block with true tokens, one row after
    another."""
    module = dict(modules(world))[name]
    k, steps = module.block, 3
    sequences = world.capture.sequences[:3]
    batch = module.make_batch(world.capture, sequences, steps)
    outs = module.unroll(*module.inputs(batch), batch.rows(), steps)
    tokens, features = module.inputs(batch)
    for b in (0, 2):
        first, n = int(batch.first[b]), int(batch.n[b])
        for block in (0, 2):
            n_pairs = first + (block + 1) * k
            assert n_pairs + steps * k < n
            chain = tokens[b, n_pairs + 1:n_pairs + 1 + (steps - 1) * k]
            parents = torch.tensor([j - 1 for j in range(steps - 1) for _ in range(k)])
            rows, pairs, tree = parity.draft_rows(module, tokens[b], features[b, :n_pairs], chain,
                                                  parents)
            expected = [rows.features(pairs[-k:])] + [rows.features(tree[j * k:(j + 1) * k])
                                                      for j in range(steps - 1)]
            for j in range(steps):
                got = outs[j][b, block * k:(block + 1) * k]
                torch.testing.assert_close(got, expected[j], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_draft_states_are_row_by_row_states(world):
    module = draft.Draft(world.frozen(), {"layers": 2, "out": True})
    parity.randomise(module, torch.Generator().manual_seed(4))
    tokens = world.capture.tokens(world.capture.sequences[0])[None, :9]
    rows, chain = parity.Rows(module), []
    for t, token in enumerate(tokens[0].tolist()):
        chain += rows.add_block([(token, None, None, False)], [t], list(chain))
    got = module.states(tokens, torch.arange(9)[None])[0] @ module.frozen.head.T
    torch.testing.assert_close(got, rows.logits(chain), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_whole_target_as_draft_model_is_the_target(world):
    """A layer is transformers' LlamaDecoderLayer; so is a stack of them."""
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(world.folder, dtype=torch.float32)
    module = draft.Draft(world.frozen(), {"layers": made_up.LAYERS})
    module.start(world.target, {})
    tokens = world.capture.tokens(world.capture.sequences[1])[None, :20]
    expected = model(tokens).logits
    got = module.states(tokens, torch.arange(20)[None]) @ module.frozen.head.T
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_masks():
    rows = torch.arange(6)[None]
    causal = layers.block_mask(rows, 6, 1)[0, 0]
    assert (causal == torch.ones(6, 6).tril().bool()).all()
    relaxed = layers.block_mask(rows, 6, 2)[0, 0].int().tolist()
    assert relaxed == [[1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0],
                       [1, 1, 1, 1, 0, 0],
                       [1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]


@pytest.mark.parametrize("train_head", [False, True])
def test_head_loss_and_gradient(train_head):
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(700, 12, generator=generator, requires_grad=True)
    head = torch.randn(40, 12, generator=generator, requires_grad=train_head)
    labels = torch.stack([torch.randperm(40, generator=generator)[:3] for _ in range(700)])
    labels[::7, 2] = losses.NO_LABEL
    probs, weights = torch.rand(700, 3, generator=generator), torch.rand(700, generator=generator)
    got = losses.head_loss(states, head, labels, probs, weights)
    got.backward()
    mine = [states.grad.clone(), head.grad.clone() if train_head else None]
    states.grad, head.grad = None, None
    known = probs * (labels >= 0)
    logs = torch.log_softmax(states @ head.T, -1).gather(1, labels.clamp(min=0))
    expected = -(weights * (known * logs).sum(1)).sum()
    expected.backward()
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(mine[0], states.grad, rtol=1e-4, atol=1e-5)
    if train_head:
        torch.testing.assert_close(mine[1], head.grad, rtol=1e-4, atol=1e-4)


def test_ranks_break_ties_like_the_engine():
    head = torch.eye(4)
    states = torch.tensor([[1.0, 2, 2, 0], [1, 2, 2, 0], [3, 3, 3, 3]])
    places = torch.tensor([1, 2, -1])
    assert losses.ranks(states, head, places).tolist() == [0, 1, losses.UNREACHABLE]


def test_shapes(world):
    for name, module in modules(world):
        batch = module.make_batch(world.capture, world.capture.sequences[:2], 2)
        outs = module.unroll(*module.inputs(batch), batch.rows(), 2)
        assert len(outs) == 2 and outs[0].shape == (2, batch.window, made_up.D), name
    heads = medusa.Medusa(world.frozen(), {"heads": 3, "blocks": 2})
    h, places = heads.feed(world.capture, world.train, type("O", (),
                                                            {"batch": 16, "seed": 1})).batch(0, 0)
    assert h.shape == (16, made_up.D) and places.shape == (16, 3)


@torch.no_grad()
@pytest.mark.parametrize("k", [2, 3])
def test_neighbour_start_fetches_the_last_row_of_the_block(world, k):
    """On features with a large constant part, as normed features have."""
    module = falcon.Falcon(world.frozen(), {"k": k, "layers": 1, "input": "fc",
                                            "n_kv_heads": made_up.HEADS})
    mean = torch.randn(made_up.D, generator=torch.Generator().manual_seed(2))
    layer = module.layers[0]
    falcon.neighbour_start(layer, {"feature_mean": mean,
                                   "feature_components": torch.eye(made_up.D)},
                           rms=1.0)
    x = mean + 0.3 * torch.randn(2, 30, made_up.D, generator=torch.Generator().manual_seed(3))
    rows = torch.arange(30)[None].expand(2, -1)
    cos, sin = layers.rope_tables(module.shape, 30, "cpu")
    h = layer.attention_input(x)
    keys, values = layer.keys_values(h, cos, sin)
    mixed = layers.attend(layer.queries(h, cos, sin), keys, values, layers.block_mask(rows, 30, k))
    fetched = layer.o(mixed)
    last = x[:, (torch.arange(30) // k + 1) * k - 1]
    distance = (fetched - last).norm(dim=-1) / (fetched - x).norm(dim=-1)
    first_rows = torch.arange(30) % k == 0
    assert distance[:, first_rows].median() < 0.6
    # As many of the outputs as heads times their width carry the row.
    assert torch.cosine_similarity(fetched, last, dim=-1)[:, first_rows].mean() > 0.95
