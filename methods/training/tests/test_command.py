"""The command line: adapter and card, overlap, errors, merging."""
import json

import pytest
import torch

from training import __main__ as command
from training import adapter, budget, frozen, target, vocabulary
from training.drafters import mask_rows
from training.tests import made_up
from training.tests.loops import arguments, loop_of


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
    text = loop.settings["text"]
    spent = budget.of(loop.options, loop.state, text)
    assert text == budget.text_of(world.capture, world.train)
    if kind == "lora":
        source = tmp_path / "space.safetensors"
        adapter.write(source, loop.module, world.capture.model | {"hash": ""}, "f32",
                      training={"budget": spent, "overlap": {"gsm8k": 3}, "seed": 1})
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
    masks = adapter.read(tmp_path / "tuned.space.safetensors")[1]
    assert masks["training"]["budget"] == spent and spent["updates"] == 15
    # Of test prompts in the text a checkpoint knows nothing.
    assert masks["training"].get("overlap") == ({"gsm8k": 3} if kind == "lora" else None)
    assert "seed" not in masks["training"]
