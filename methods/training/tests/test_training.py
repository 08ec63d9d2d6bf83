"""Learning, determinism, resuming, adapters, the command line."""
import json
import signal

import pytest
import torch

from training import __main__ as command
from training import adapter, evaluate, frozen, target, trainer, verify
from training.drafters import falcon, mask_rows
from training import vocabulary
from training.errors import Failure
from training.tests import made_up

ALL = ["medusa", "eagle", "eagle3", "falcon", "draft", "bita", "gated_lora", "space"]
MASKS = ["bita", "gated_lora", "space"]


def arguments(world, method, out, *more):
    return [method, "--data", str(world.folder / "capture"), "--target", str(world.folder), "--out",
            str(out),
            "--threads", "1", "--precision", "f32", "--no-recompute", "--vocabulary", "40", *more]


def loop_of(world, method, out, *more):
    """A Trainer as the command makes it."""
    options = command.parse(arguments(world, method, out, *more))
    data, train, held, model = command.prepare(options)
    kind = command.CLASSES[method]
    options.residual_layers = data.residual_layers
    words = command.vocabulary.choose(data, train, model.shape.vocab_size, options.vocabulary)
    module = kind(command.frozen_of(options, model, words), kind.configure(options, model.shape))
    module.start(model, command.statistics_of(data, train, module.residual))
    module.capture = data
    budget = trainer.Budget(tokens=options.tokens, seconds=options.minutes and 60 * options.minutes)
    return trainer.Trainer(module, module.feed(data, train, options), options, budget, out,
                           command.settings_of(options, data, train)), held


def losses_of(loop, n):
    return [loop.one_step() for _ in range(n)]


@pytest.mark.parametrize("method", ALL)
def test_same_seed_same_curve(world, tmp_path, method):
    more = ("--tokens", "100000") + (("--k", "2") if method == "falcon" else ())
    first = losses_of(loop_of(world, method, tmp_path / "a", *more)[0], 20)
    again = losses_of(loop_of(world, method, tmp_path / "b", *more)[0], 20)
    assert first == again
    other = losses_of(loop_of(world, method, tmp_path / "c", *more, "--seed", "2")[0], 20)
    assert first != other


@pytest.mark.parametrize("method", [m for m in ALL if m not in MASKS])
def test_learns(world, tmp_path, method):
    """On a table that two tokens decide, a few hundred steps must do far better than none."""
    loop, held = loop_of(world, method, tmp_path, "--tokens", "60000", "--lr", "3e-3",
                         *(("--batch", "64") if method == "medusa" else ()))
    before = evaluate.score(loop.module.ranks(world.capture, held))[0]["tree_tau"]["8"]
    loop.run()
    after = evaluate.score(loop.module.ranks(world.capture, held))[0]["tree_tau"]["8"]
    assert after > before + 0.3, (before, after)


@pytest.mark.parametrize("method", MASKS)
def test_masks_learn_their_text(world, tmp_path, method):
    """The made-up text is not what the random network says, so nothing is learnt of other text."""
    loop, _ = loop_of(world, method, tmp_path, "--tokens", "30000")
    first = sum(losses_of(loop, 10)) / 10
    loop.run()
    assert loop.state.mean_loss < first - 0.3, (first, loop.state.mean_loss)


@pytest.mark.parametrize("method", ["medusa", "eagle", "falcon", "gated_lora", "space"])
def test_resumed_is_uninterrupted(world, tmp_path, method):
    more = ("--tokens", "6000")
    whole, _ = loop_of(world, method, tmp_path / "whole", *more)
    whole.run()
    part, _ = loop_of(world, method, tmp_path / "cut", *more)
    part.run(steps=3)
    part.save()
    second, _ = loop_of(world, method, tmp_path / "cut", *more)
    assert second.resume() and second.state.step == 3
    second.run()
    assert second.state.step == whole.state.step
    for (name, a), (_, b) in zip(whole.module.named_parameters(), second.module.named_parameters()):
        assert torch.equal(a, b), name


def test_checkpoint_of_other_settings_is_refused(world, tmp_path):
    loop, _ = loop_of(world, "eagle", tmp_path, "--tokens", "2000")
    loop.run(steps=1)
    other, _ = loop_of(world, "eagle", tmp_path, "--tokens", "2000", "--lr", "0.1")
    with pytest.raises(Failure, match="lr = "):
        other.resume()
    loop.checkpoint.write_bytes(b"no checkpoint")
    with pytest.raises(Failure, match="cannot be read"):
        other.resume()


