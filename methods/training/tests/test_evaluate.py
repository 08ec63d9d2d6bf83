"""Alignment of targets, simulated decoding and trees."""
import pytest
import torch

from training import __main__ as command
from training import adapter, evaluate
from training.drafters import draft, eagle, falcon, losses, medusa
from training.tests.loops import arguments


def one_hot(tokens, size):
    return torch.nn.functional.one_hot(tokens, size).float()


def oracle(world, kind, config, shift):
    """A drafter that returns the token it is asked for, or one `shift` further on."""
    frozen = world.frozen()
    frozen.head = torch.eye(frozen.shape.vocab_size)

    class Oracle(kind):
        def unroll(self, tokens, features, rows, steps, first_tokens=None):
            size = tokens.shape[1] - 1
            return [one_hot(tokens.gather(1, (rows + 1 + (j + 1) * self.block +
                                              shift).clamp(max=size)),
                            self.frozen.shape.vocab_size) for j in range(steps)]

    return Oracle(frozen, config)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("shift", [0, 1])
def test_pair_drafters_are_asked_for_the_right_token(world, k, shift):
    if k == 1:
        module = oracle(world, eagle.Eagle, {}, shift)
    else:
        module = oracle(world, falcon.Falcon, {"k": k, "layers": 1, "input": "fc"}, shift)
    for s, ranks in zip(world.held, module.ranks(world.capture, world.held, 6)):
        assert ranks.shape == (s.n - 1 - s.prompt, 6)
        tokens = world.capture.tokens(s)
        for base in range(len(ranks)):
            for i in range(6):
                q = s.prompt - 1 + base + 2 + i  # token t+2+i of base t
                if q >= s.n:
                    assert ranks[base, i] == losses.UNREACHABLE
                elif shift == 0:
                    assert ranks[base, i] == 0
                elif q + 1 < s.n and tokens[q] != tokens[q + 1]:
                    assert ranks[base, i] > 0
    tau = evaluate.score(module.ranks(world.capture, world.held, 6))[0]["chain_tau"]
    assert tau > 5.5 if shift == 0 else tau < 1.6


def test_draft_model_is_asked_for_the_right_token(world):
    frozen = world.frozen()
    frozen.head = torch.eye(frozen.shape.vocab_size)

    class Oracle(draft.Draft):
        def states(self, tokens, rows):
            padded = torch.cat([tokens, torch.zeros(len(tokens), 1, dtype=torch.int64)], 1)
            last = torch.tensor([int(s.n) - 1 for s in self.chosen])[:, None]
            return one_hot(torch.where(rows + 1 <= last, padded.gather(1, rows + 1), 0), 61)

    module = Oracle(frozen, {"layers": 1})
    s = world.held[0]
    module.chosen = [s]
    # The last token is an input of no pair, so it comes after the padded tokens of one sequence.
    ranks = module.ranks(world.capture, [s])[0]
    assert ranks.shape == (s.n_bases, draft.DEPTH)
    assert (ranks[:-1, 0] == 0).all()
    assert ranks[-1, 1] == losses.UNREACHABLE


def test_medusa_is_asked_for_the_right_token(world):
    frozen = world.frozen()
    frozen.head = torch.eye(frozen.shape.vocab_size)
    s = world.held[0]
    tokens = world.capture.tokens(s)

    class Oracle(medusa.Medusa):
        def head(self, index, h):
            t = torch.arange(s.prompt - 1, s.n - 2)
            return one_hot(tokens[(t + 2 + index).clamp(max=s.n - 1)], 61)

    ranks = Oracle(frozen, {"heads": 3, "blocks": 1}).ranks(world.capture, [s])[0]
    for base in range(s.n_bases):
        for k in range(3):
            inside = s.prompt - 1 + base + 2 + k < s.n
            assert ranks[base, k] == (0 if inside else losses.UNREACHABLE)


def test_medusa_labels_are_shifted(world):
    module = medusa.Medusa(world.frozen(), {"heads": 3, "blocks": 1})
    feed = module.feed(world.capture, world.train, type("O", (), {"batch": 8, "seed": 1}))
    s = world.train[0]
    tokens = world.capture.tokens(s)
    for base in range(s.n_bases):
        t = s.prompt - 1 + base
        assert feed.rows[base] == s.start + t and feed.parts[base] == s.part
        expected = [int(tokens[t + 2 + k]) if t + 2 + k < s.n else losses.NO_LABEL
                    for k in range(3)]
        assert feed.places[base].tolist() == expected


def test_walk_by_hand():
    # Bases 0..5: accepts 2 at base 0, goes to 3; accepts 0, goes to 4; accepts 1, goes to 6: the
    # end.
    assert evaluate.walk([2, 9, 9, 0, 1, 0]) == [0, 3, 4]
    assert evaluate.tau([[2, 9, 9, 0, 1, 0]]) == 2.0
    assert evaluate.tau([[0, 0, 0]]) == 1.0
    assert evaluate.tau([[1, 0], [0]]) == 1.5  # two steps for three tokens


