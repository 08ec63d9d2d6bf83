import os
import pathlib
import random
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
sys.dont_write_bytecode = True

from training import frozen, target, vocabulary  # noqa: E402
from training.data import capture  # noqa: E402
from training.tests import made_up  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)


class World:
    """A made-up target with a capture of it."""

    def __init__(self, folder):
        self.folder = folder
        self.head = made_up.write_target(folder)
        made_up.write_capture(folder / "capture", self.head, residual=True)
        self.capture = capture.Capture(folder / "capture")
        self.target = target.open_target(folder)
        self.train, self.held = self.capture.split(1)

    def frozen(self, size=0):
        words = vocabulary.choose(self.capture, self.train, self.target.shape.vocab_size, size)
        return frozen.Frozen.of(self.target, words, kind=torch.float32)


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"))


# Each trains every kind of drafter, in seconds to half a minute each: a usual run takes some of them.
TRAINS_ALL_KINDS = {
    "test_all_of_a_training_is_on_the_device": 5,
    "test_learns": 2,
    "test_masks_learn_their_text": 1,
    "test_resumed_is_uninterrupted": 2,
    "test_same_seed_same_curve": 3,
}


def pytest_collection_modifyitems(config, items):
    """The samples of scripts/test (tests/sample.h), for what trains. A run by hand takes everything."""
    if "EVALRUN_TEST_SEED" not in os.environ or "EVALRUN_TEST_ALL" in os.environ:
        return
    chance = random.Random(int(os.environ["EVALRUN_TEST_SEED"]))
    left_out = []
    for name, size in sorted(TRAINS_ALL_KINDS.items()):
        kinds = [item for item in items if item.originalname == name]
        left_out += chance.sample(kinds, max(0, len(kinds) - size))
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
