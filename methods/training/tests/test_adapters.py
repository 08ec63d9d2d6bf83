"""Adapters written and read: rounding, round trips, files that are refused."""
import pytest
import torch

from training import __main__ as command
from training import adapter
from training.errors import Failure
from training.tests import made_up
from training.tests.loops import ALL, loop_of


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
