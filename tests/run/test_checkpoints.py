import errno
import gc
import itertools
import logging
import os

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.errors import UserError
from cyclegan.run.checkpoints import CheckpointManager, ShardedState
from cyclegan.training.step import GAN
from tests.run.saves import Run, at, names, read_train_state, save
from tests.thread_workers import in_threads
from tests.training.helpers import state_values


def full(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


def spoil(checkpoint, change=lambda content: b"x" + content[1:], name="state.data-00000-of-00001"):
    """Change a file of a checkpoint."""
    (checkpoint / name).write_bytes(change((checkpoint / name).read_bytes()))


def test_restore_without_checkpoints_returns_none(run, tmp_path):
    assert run()[1].restore() is None and not list(tmp_path.iterdir())


def test_the_newest_checkpoint_is_restored(run, caplog):
    saved = save(run, 1, 2, 10)
    state, checkpoints = run()
    train_state, path = checkpoints.restore()
    assert (train_state, path, checkpoints.newest) == (at(10), saved.folder / "epoch_0010-3", path)
    assert state["a"].numpy().tolist() == [10, 10] and not caplog.messages
    assert read_train_state(path) == at(10)


def test_each_save_has_a_name_and_a_number_of_its_own(run):
    _, checkpoints = run(keep=9)
    for position in (at(0), at(0, 7), at(0, 120, 3), at(1), at(0, 120)):
        checkpoints.save(position)
    expected = ["epoch_0000-1", "epoch_0000_pair_00007-2", "epoch_0000_pair_00120_test_0003-3", "epoch_0001-4"]
    assert [path.name for path in checkpoints.all()] == [*expected, "epoch_0000_pair_00120-5"]
    (checkpoints.folder / "epoch_0009").mkdir()  # of an earlier version
    (checkpoints.folder / "epoch_notes-9").write_text("mine")
    assert run()[1].restore().train_state == at(0, 120)


def test_the_newest_checkpoints_are_kept(run):
    checkpoints = save(run, *range(1, 13), keep=2)
    assert names(checkpoints) == ["epoch_0011-11", "epoch_0012-12"]


def test_a_checkpoint_of_every_nth_epoch_is_kept(run):
    _, checkpoints = run(keep=1)
    checkpoints.keep_every = 2
    for position in (at(0), at(1), at(2), at(2, 5), at(3), at(4), at(5), at(6, 1)):
        checkpoints.save(position)
    kept = ["epoch_0002-3", "epoch_0004-6", "epoch_0006_pair_00001-8"]
    assert names(checkpoints) == kept


def test_a_folder_whose_name_looks_like_a_pattern_is_restored(tmp_path):
    folder = tmp_path / "[x]*?\\y" / "checkpoints"
    value = tf.Variable(1.0)
    CheckpointManager(folder, {"a": value}).save(at(1))
    value.assign(2.0)
    assert CheckpointManager(folder, {"a": value}).restore().path == folder / "epoch_0001-1"
    assert value.numpy() == 1


def test_checkpoints_behind_which_training_went_back_are_removed_first(run):
    checkpoints = save(run, 2, 4, 6)
    spoil(checkpoints.all()[-1])
    _, checkpoints = run(keep=2)
    assert checkpoints.restore().train_state == at(4)
    checkpoints.save(at(5))
    assert names(checkpoints) == ["epoch_0004-2", "epoch_0005-4"]
    assert checkpoints.restore(newest_last=True).train_state == at(4)
    spoil(checkpoints.folder / "epoch_0004-2")
    assert checkpoints.restore(newest_last=True).train_state == at(5)


def test_best_checkpoints_stay_until_they_are_replaced(run):
    save(run, 1, best=["best-x2y", "best-y2x"])
    checkpoints = save(run, 2, 3, 4, keep=2)
    assert names(checkpoints) == ["best-x2y-1", "best-y2x-1", "epoch_0003-3", "epoch_0004-4"]
    save(run, 5, keep=1, best=["best-x2y"])
    assert names(checkpoints) == ["best-x2y-5", "best-y2x-1", "epoch_0005-5"]
    state, checkpoints = run()
    assert checkpoints.restore("best-y2x").train_state == at(1) and state["a"].numpy().tolist() == [1, 1]
    for name in ("best-x2y", "best-x2y-5", "epoch_0005", "epoch_0005-5"):
        assert checkpoints.restore(name).train_state == at(5)
    for name in ("epoch_0001", "best-x2y-1", "../checkpoints/epoch_0005-5"):
        with pytest.raises(UserError, match="no such checkpoint; expected one of epoch_0005-5, best-y2x-1, best-x2y-5"):
            checkpoints.restore(name)


@pytest.mark.parametrize("name", ["state.index", "state.data-00000-of-00001"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "missing", "graph"])
def test_a_damaged_checkpoint_falls_back_to_the_previous_one(run, caplog, damage, name):
    newest = save(run, 1, 2).all()[-1]
    if damage == "missing":
        (newest / name).unlink()
    elif damage == "graph":  # with the right checksums
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            graph = tf.constant([b"\xff" * 9])
            saved = tf.raw_ops.SaveV2(
                prefix=f"{newest}/state",
                tensor_names=["_CHECKPOINTABLE_OBJECT_GRAPH"],
                shape_and_slices=[""],
                tensors=[graph[0]],
            )
            session.run(saved)
    else:
        changes = {"truncated": lambda old: old[:-9], "flipped": lambda old: old[:40] + bytes([old[40] ^ 1]) + old[41:]}
        spoil(newest, changes.get(damage, lambda old: b""), name)
    state, checkpoints = run()
    assert checkpoints.restore().train_state == at(1) and state["a"].numpy().tolist() == [1, 1]
    assert len(caplog.messages) == 1 and "epoch_0002-2 can't be read" in caplog.messages[0]
    state["a"].assign([5, 5])  # training continues from epoch 1 and saves epoch 2 anew
    checkpoints.save(at(2))
    state, checkpoints = run()
    assert checkpoints.restore().train_state == at(2) and state["a"].numpy().tolist() == [5, 5] and not caplog.messages


def test_a_damaged_checkpoint_causes_no_list_of_variables(run):
    spoil(save(run, 1, 2).all()[-1])
    messages, handler = [], logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    tf.get_logger().addHandler(handler)
    try:
        assert run(names=("a",))[1].restore(strict=False).train_state.epoch == 1
        gc.collect()
    finally:
        tf.get_logger().removeHandler(handler)
    assert not messages


def test_no_readable_checkpoint_is_an_error(run):
    for path in save(run, 1, 2).all():
        spoil(path)
    with pytest.raises(UserError, match="epoch_0002-2 can't be read .*epoch_0001-1 can't be read .*start over") as e:
        run()[1].restore()
    assert "\n" not in str(e.value)
    with pytest.raises(
        UserError, match=r"epoch_0002-2 can't be read .*: expected a checkpoint that this program wrote$"
    ):
        run()[1].restore("epoch_0002", strict=False)


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c")])
def test_missing_and_extra_variables_are_refused(run, names):
    save(run, 1)
    with pytest.raises(UserError, match="epoch_0001-1 can't be read"):
        run(names=names)[1].restore()


def test_three_replicas_restore_without_a_strategy(tmp_path, strategies):
    with strategies[3].scope():
        three = GAN(3, Config.from_settings(filters=2, residual_blocks=0, discriminator_layers=1, seed=1))
        for i, moment in enumerate(three.generator_optimizer.state.variables):
            if moment.shape.rank and moment.shape.rank > 0:
                moment.assign(tf.fill(moment.shape, tf.cast(i, moment.dtype)))
        CheckpointManager(tmp_path, three.state()).save(at(4))
    alone = GAN(3, Config.from_settings(filters=2, residual_blocks=0, discriminator_layers=1, seed=2))
    assert not all((a == b).all() for a, b in zip(state_values(three), state_values(alone)))
    assert CheckpointManager(tmp_path, alone.state()).restore()[0].epoch == 4
    assert len(state_values(alone)) > 20
    for a, b in zip(state_values(three), state_values(alone)):
        assert (a == b).all()


@pytest.mark.parametrize("owner, name", [(tf.train.Checkpoint, "write"), (os, "fsync"), (os, "rename")])
@pytest.mark.parametrize("times", [0, 1])
def test_a_failed_save_leaves_earlier_ones(run, caplog, monkeypatch, owner, name, times):
    """Fill the disk while the best checkpoint is written, or after it."""
    state, checkpoints = run(keep=1)
    state["a"].assign([1, 1])
    checkpoints.save(at(1), best=["best-x2y"])
    original, calls = getattr(owner, name), {"fsync": 4 * times}.get(name, times)
    done = itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, lambda *args: original(*args) if next(done) != calls else full())
        with pytest.raises(
            UserError, match="epoch_0002 could not be written .*No space left.*epoch_0001-1 is complete"
        ):
            checkpoints.save(at(2), best=["best-x2y"])
    assert names(checkpoints) == ["best-x2y-1", "epoch_0001-1"]
    assert run()[1].restore().train_state == at(1) and not caplog.messages