def test_a_signal_stops_with_a_checkpoint(world, tmp_path):
    loop, _ = loop_of(world, "eagle", tmp_path, "--tokens", "100000")
    step = loop.one_step

    def kill_in_the_second_step():
        step()
        if loop.state.step == 2:
            signal.raise_signal(signal.SIGTERM)

    loop.one_step = kill_in_the_second_step
    with pytest.raises(trainer.Interrupted):
        loop.run()
    again, _ = loop_of(world, "eagle", tmp_path, "--tokens", "100000")
    assert again.resume() and again.state.step == 2


def test_out_of_memory_names_the_remedy(world, tmp_path):
    loop, _ = loop_of(world, "eagle", tmp_path, "--tokens", "2000")

    def fail(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    loop.module.loss = fail
    with pytest.raises(Failure, match="lower --batch"):
        loop.run()


def test_budget_needs_a_limit():
    with pytest.raises(Failure, match="--minutes"):
        trainer.Budget().share(trainer.State(), 0)
    state = trainer.State(tokens=50, wall_seconds=9)
    assert trainer.Budget(tokens=100, seconds=10).share(state, 0) == 0.9


def test_learning_rate():
    rates = [trainer.learning_rate(step, step / 100, 10) for step in range(101)]
    assert rates[0] == pytest.approx(0.1, abs=0.01) and max(rates) > 0.95 and rates[100] == 0
    assert trainer.learning_rate(0, 0.0, 0.1) < 0.05


# Adapters ----------------------------------------------------------------------------------------
def test_quantised_rows_keep_their_size():
    weight = torch.randn(20, 30, generator=torch.Generator().manual_seed(1))
    weight = weight * torch.logspace(-3, 3, 20)[:, None]
    weight[4] = 0
    q, scale = adapter.quantise(weight)
    assert q.dtype == torch.int8 and q.abs().max() <= 127
    error = (q.float() * scale[:, None] - weight).abs()
    assert (error <= scale[:, None] / 2 * 1.001).all()


@pytest.mark.parametrize("more", [[], ["--input", "per_token", "--skip"], ["--input", "recurrent"],
                                  ["--published-layout", "--k", "3", "--layers", "2", "--kv-heads",
                                   "4"]])
@pytest.mark.parametrize("weights", ["int8", "f32"])
def test_falcon_round_trip(world, tmp_path, more, weights):
    round_trip(world, tmp_path, "falcon", more, weights)


@pytest.mark.parametrize("method", [m for m in ALL if m != "falcon"])
@pytest.mark.parametrize("weights", ["int8", "bf16", "f32"])
def test_round_trip(world, tmp_path, method, weights):
    round_trip(world, tmp_path, method, [], weights)


def round_trip(world, tmp_path, method, more, weights):
    """Written, read and evaluated: the same ranks up to rounding; a second writing is exact."""
    loop, held = loop_of(world, method, tmp_path, "--tokens", "100000", *more)
    loop.run(steps=5)
    path = tmp_path / "x.safetensors"
    adapter.write(path, loop.module, world.capture.model, weights,
                  tree={"paths": ["0"], "gain": [0.5]})
    module, metadata = adapter.load(path, command.CLASSES, lambda ids: loop.module.frozen)
    assert metadata["method"] == method and metadata["tree"]["paths"] == ["0"]
    assert metadata["target_hash"] == "made-up" and metadata["d_model"] == str(made_up.D)
    ours, theirs = loop.module.ranks(world.capture, held), module.ranks(world.capture, held)
    same = torch.cat([(a == b).float().flatten() for a, b in zip(ours, theirs)]).mean()
    assert same > (0.999 if weights == "f32" else 0.8)
    again = tmp_path / "y.safetensors"
    adapter.write(again, module, world.capture.model, weights)
    first, second = adapter.read(path)[0], adapter.read(again)[0]
    assert set(first) == set(second)
    for name in first:
        if weights != "int8" or first[name].dtype != torch.float32:
            assert torch.equal(first[name], second[name]), name


def test_foreign_adapters_are_refused(world, tmp_path):
    loop, _ = loop_of(world, "eagle", tmp_path, "--tokens", "100")
    path = tmp_path / "x.safetensors"
    adapter.write(path, loop.module, world.capture.model)
    stored, metadata = command.adapter.tensorfile.read(path)
    stored = {k: v.clone() for k, v in stored.items()}
    frozen = loop.module.frozen

    def load():
        return adapter.load(path, command.CLASSES, lambda _: frozen)

    command.adapter.tensorfile.write(path, stored | {"surplus": torch.zeros(3)}, metadata)
    with pytest.raises(Failure, match="surplus is unknown"):
        load()
    del stored["layers.0.up.weight"]
    command.adapter.tensorfile.write(path, stored, metadata)
    with pytest.raises(Failure, match="layers.0.up.weight is missing"):
        load()
    command.adapter.tensorfile.write(path, stored, metadata | {"format": "other"})
    with pytest.raises(Failure, match="evalrun-adapter"):
        load()


def test_states_are_compared_with_recomputed_ones(world, tmp_path):
    """A capture made with the target's own forward passes; the made-up one of the other tests does
    not."""
    with pytest.raises(Failure, match="cosine"):
        verify.check_states(world.target, world.capture, world.held)
    tokens = torch.randint(made_up.V, (30,), generator=torch.Generator().manual_seed(3))
    streams, states = verify.target_states(world.target, tokens, [1, 3])
    states[-1] = 0
    info = json.loads((world.folder / "capture" / "capture.json").read_text())
    (tmp_path / "capture.json").write_text(json.dumps(info | {"residual_layers": [1, 3]}))
    part = {"tokens": tokens.int(), "start": torch.tensor([0, 30]),
            "prompt": torch.tensor([5], dtype=torch.int32),
            "line": torch.tensor([0]), "ended": torch.zeros(1, dtype=torch.uint8),
            "hidden": states.bfloat16(),
            "residual": torch.cat([streams[1], streams[3]], 1).bfloat16()}
    path, metadata = tmp_path / "part-00000.safetensors", {"format": "evalrun-capture",
                                                           "version": "1"}
    adapter.tensorfile.write(path, part, metadata)
    data = command.capture.Capture(tmp_path)
    assert verify.check_states(world.target, data, data.sequences) > 0.9999
    part["residual"] = part["residual"].roll(made_up.D, 1)  # the streams of the wrong layers
    adapter.tensorfile.write(path, part, metadata)
    data = command.capture.Capture(tmp_path)
    with pytest.raises(Failure, match="residual stream of layer 1"):
        verify.check_states(world.target, data, data.sequences)


@pytest.mark.parametrize("method", ["eagle", "falcon"])
def test_linear_start_is_better_than_repeating(world, tmp_path, method):
    # (Not eagle3: the made-up states have no constant part, on which its attention would rest.)
    right = {}
    for start in ("repeat", "linear"):
        loop, held = loop_of(world, method, tmp_path / start, "--tokens", "10", "--start", start)
        ranks = torch.cat(loop.module.ranks(world.capture, held))[:, 0]
        right[start] = float((ranks == 0).float().mean())
    assert right["linear"] > right["repeat"] + 0.15, right


def test_falcon_begins_as_eagle(world, tmp_path):
    """The first row of a block predicts what EAGLE does, before any training of its own."""
    loop, held = loop_of(world, "eagle", tmp_path / "a", "--tokens", "15000", "--lr", "3e-3")
    loop.run()
    path = tmp_path / "eagle.safetensors"
    adapter.write(path, loop.module, world.capture.model, "f32")
    more = ("--tokens", "10", "--layers", "2", "--kv-heads", str(made_up.HEADS))
    plain, _ = loop_of(world, "falcon", tmp_path / "b", *more, "--start", "repeat")
    started, _ = loop_of(world, "falcon", tmp_path / "c", *more, "--start-from", str(path))

    def right(module):
        ranks = torch.cat(module.ranks(world.capture, held))[:, 0]
        return float((ranks == 0).float().mean())

    # Not all of EAGLE's: the made-up features hardly have the constant part that attention needs.
    shares = [right(m) for m in (plain.module, started.module, loop.module)]
    assert shares[0] + 0.15 < shares[1], shares
    with pytest.raises(Failure, match="--layers 2"):
        loop_of(world, "falcon", tmp_path / "d", "--tokens", "10", "--start-from", str(path))


# Glancing ----------------------------------------------------------------------------------------
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
    for budget in (0, 1, 3, 1000):
        rows = falcon.glanced_rows(batch, [budget] * 6, rng)
        assert (rows.sum(1) <= max(budget, 0)).all()
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


@pytest.mark.parametrize("more,expected", [
    ((), True), (("--no-out-matrix",), False), (("--recipe", "paper"), False),
    (("--recipe", "paper", "--out-matrix"), True)])
def test_the_draft_reads_out_through_a_matrix(world, tmp_path, more, expected):
    loop, _ = loop_of(world, "draft", tmp_path, "--tokens", "1000", "--layers", "1", *more)
    assert (loop.module.out is not None) == expected
    assert loop.options.out == str(tmp_path)


# Command -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("p_ar, unit", [("1", "answer tokens"), ("0", "mask rows")])
def test_a_control_sees_as_many_answers(world, tmp_path, p_ar, unit):
    """--updates counts the same for a control and what it controls; tokens do not."""
    made_up.write_capture(tmp_path / "text", world.head, answers="dataset")
    out = tmp_path / "out"
    given = arguments(world, "space", out, "--p-ar", p_ar, "--ar-loss", "hard", "--hard-share", "1",
                      "--batch", "2", "--updates", "6", "--held-out", "6")
    given[given.index("--data") + 1] = str(tmp_path / "text")
    assert command.main(given) == 0
    training = adapter.read(out / "space.safetensors")[1]["training"]
    assert training["updates"] == 6 and training["unit"] == unit
    assert training["answers"] == "dataset"
    card = " ".join((out / "space.md").read_text().split())
    assert f"{training['tokens_seen']:,} {unit} seen" in card
    assert "not the target's" in card and "not what decoding accepts" in card
    assert "greedy answers" not in card


def test_command_writes_adapter_and_card(world, tmp_path, capsys):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"source": "own_code" if i % 2 else "own_text"}) + "\n"
                               for i in range(40)))
    out = tmp_path / "out"
    more = ("--tokens", "3000", "--prompts", str(prompts))
    assert command.main(arguments(world, "eagle", out, *more)) == 0
    result = json.loads(capsys.readouterr().out)
    stored, metadata = adapter.read(out / "eagle.safetensors")
    training = metadata["training"]
    assert training["tokens_seen"] >= 3000
    assert training["sources"].keys() == {"own_code", "own_text"}
    assert result["chain_tau"] == training["acceptance"]["chain_tau"]
    assert len(stored["draft_vocab"]) == 40 and metadata["config"]["n_heads"] == made_up.HEADS
    paths = metadata["tree"]["paths"]
    assert 1 <= len(paths) <= 64 and len(paths) == len(metadata["tree"]["gain"])
    card = " ".join((out / "eagle.md").read_text().split())
    assert "Apache-2.0 (this project)" in card and "held-out" in card
    # The finished training is scored again, not trained again; the evaluation stands alone, too.
    assert command.main(arguments(world, "eagle", out, *more)) == 0
    assert json.loads(capsys.readouterr().out)["tokens_seen"] == training["tokens_seen"]
    assert command.main(["evaluate", str(out / "eagle.safetensors"), "--data",
                         str(world.folder / "capture"),
                         "--target", str(world.folder), "--precision", "f32",
                         "--no-recompute"]) == 0
    assert json.loads(capsys.readouterr().out)["chain_tau"] == result["chain_tau"]


