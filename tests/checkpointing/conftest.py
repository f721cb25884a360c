import pytest
import tensorflow as tf

from cyclegan.checkpointing.manager import CheckpointManager
from tests.checkpointing.runs import DATA, open_run


@pytest.fixture
def run(tmp_path, caplog):
    """Return a function that makes a state and its checkpoint manager, as a new start of the program does."""

    def start(keep=3, names=("a", "b")):
        state = {name: tf.Variable([0.0, 0.0], name=name) for name in names}
        caplog.clear()
        return state, CheckpointManager(tmp_path / "checkpoints", state, keep)

    return start


@pytest.fixture
def run_folder(tmp_path):
    """Return the folder of a run with a checkpoint that has a name and no content."""
    path = tmp_path / "run"
    with open_run(path) as first:
        first.start(DATA)
    for name in ("epoch_0001", "best-x2y", ".partial_best-y2x"):
        (path / "checkpoints" / name).mkdir(parents=True)
    return path