def test_the_data_is_on_the_disk_before_the_checkpoint_has_its_name(run, monkeypatch):
    _, checkpoints = run()
    calls = []
    for name in ("fsync", "rename"):
        original = getattr(os, name)

        def call(*args, name=name, original=original):
            calls.append((name, os.readlink(f"/proc/self/fd/{args[0]}") if name == "fsync" else os.fspath(args[1])))
            original(*args)

        monkeypatch.setattr(os, name, call)
    checkpoints.save(at(1))
    partial, final = checkpoints.folder / "partial", checkpoints.folder / "epoch_0001-1"
    files = [*(partial / name for name in ("state.data-00000-of-00001", "state.index")), partial]
    assert sorted(calls[:3]) == sorted(("fsync", str(path)) for path in files)
    assert calls[3:] == [("rename", str(final)), ("fsync", str(checkpoints.folder))]


class Halves(ShardedState):
    """State of two replicas, each with an array."""

    def __init__(self, left, right):
        super().__init__()
        self.parts = {"left": np.array(left), "right": np.array(right)}

    def read(self):
        return dict(self.parts)

    def write(self, arrays):
        if set(arrays) != set(self.parts):
            raise ValueError(f"other parts: {sorted(arrays)}")
        self.parts = dict(arrays)


def test_the_parts_of_all_replicas_are_restored(tmp_path):
    state = Halves([1, 2], [[0.5]])
    CheckpointManager(tmp_path, {"pool": state}).save(at(1))
    assert not state.arrays
    again = Halves([0, 0], [[0.0]])
    CheckpointManager(tmp_path, {"pool": again}).restore()
    assert {name: part.tolist() for name, part in again.parts.items()} == {"left": [1, 2], "right": [[0.5]]}
    assert not again.arrays
    again.parts["third"] = np.array(0)
    with pytest.raises(UserError, match="other parts: .*left.*right"):
        CheckpointManager(tmp_path, {"pool": again}).restore()


