import errno
import gc
import json
import logging
import os
import shutil

import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.errors import UserError
from cyclegan.run import manifest
from cyclegan.run.manager import CheckpointManager
from cyclegan.training.gan import GAN
from tests.run.saves import at, names, save
from tests.training.helpers import state_values


def test_restore_without_checkpoints_returns_none(run, tmp_path):
    assert run()[1].restore() is None and not list(tmp_path.iterdir())


def test_the_newest_checkpoint_is_restored(run, caplog):
    save(run, 1, 2, 10)
    state, checkpoints = run()
    progress, folder = checkpoints.restore()
    assert (progress, folder.name) == (at(10), "epoch_0010")
    assert state["a"].numpy().tolist() == [10, 10] and not caplog.messages


def test_positions_within_an_epoch_are_ordered_and_restored(run):
    state, checkpoints = run(keep=9)
    positions = [at(0), at(0, 7), at(0, 120), at(0, 120, 3), at(0, 120, 20), at(1), at(1, 5), at(10)]
    for i, position in enumerate(positions):
        state["a"].assign([i, i])
        checkpoints.save(position)
    assert [path.name for path in checkpoints.all()] == [
        "epoch_0000", "epoch_0000_pair_00007", "epoch_0000_pair_00120", "epoch_0000_pair_00120_test_0003",
        "epoch_0000_pair_00120_test_0020", "epoch_0001", "epoch_0001_pair_00005", "epoch_0010",
    ]  # fmt: skip
    for i, position in reversed(list(enumerate(positions))):
        state, checkpoints = run()
        progress, folder = checkpoints.restore()
        assert progress == position and state["a"].numpy().tolist() == [i, i]
        shutil.rmtree(folder)


def test_an_earlier_position_removes_later_ones(run):
    _, checkpoints = run(keep=9)
    for position in (at(1), at(1, 4), at(2)):
        checkpoints.save(position)
    checkpoints.save(at(1, 2))
    assert [path.name for path in checkpoints.all()] == ["epoch_0001", "epoch_0001_pair_00002"]


def test_order_ignores_the_clock(run):
    checkpoints = save(run, 1, 2)
    for path in [*checkpoints.folder.rglob("*")]:
        age = 0 if "epoch_0002" in str(path) else 2_000_000_000
        os.utime(path, (age, age))
    assert run()[1].restore()[0].epoch == 2


def test_the_newest_checkpoints_are_kept(run):
    checkpoints = save(run, *range(1, 8), keep=2)
    assert sorted(names(checkpoints)) == ["epoch_0006", "epoch_0007"]


@pytest.mark.parametrize(
    "damage",
    [
        *("truncated", "truncated with a new manifest", "flipped", "empty", "missing"),
        *("manifest", "flipped manifest", "foreign", "no manifest"),
    ],
)
def test_a_damaged_checkpoint_falls_back_to_the_previous_one(run, caplog, damage):
    checkpoints = save(run, 1, 2)
    folder = checkpoints.all()[-1]
    data = next(folder.glob("state.data*"))
    content = data.read_bytes()
    if damage == "truncated":
        data.write_bytes(content[:-3])
    elif damage == "flipped":
        data.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif damage == "empty":
        data.write_bytes(b"")
    elif damage == "missing":
        data.unlink()
    elif damage == "manifest":
        (folder / "manifest.json").write_text('{"epoch": 2')
    elif damage == "flipped manifest":
        text = (folder / "manifest.json").read_text()
        (folder / "manifest.json").write_text(text.replace('"step": 20', '"step": 30'))
    elif damage == "foreign":
        content = json.loads((folder / "manifest.json").read_text())
        content["train_state"]["__class__"] = "os.system"
        content["crc32"] = manifest.checksum(content)
        (folder / "manifest.json").write_text(json.dumps(content))
    elif damage == "truncated with a new manifest":
        data.write_bytes(content[:-3])
        (folder / "manifest.json").unlink()
        manifest.write(folder, at(2))
    else:
        (folder / "manifest.json").unlink()
    state, checkpoints = run()
    assert checkpoints.restore()[0].epoch == 1
    assert state["a"].numpy().tolist() == [1, 1]
    assert len(caplog.messages) == 1 and "epoch_0002 can't be read" in caplog.messages[0]
    if damage == "foreign":
        assert "unknown fields of a training state: '__class__'" in caplog.messages[0]
    state["a"].assign([5, 5])  # training continues from epoch 1 and saves epoch 2 anew
    checkpoints.save(at(2))
    state, checkpoints = run()
    assert checkpoints.restore()[0].epoch == 2 and state["a"].numpy().tolist() == [5, 5] and not caplog.messages


def test_a_damaged_checkpoint_causes_no_list_of_variables(run):
    folder = save(run, 1, 2).all()[-1]
    data = next(folder.glob("state.data*"))
    data.write_bytes(b"x" + data.read_bytes()[1:])  # the value of a variable
    (folder / "manifest.json").unlink()
    manifest.write(folder, at(2))
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
    checkpoints = save(run, 1, 2)
    for folder in checkpoints.all():
        next(folder.glob("state.data*")).write_bytes(b"")
    with pytest.raises(UserError, match="none of the 2 checkpoints can be read: .*epoch_0002.*epoch_0001.*start over"):
        run()[1].restore()


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c")])
def test_missing_and_extra_variables_are_refused(run, names):
    save(run, 1)
    with pytest.raises(UserError, match="none of the 1 checkpoints"):
        run(names=names)[1].restore()


