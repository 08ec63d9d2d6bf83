import pathlib
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
