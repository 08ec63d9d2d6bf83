"""Learning, determinism, resuming, schedules."""
import os
import pathlib
import signal
import subprocess
import sys

import pytest
import torch

from training import __main__ as command
from training import adapter, evaluate, trainer
from training.errors import Failure
from training.tests.loops import ALL, MASKS, arguments, loop_of, losses_of


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


# Ends itself as `kill -9` does: in a step, or between writing a checkpoint and putting it in place.
KILLED = """
import os, signal, sys
from training import __main__ as command, trainer

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

place, step, replace, calls = sys.argv[1], trainer.Trainer.one_step, os.replace, [0]

def one_step(loop):
    value = step(loop)
    if place == "step" and loop.state.step == 5:
        die()
    return value

def put_in_place(*paths):
    calls[0] += 1
    (die if place == "save" and calls[0] == 3 else replace)(*paths)

trainer.Trainer.one_step, trainer.os.replace = one_step, put_in_place
sys.exit(command.main(sys.argv[2:]))
"""


@pytest.mark.parametrize("method, place, done, more", [
    ("bita", "step", 4, ("--updates", "9", "--dropout", "0.2", "--batch", "2")),
    ("eagle", "save", 2, ("--tokens", "2000", "--noise", "0.1"))])
def test_a_killed_training_ends_with_the_same_weights(world, tmp_path, capsys, method, place, done,
                                                      more):
    def given(name):
        return arguments(world, method, tmp_path / name, "--save-every", "0", *more)

    environment = os.environ | {"PYTHONPATH": str(pathlib.Path(command.__file__).parents[1]),
                                "PYTHONDONTWRITEBYTECODE": "1"}
    killed = subprocess.run([sys.executable, "-c", KILLED, place, *given("killed")],
                            env=environment, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "killed" / f"{method}.safetensors").exists()

    def checkpoint(name):
        return torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)

    assert checkpoint("killed")["state"]["step"] == done
    assert command.main(given("killed")) == 0 and "going on at" in capsys.readouterr().err
    assert command.main(given("whole")) == 0 and "going on at" not in capsys.readouterr().err
    cut, whole = checkpoint("killed"), checkpoint("whole")
    assert {n: cut["state"][n] for n in ("step", "tokens", "epoch", "index", "mean_loss")} == \
        {n: whole["state"][n] for n in ("step", "tokens", "epoch", "index", "mean_loss")}
    for name, tensor in whole["weights"].items():
        assert torch.equal(cut["weights"][name], tensor), name
    stored, same = (adapter.read(tmp_path / n / f"{method}.safetensors")[0]
                    for n in ("killed", "whole"))
    assert all(torch.equal(stored[name], same[name]) for name in same)


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
    assert trainer.learning_rate(0, 0.0, 0) == 1, "no warm-up"
    left = {name: [round(trainer.learning_rate(9, share, 0, name), 3) for share in (0.25, 0.5, 1)]
            for name in trainer.SCHEDULES}
    assert left == {"cosine": [0.854, 0.5, 0], "linear": [0.75, 0.5, 0], "constant": [1, 1, 1]}
