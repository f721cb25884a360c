"""Run directories, training states, saves of the fixture `run`, and runs without TensorFlow's runtime."""

import json
import os
import pathlib
import types

from cyclegan.config import Config
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.run_directory import RunDirectory
from cyclegan.run.train_state import PassState, TrainState

STACK = {"keras": 2, "tensorflow": "2.15.1"}
DATA = {"trainA": "3 images (1)"}


def open_run(path, stack=STACK, **values):
    return RunDirectory(Config.from_settings(output_dir=str(path), **values), stack)


def at(epoch, pairs=0, test_pairs=0):
    """Return a training state at a position."""
    return TrainState(
        epoch=epoch, step=10 * epoch + pairs, train=PassState(pairs_done=pairs), test=PassState(pairs_done=test_pairs)
    )


def save(run, *epochs, keep=3, best=()):
    """Save a checkpoint after each of some epochs, whose weights are the number of the epoch; return the manager."""
    state, checkpoints = run(keep)
    for epoch in epochs:
        state["a"].assign([epoch, epoch])
        checkpoints.save(at(epoch), best=best)
    return checkpoints


def names(checkpoints):
    """Return the names of all files and folders beside the checkpoints."""
    return sorted(path.name for path in checkpoints.folder.iterdir())


class Number:
    """Stand in for `tf.train.Checkpoint`, whose runtime does not survive a fork: the state is a number.

    It makes the same changes of the disk.
    """

    def __init__(self, value, train_state):
        self.value, self.train_state = value, train_state

    def write(self, prefix):
        temporary = pathlib.Path(f"{prefix}_temp")
        temporary.mkdir()
        (temporary / "part").write_text(json.dumps([self.value, self.train_state.serialize()]))
        os.rename(temporary / "part", f"{prefix}.data-00000-of-00001")
        pathlib.Path(f"{prefix}.index").write_text("index")
        temporary.rmdir()

    def read(self, prefix):
        assert pathlib.Path(f"{prefix}.index").read_text() == "index"
        self.value, train_state = json.loads(pathlib.Path(f"{prefix}.data-00000-of-00001").read_text())
        self.train_state.deserialize(train_state)
        done = types.SimpleNamespace(expect_partial=lambda: None)
        return types.SimpleNamespace(assert_consumed=lambda: None, assert_existing_objects_matched=lambda: done)


class Run:
    """Start a program again and again on one folder."""

    def __init__(self, folder, keep):
        self.folder, self.keep = folder, keep

    def start(self, value=0):
        checkpoints = CheckpointManager(self.folder, {}, self.keep)
        checkpoints._checkpoint = Number(value, checkpoints._train_state)
        return checkpoints

    def save(self, value, train_state, **options):
        self.start(value).save(train_state, **options)

    def restored(self, **options):
        checkpoints = self.start()
        found = checkpoints.restore(**options)
        return found and (checkpoints._checkpoint.value, found.train_state)

    def named(self, name):
        checkpoints = self.start()
        checkpoints.restore(name, strict=False)
        return checkpoints._checkpoint.value
