"""States of a capture against the target's own forward passes."""
import json

import pytest
import torch

from training import __main__ as command
from training import adapter, verify
from training.errors import Failure
from training.tests import made_up


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
