import pytest
import tensorflow as tf

from cyclegan.run import html_report
from cyclegan.run.checkpoints import CheckpointManager
from tests.run.reports import sample
from tests.run.saves import DATA, open_run


@pytest.fixture
def report(tmp_path):
    """Return the report of a run: two samples of each direction, three epochs, unsorted cycle errors."""
    items = [sample(tmp_path, "a", (30, 20, 10)), sample(tmp_path, "b", (20, 20, 40))]
    items += [sample(tmp_path, "c", (5, 30, 0.03125), "Y → X"), sample(tmp_path, "d", (1, 2, 20), "Y → X")]
    return html_report.write(tmp_path, "a run", items, ["of the newest checkpoint"])


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
    for name in ("epoch_0001-1", "best-x2y-1", "partial"):
        (path / "checkpoints" / name).mkdir(parents=True)
    return path