def test_test_prompts_in_the_text_mark_the_adapter(world, tmp_path, capsys):
    prompts, report = tmp_path / "prompts.jsonl", tmp_path / "overlap.json"
    row = {"source": "lima", "licence": "NC-LICENCE", "origin": "https://x"}
    prompts.write_text((json.dumps(row) + "\n") * 40)
    sets = [{"set": "gsm8k", "overlapping": 3}, {"set": "mbpp", "overlapping": 0}]
    # The made-up captures say that this is their prompt list's SHA-256.
    report.write_text(json.dumps({"texts": [{"sha256": "list 0", "sets": sets}]}))
    common = ("--tokens", "500", "--prompts", str(prompts))

    def training_of(name, *more):
        assert command.main(arguments(world, "eagle", tmp_path / name, *common, *more)) == 0
        capsys.readouterr()
        card = " ".join((tmp_path / name / "eagle.md").read_text().split())
        return adapter.read(tmp_path / name / "eagle.safetensors")[1]["training"], card

    given = ("--overlap", str(report))
    for more in ((), ("--dry-run",)):
        assert command.main(arguments(world, "eagle", tmp_path / "a", *common, *given, *more)) == 2
        assert "3 prompts of gsm8k" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
    training, card = training_of("b", *given, "--force-overlap")
    assert training["overlap"] == {"gsm8k": 3, "mbpp": 0}
    assert "**3 of `gsm8k`**; figures measured there flatter" in card
    assert "| NC-LICENCE (https://x) |" in card
    report.write_text(report.read_text().replace(": 3", ": 0"))
    training, card = training_of("c", *given)
    assert training["overlap"] == {"gsm8k": 0, "mbpp": 0}
    assert "by 13-grams: none of `gsm8k`, `mbpp`" in card
    report.write_text(report.read_text().replace("list 0", "another"))
    for name, more in (("d", given), ("e", ())):
        training, card = training_of(name, *more)
        assert training["overlap"] is None and "in the text: not looked for" in card


