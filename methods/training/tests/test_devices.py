"""--device of something that is not the CPU: nothing of a training or a score mixes devices. On a GPU that
is an error; here a pretended device stands for it."""
import json

import pytest
import torch

from training import __main__ as command
from training.tests import pretended
from training.tests.loops import ALL, arguments

KINDS = [[method] for method in ALL] + [words.split() for words in (
    "bita --prompt shallow", "bita --prompt none", "bita --recipe paper --batch 2",
    "space --p-ar 1 --ar-loss hard", "space --recipe paper --batch 4", "space --no-distinct",
    "falcon --input per_token", "falcon --input recurrent", "falcon --layers 2 --k 3",
    "falcon --glance random", "falcon --recipe paper --warmup 1", "eagle --recipe paper --warmup 1")]


@pytest.mark.parametrize("words", KINDS, ids=" ".join)
def test_all_of_a_training_is_on_the_device(world, tmp_path, capsys, monkeypatch, words):
    method, *more = words
    with pretended.device(monkeypatch):
        assert command.main(arguments(world, method, tmp_path, *more, "--updates", "2",
                                      "--device", pretended.DEVICE)) == 0
    assert json.loads(capsys.readouterr().out)["held_out_tokens"] > 0


def test_a_checkpoint_is_taken_to_the_device(world, tmp_path, capsys, monkeypatch):
    given = arguments(world, "bita", tmp_path, "--updates", "4", "--save-every", "0", "--device",
                      pretended.DEVICE)
    with pretended.device(monkeypatch):
        stopped = command.Trainer.one_step

        def three(loop):
            if loop.state.step == 3:
                raise command.Interrupted
            return stopped(loop)

        monkeypatch.setattr(command.Trainer, "one_step", three)
        assert command.main(given) == 130
        monkeypatch.setattr(command.Trainer, "one_step", stopped)
        assert command.main(given) == 0
    assert "going on at" in capsys.readouterr().err


def test_mixed_devices_are_noticed(monkeypatch):
    with pretended.device(monkeypatch):
        there = torch.arange(3.0, device=pretended.DEVICE)
        assert (there + 1).tolist() == [1, 2, 3] and there.to("cpu").sum() == 3
        assert (there * torch.tensor(2.0)).tolist() == [0, 2, 4]  # a scalar may be anywhere
        with pytest.raises(RuntimeError, match="two devices"):
            there + torch.arange(3.0)
        with pytest.raises(RuntimeError, match="two devices"):
            torch.arange(3)[there.long()]