def test_three_replicas_restore_without_a_strategy(tmp_path, strategies):
    with strategies[3].scope():
        three = GAN(3, Config.from_settings(filters=2, residual_blocks=0, discriminator_layers=1, seed=1))
        for i, moment in enumerate(three.generator_optimizer.variables):
            if moment.shape.rank and moment.shape.rank > 0:
                moment.assign(tf.fill(moment.shape, tf.cast(i, moment.dtype)))
        CheckpointManager(tmp_path, three.state()).save(at(4))
    alone = GAN(3, Config.from_settings(filters=2, residual_blocks=0, discriminator_layers=1, seed=2))
    assert not all((a == b).all() for a, b in zip(state_values(three), state_values(alone)))
    assert CheckpointManager(tmp_path, alone.state()).restore()[0].epoch == 4
    assert len(state_values(alone)) > 20
    for a, b in zip(state_values(three), state_values(alone)):
        assert (a == b).all()


def test_unreadable_checkpoints_are_removed_first(run):
    checkpoints = save(run, 2, 4, 6)
    next((checkpoints.folder / "epoch_0006").glob("state.data*")).write_bytes(b"")
    _, checkpoints = run(keep=1)
    assert checkpoints.restore()[0].epoch == 4
    checkpoints.save(at(5))
    assert names(checkpoints) == ["epoch_0005"]


def test_a_failed_save_leaves_earlier_ones(run, caplog, monkeypatch):
    state, checkpoints = run()
    state["a"].assign([1, 1])
    checkpoints.save(at(1))

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints._checkpoint, "write", full)
    with pytest.raises(
        UserError, match="epoch_0002 could not be written .*No space left on device.*epoch_0001 is complete"
    ):
        checkpoints.save(at(2))
    state, checkpoints = run()
    assert checkpoints.restore()[0].epoch == 1 and not caplog.messages


def test_a_link_in_the_place_of_the_folder_is_not_followed(run, tmp_path):
    checkpoints = save(run, 1)
    outside = tmp_path / "outside"
    (outside / ".partial_epoch_0001").mkdir(parents=True)
    checkpoints.folder.rename(tmp_path / "moved")
    checkpoints.folder.symlink_to(outside)
    with pytest.raises(UserError, match="epoch_0002 could not be written .*a symbolic link in the place of a folder"):
        checkpoints.save(at(2))
    assert os.listdir(outside) == [".partial_epoch_0001"]


def test_a_partial_checkpoint_is_ignored(run, caplog):
    checkpoints = save(run, 1)
    shutil.copytree(checkpoints.folder / "epoch_0001", checkpoints.folder / ".partial_epoch_0002")
    _, checkpoints = run()
    assert checkpoints.restore()[0].epoch == 1 and not caplog.messages
    checkpoints.save(at(2))
    assert sorted(names(checkpoints)) == ["epoch_0001", "epoch_0002"]


def test_the_restored_checkpoint_is_known(run):
    save(run, 1, 2)
    _, checkpoints = run()
    assert checkpoints.restored is None
    train_state, path = checkpoints.restore()
    assert train_state == at(2) and checkpoints.restored == path == checkpoints.folder / "epoch_0002"


def test_a_failed_removal_does_not_remove_the_new_one(run, monkeypatch):
    _, checkpoints = run(keep=1)
    for epoch in (1, 3):
        checkpoints.save(at(epoch), prune=False)
    monkeypatch.setattr(checkpoints, "drop", lambda path: None)
    checkpoints.save(at(2))
    monkeypatch.undo()
    dropped = []
    monkeypatch.setattr(checkpoints, "drop", lambda path: dropped.append(path.name))
    checkpoints.save(at(2))
    assert dropped == ["epoch_0003", "epoch_0001"]


def test_a_reader_writes_nothing(run):
    checkpoints = save(run, 1)
    (checkpoints.folder / "epoch_0001").rename(checkpoints.folder / ".partial_epoch_0001")
    _, reader = run()
    assert reader.restore(strict=False).train_state == at(1) and names(reader) == [".partial_epoch_0001"]
    _, trainer = run()
    assert trainer.restore().train_state == at(1) and names(trainer) == ["epoch_0001"]


def test_a_training_state_of_another_version_is_refused_in_one_line(run):
    checkpoints = save(run, 1)
    path = checkpoints.folder / "epoch_0001" / "manifest.json"
    content = json.loads(path.read_text())
    content["train_state"]["draw"] = content["train_state"].pop("reshuffles")
    content["crc32"] = manifest.checksum(content)
    path.write_text(json.dumps(content))
    with pytest.raises(
        UserError, match="unknown fields of a training state: 'draw'; expected a checkpoint of this version"
    ) as e:
        run()[1].restore()
    assert "\n" not in str(e.value)


def test_a_checkpoint_under_the_name_of_another_position_is_not_read(run, caplog):
    """Otherwise a position at the end of the training would end it without a word."""
    checkpoints = save(run, 1, 2)
    shutil.copytree(checkpoints.all()[-1], checkpoints.folder / "epoch_0009")
    state, path = run()[1].restore()
    assert (state.epoch, path.name) == (2, "epoch_0002")
    assert "epoch_0009 can't be read (it is of another position, epoch_0002); trying" in caplog.text