def test_errors_are_one_line(world, tmp_path, capsys):
    made_up.write_capture(tmp_path / "plain", world.head)
    code = command.main(["eagle3", "--data", str(tmp_path / "plain"), "--target", str(world.folder),
                         "--out",
                         str(tmp_path / "out"), "--tokens", "10", "--no-recompute"])
    text = capsys.readouterr().err
    assert code == 7 and "--residual eagle3" in text.splitlines()[-1]
    assert command.main(arguments(world, "eagle", tmp_path / "out")) == 2
    assert "no budget" in capsys.readouterr().err
    assert command.main(arguments(world, "eagle", tmp_path / "out", "--tokens", "9", "--device",
                                  "cuda")) == 2 or \
        torch.cuda.is_available()


@pytest.mark.parametrize("kind", ["lora", "full"])
@torch.no_grad()
def test_merged_target_is_the_tuned_one(world, tmp_path, kind):
    """A tuned target written as a folder gives the states that training saw."""
    out = tmp_path / "space"
    with torch.enable_grad():
        loop, _ = loop_of(world, "space", out, "--train", kind, "--tokens", "4000",
                          "--lr", "0.01")
        loop.run(steps=15)
    if kind == "lora":
        source = tmp_path / "space.safetensors"
        adapter.write(source, loop.module, world.capture.model | {"hash": ""}, "f32")
    else:
        source = loop.checkpoint
    folder = tmp_path / "tuned"
    assert command.main(["merge", str(source), "--target", str(world.folder), "--out",
                         str(folder)]) == 0
    tuned = target.open_target(folder)
    tokens = torch.arange(12)[None] % tuned.shape.vocab_size
    words = vocabulary.Vocabulary(torch.arange(tuned.shape.vocab_size), tuned.shape.vocab_size)
    plain = mask_rows.MaskRows(frozen.Frozen.of(tuned, words, kind=torch.float32), {"masks": 1})
    got, want = plain.run_text(tokens)[0], loop.module.run_text(tokens)[0]
    original = mask_rows.MaskRows(loop.module.frozen, {"masks": 1}).run_text(tokens)[0]
    # Weights of the folder are bfloat16: their rounding (2^-9) is some hundredths of what so short a
    # training moved.
    moved = (want - original).abs().max()
    assert (got - want).abs().max() < 0.1 * moved, (moved, (got - want).abs().max())
    assert (tmp_path / "tuned.space.safetensors").is_file()


def test_one_sample_of_the_paper_has_one_group_or_none(world, tmp_path):
    loop, _ = loop_of(world, "space", tmp_path, "--layout", "paper", "--p-ar", "0.5", "--batch",
                      "16", "--tokens", "2000")
    options, module = loop.options, loop.module
    sequences = world.capture.sequences[:16]
    bases = module.choose_bases(sequences, options, trainer.generator(1))
    again = module.choose_bases(sequences, options, trainer.generator(2))
    assert bases.shape == (16, 1) and not torch.equal(bases, again), "drawn anew"
    for s, base in zip(sequences, bases[:, 0].tolist()):
        assert base == -1 or s.prompt - 1 <= base <= s.n - 2 - module.n_masks
    assert 2 <= int((bases < 0).sum()) <= 14
    losses_of(loop, 2)