def test_acceptance_is_counted_where_decoding_goes():
    ranks = torch.tensor([[0, 0], [0, 0], [5, 0], [0, 7], [0, losses.UNREACHABLE]])
    # Chain: base 0 accepts 2 -> base 3 accepts 1 -> end. Bases 1, 2 and 4 are never visited.
    assert evaluate.chain_depths(ranks) == [2, 2, 0, 1, 1]
    assert evaluate.position_acceptance([ranks]) == [1.0, 0.5]


def test_tree_is_greedy_and_closed():
    paths = [[(0, 1), (1,), (0, 0, 2)], [(0, 1), (2, 0), ()]]
    chosen = evaluate.best_paths(paths, 10)
    names = [evaluate.name_of(path) for path, _ in chosen]
    assert names[:2] == ["0", "01"]
    assert chosen[0][1] == pytest.approx(3 / 6) and chosen[1][1] == pytest.approx(2 / 6)
    for n in range(1, len(chosen) + 1):
        tree = {path for path, _ in chosen[:n]}
        assert all(path[:-1] in tree or len(path) == 1 for path in tree)
    assert evaluate.name_of((0, 12, 3)) == "0.12.3"
    assert evaluate.name_of((1, 2)) == "12"
    assert evaluate.name_of((12,)) == "12."


def test_tree_depths():
    tree = {(0,), (0, 1), (2,)}
    assert evaluate.tree_depths([(0, 1, 0), (0, 0), (2, 5), (3,), ()], tree) == [2, 1, 1, 0, 0]


def test_trees_are_not_scored_where_they_were_found():
    """What holds in the even sequences only must not help."""
    even = torch.tensor([[3, 3]] * 30 + [[3, losses.UNREACHABLE]])
    odd = torch.full((31, 2), losses.UNREACHABLE)
    result, tree = evaluate.score([even, odd, even, odd])
    assert tree["paths"][0] == "3" and result["tree_tau"]["64"] == 1.0


def test_ranks_beyond_the_widest_are_in_no_tree():
    assert evaluate.paths_of(torch.tensor([[0, 40, 0], [losses.UNREACHABLE, 0, 0]])) == [(0,), ()]


def test_a_question_is_in_one_half():
    assert evaluate.odd("aabbc") == [False, False, True, True, False]
    # Both templates of the first question agree, the second's disagree: found on one, scored on
    # the other, whatever the number of templates.
    good, bad = torch.zeros(8, 2, dtype=torch.int64), torch.full((8, 2), 7)
    result, tree = evaluate.score([good, good, bad, bad], ["a", "a", "b", "b"])
    assert tree["paths"][0] == "0" and result["tree_tau"]["8"] == 1.0
    mixed, _ = evaluate.score([good, good, bad, bad])
    assert mixed["tree_tau"]["8"] > 1.0


def test_two_calls_by_hand():
    """Bases 0, 4 and 6 draft: 1 + 2 + 1, 1 + 0 + 1 and 1 + 1 tokens of 2 forwards each; the last
    text ends with a forward that drafts for nothing."""
    assert evaluate.two_calls_tau([[2, 9, 9, 9, 0, 9, 1, 9]]) == pytest.approx(8 / 6)
    assert evaluate.two_calls_tau([[0, 9, 5]]) == pytest.approx(3 / 3)
    assert evaluate.two_calls_tau([[3, 0, 0, 0, 0], [0, 0]]) == pytest.approx(7 / 4)
    assert evaluate.two_calls_tau([]) == 0.0


def test_a_chains_chances_are_those_of_the_bases_it_visits():
    """Base 0 is right twice and goes on at 3, where the first choice is wrong, then at 4."""
    ranks = torch.tensor([[0, 0, 1], [0, 0, 0], [0, 0, 0], [2, 0, 0], [0, 5, 0]])
    other = torch.tensor([[0, 0, 0]])
    paths = [evaluate.paths_of(r) for r in (ranks, other)]
    assert evaluate.chain_paths(paths, 3) == [((0,), 0.75), ((0, 0), 0.5), ((0, 0, 0), 0.25)]
    tree = evaluate.score([ranks, other], [0, 0], chain_only=True)[1]
    assert tree == {"paths": ["0", "00", "000"], "gain": [0.75, 0.5, 0.25]}
    assert "1" in evaluate.score([ranks, ranks + 1], [0, 0])[1]["paths"]


def test_pass_trains_embeddings_alone_and_stores_a_chain(world, tmp_path, capsys):
    assert command.main(arguments(world, "pass", tmp_path, "--updates", "3")) == 0
    stored, metadata = adapter.read(tmp_path / "pass.safetensors")
    assert set(stored) == {"mask_embed", "draft_vocab"} and stored["mask_embed"].shape[0] == 4
    assert metadata["tree"]["paths"] == ["0", "00", "000", "0000"]
    assert metadata["tree"]["gain"] == sorted(metadata["tree"]["gain"], reverse=True)
    accept = metadata["training"]["acceptance"]
    assert 1 <= accept["two_calls_tau"] <= 3 and metadata["training"]["unit"] == "look-ahead rows"
    card = (tmp_path / "pass.md").read_text()
    assert f"drafted in a forward of its own | {accept['two_calls_tau']:.3f} |" in card
    assert "two_calls_tau" in capsys.readouterr().out