def worker_of(workers, folder, value=0.0):
    """Return (state, checkpoint manager) of one of several workers, whose weights are `value` at first."""
    state = {"a": tf.Variable([value, value], name="a")}
    return state, CheckpointManager(folder, state, keep=2, workers=workers)


def test_the_chief_writes_and_all_restore(tmp_path, caplog):
    def save(workers):
        _, checkpoints = worker_of(workers, tmp_path, value=float(workers.index))
        for epoch in (1, 2, 3):
            assert checkpoints.save(at(epoch)) == tmp_path / f"epoch_{epoch:04d}-{epoch}"

    assert in_threads(2, lambda workers: worker_of(workers, tmp_path)[1].restore()) == [None, None]
    assert in_threads(3, save) == [None] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch_0002-2", "epoch_0003-3"]

    def restore(workers):
        state, checkpoints = worker_of(workers, tmp_path, value=7.0)
        progress, path = checkpoints.restore()
        return progress, path, state["a"].numpy().tolist()

    assert in_threads(3, restore) == [(at(3), tmp_path / "epoch_0003-3", [0.0, 0.0])] * 3  # the chief's weights
    spoil(tmp_path / "epoch_0003-3")
    assert not caplog.messages
    assert in_threads(3, restore) == [(at(2), tmp_path / "epoch_0002-2", [0.0, 0.0])] * 3
    (text,) = caplog.messages  # only the chief logs it
    assert "can't be read" in text


def test_a_failure_of_the_chief_fails_on_all(run, tmp_path):
    (tmp_path / "file").write_text("a file in the way")
    chief, other = in_threads(2, lambda workers: worker_of(workers, tmp_path / "file")[1].save(at(1)))
    assert isinstance(chief, UserError) and "could not be written" in str(chief)
    assert isinstance(other, UserError) and "the chief could not write a checkpoint" in str(other)
    spoil(save(run, 1).all()[0])
    chief, other = in_threads(2, lambda workers: worker_of(workers, tmp_path / "checkpoints")[1].restore())
    assert "epoch_0001-1 can't be read" in str(chief) and str(other) == str(chief)


def test_storage_that_is_not_shared_is_reported(tmp_path):
    in_threads(1, lambda workers: worker_of(workers, tmp_path / "here")[1].save(at(1)))

    def restore(workers):
        return worker_of(workers, tmp_path / ("here", "there")[workers.index])[1].restore()

    for _ in range(2):
        chief, other = in_threads(2, restore)
        for each in (chief, other):
            text = "worker 1 differs from the chief in its checkpoint, which belongs on storage that all workers share"
            assert str(each).startswith(text)
        in_threads(1, lambda workers: worker_of(workers, tmp_path / "there", value=2.0)[1].save(at(1)))  # another one


@pytest.mark.parametrize("name", [None, "best-x2y"])
def test_a_checkpoint_that_vanishes_is_followed_by_the_next_one(tmp_path, monkeypatch, caplog, name):
    writer = Run(tmp_path / "checkpoints", keep=1)
    writer.save(1, at(1), best=["best-x2y"])
    read, saves = CheckpointManager._read, [2, 3, 4]

    def read_late(self, path, strict):
        if saves:
            value = saves.pop(0)
            writer.save(value, at(value), best=["best-x2y"])
        return read(self, path, strict)

    monkeypatch.setattr(CheckpointManager, "_read", read_late)
    assert (writer.named(name) if name else writer.restored(strict=False)) in (4, (4, at(4))) and not caplog.messages
