"""Torch checkpoints become safetensors; programs in them do not run."""
import os

import pytest
import torch

from training import __main__ as program
from training import tensorfile


class Program:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_names_and_numbers_stay(tmp_path):
    state = {"fc.weight": torch.randn(4, 8), "d2t": torch.arange(3),
             "t2d": torch.tensor([True, False]), "half": torch.randn(2).half()}
    torch.save({"state_dict": state}, tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text('{"x": 1}')
    out = tmp_path / "new" / "model.safetensors"
    assert program.main(["convert", str(tmp_path / "pytorch_model.bin"), str(out)]) == 0
    tensors, _ = tensorfile.read(out)
    assert set(tensors) == set(state)
    for name, tensor in state.items():
        assert torch.equal(tensors[name].to(tensor.dtype), tensor)
    assert (out.parent / "config.json").read_text() == '{"x": 1}'


@pytest.mark.parametrize("content", ["program", "cut", "list"])
def test_what_is_no_checkpoint_is_refused(tmp_path, capsys, content):
    path, sign = tmp_path / "x.bin", tmp_path / "ran"
    if content == "program":
        torch.save({"a": Program(sign)}, path)
    elif content == "list":
        torch.save([torch.zeros(2)], path)
    else:
        torch.save({"a": torch.zeros(1000)}, path)
        path.write_bytes(path.read_bytes()[:500])
    assert program.main(["convert", str(path), str(tmp_path / "o.safetensors")]) != 0
    assert "x.bin" in capsys.readouterr().err
    assert not sign.exists() and not (tmp_path / "o.safetensors").exists()
