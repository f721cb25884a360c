import errno
import json
import os
import shutil

import pytest
import tensorflow as tf

from cyclegan.checkpointing import manager as manager_module
from cyclegan.checkpointing.manager import CheckpointManager, _exchange, _manifest_crc32
from cyclegan.checkpointing.train_state import PassState, TrainState
from cyclegan.config import Config
from cyclegan.errors import UserError
from cyclegan.training.gan import GAN
from tests.thread_workers import in_threads


@pytest.fixture
def run(tmp_path, caplog):
    """A function that makes a state and its Checkpoints, as a new start of the program would."""

    def start(keep=3, names=("a", "b")):
        state = {name: tf.Variable([0.0, 0.0], name=name) for name in names}
        caplog.clear()
        return state, CheckpointManager(tmp_path / "checkpoints", state, keep)

    return start


def at(epoch, pairs=0, test_pairs=0):
    """A place in training."""
    return TrainState(
        epoch=epoch, step=10 * epoch + pairs, train=PassState(pairs_done=pairs), test=PassState(pairs_done=test_pairs)
    )


def save(run, *epochs, keep=3):
    state, checkpoints = run(keep)
    for epoch in epochs:
        state["a"].assign([epoch, epoch])
        checkpoints.save(at(epoch))
    return checkpoints


def names(checkpoints):
    return [path.name for path in checkpoints.folder.iterdir()]


def test_without_checkpoints_nothing_is_restored(run, tmp_path):
    assert run()[1].restore() is None and not list(tmp_path.iterdir())


def test_the_newest_comes_back(run, caplog):
    save(run, 1, 2, 10)
    state, checkpoints = run()
    progress, folder = checkpoints.restore()
    assert (progress, folder.name) == (at(10), "epoch_0010")
    assert state["a"].numpy().tolist() == [10, 10] and not caplog.messages


def test_places_inside_an_epoch_have_names_and_an_order(run):
    state, checkpoints = run(keep=9)
    places = [at(0), at(0, 7), at(0, 120), at(0, 120, 3), at(0, 120, 20), at(1), at(1, 5), at(10)]
    for i, place in enumerate(places):
        state["a"].assign([i, i])
        checkpoints.save(place)
    assert [path.name for path in checkpoints.all()] == [
        "epoch_0000", "epoch_0000_pair_00007", "epoch_0000_pair_00120", "epoch_0000_pair_00120_test_0003",
        "epoch_0000_pair_00120_test_0020", "epoch_0001", "epoch_0001_pair_00005", "epoch_0010",
    ]  # fmt: skip
    for i, place in reversed(list(enumerate(places))):
        state, checkpoints = run()
        progress, folder = checkpoints.restore()
        assert progress == place and state["a"].numpy().tolist() == [i, i]
        shutil.rmtree(folder)


def test_going_back_makes_what_came_after_void(run):
    _, checkpoints = run(keep=9)
    for place in (at(1), at(1, 4), at(2)):
        checkpoints.save(place)
    checkpoints.save(at(1, 2))
    assert [path.name for path in checkpoints.all()] == ["epoch_0001", "epoch_0001_pair_00002"]


def test_the_clock_has_no_say(run):
    checkpoints = save(run, 1, 2)
    for path in [*checkpoints.folder.rglob("*")]:
        age = 0 if "epoch_0002" in str(path) else 2_000_000_000
        os.utime(path, (age, age))
    assert run()[1].restore()[0].epoch == 2


def test_the_newest_ones_are_kept_and_nothing_else(run):
    checkpoints = save(run, *range(1, 8), keep=2)
    assert sorted(names(checkpoints)) == ["epoch_0006", "epoch_0007"]


@pytest.mark.parametrize(
    "damage", ["truncated", "flipped", "empty", "missing", "manifest", "flipped manifest", "foreign", "no manifest"]
)
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(run, caplog, damage):
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
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["progress"]["__class__"] = "os.system"
        manifest["crc32"] = _manifest_crc32(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))
    else:
        (folder / "manifest.json").unlink()
    state, checkpoints = run()
    assert checkpoints.restore()[0].epoch == 1
    assert state["a"].numpy().tolist() == [1, 1]
    assert len(caplog.messages) == 1 and "epoch_0002 can't be read" in caplog.messages[0]
    if damage == "foreign":
        assert "unknown fields of a training state: '__class__'" in caplog.messages[0]
    state["a"].assign([5, 5])  # training goes on from epoch 1 and saves epoch 2 anew
    checkpoints.save(at(2))
    state, checkpoints = run()
    assert checkpoints.restore()[0].epoch == 2 and state["a"].numpy().tolist() == [5, 5] and not caplog.messages


def test_when_none_can_be_read_training_does_not_start_over_by_itself(run):
    checkpoints = save(run, 1, 2)
    for folder in checkpoints.all():
        next(folder.glob("state.data*")).write_bytes(b"")
    with pytest.raises(UserError, match="none of the 2 checkpoints can be read: .*epoch_0002.*epoch_0001.*start over"):
        run()[1].restore()


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c")])
def test_restoring_is_strict(run, names):
    save(run, 1)
    with pytest.raises(UserError, match="none of the 1 checkpoints"):
        run(names=names)[1].restore()


def test_a_state_of_three_replicas_is_restored_without_a_strategy(tmp_path, strategies):
    def everything(network):
        state = network.state().values()
        variables = [v for part in state for v in (part.variables if hasattr(part, "variables") else [part])]
        return [tf.convert_to_tensor(v).numpy() for v in variables]

    with strategies[3].scope():
        three = GAN(3, Config.from_settings(filters=2, residual_blocks=0, seed=1))
        for i, moment in enumerate(three.generator_optimizer.variables):
            if moment.shape.rank and moment.shape.rank > 0:
                moment.assign(tf.fill(moment.shape, tf.cast(i, moment.dtype)))
        CheckpointManager(tmp_path, three.state()).save(at(4))
    alone = GAN(1, Config.from_settings(filters=2, residual_blocks=0, seed=2))
    assert not all((a == b).all() for a, b in zip(everything(three), everything(alone)))
    assert CheckpointManager(tmp_path, alone.state()).restore()[0].epoch == 4
    assert len(everything(alone)) > 20
    for a, b in zip(everything(three), everything(alone)):
        assert (a == b).all()


def test_what_could_not_be_read_does_not_push_out_what_can(run):
    checkpoints = save(run, 2, 4, 6)
    next((checkpoints.folder / "epoch_0006").glob("state.data*")).write_bytes(b"")
    _, checkpoints = run(keep=1)
    assert checkpoints.restore()[0].epoch == 4
    checkpoints.save(at(5))
    assert names(checkpoints) == ["epoch_0005"]


def test_a_save_that_fails_leaves_the_ones_before_alone(run, caplog, monkeypatch):
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


def test_a_save_that_was_killed_half_way_is_not_seen(run, caplog):
    checkpoints = save(run, 1)
    shutil.copytree(checkpoints.folder / "epoch_0001", checkpoints.folder / ".partial_epoch_0002")
    _, checkpoints = run()
    assert checkpoints.restore()[0].epoch == 1 and not caplog.messages
    checkpoints.save(at(2))
    assert sorted(names(checkpoints)) == ["epoch_0001", "epoch_0002"]


def best(run):
    """What is found under the name "best-x2y", as another start of the program would find it: the values of "a"."""
    state, checkpoints = run()
    checkpoints.restore_from(checkpoints.folder / "best-x2y")
    return state["a"].numpy().tolist()


def save_best(run, epoch, names=("best-x2y",), keep=3):
    state, checkpoints = run(keep)
    state["a"].assign([epoch, epoch])
    return checkpoints.save(at(epoch), names=names)


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("links", [True, False])
def test_a_checkpoint_is_kept_under_another_name_until_a_better_one_takes_its_place(run, monkeypatch, links, exchanges):
    def refuse(*args):
        raise OSError(errno.EPERM, "no links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    if not exchanges:
        monkeypatch.setattr(manager_module, "_exchange", lambda one, other: False)
    made = save_best(run, 1, ("best-x2y", "best-y2x"))
    folder = made.parent
    inodes = {os.stat(path / "state.index").st_ino for path in (made, folder / "best-x2y", folder / "best-y2x")}
    assert len(inodes) == (1 if links else 3)
    checkpoints = save(run, 2, 3, 4, keep=2)
    assert sorted(names(checkpoints)) == ["best-x2y", "best-y2x", "epoch_0003", "epoch_0004"]
    assert [path.name for path in checkpoints.all()] == ["epoch_0003", "epoch_0004"]
    assert best(run) == [1, 1] and run()[1].restore()[0].epoch == 4
    save_best(run, 5, keep=1)
    assert best(run) == [5, 5] and sorted(names(checkpoints)) == ["best-x2y", "best-y2x", "epoch_0005"]
    assert run()[1].restore_from(folder / "best-y2x").epoch == 1


def test_names_are_exchanged_at_one_go_on_linux(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert _exchange(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / "other").exists() and (tmp_path / "other" / "one").exists()
    assert not _exchange(tmp_path / "one", tmp_path / "missing")


class Killed(BaseException):
    """What SIGKILL would do: nothing is cleaned up."""


def test_a_better_one_is_there_as_a_whole_or_not_at_all_whenever_the_process_is_killed(run, monkeypatch):
    save_best(run, 1)
    calls = [
        (os, "fsync"),
        (os, "link"),
        (os, "mkdir"),
        (os, "rename"),
        (shutil, "rmtree"),
        (manager_module, "_exchange"),
    ]
    count, last, found = [0], [0], []

    def counted(original):
        def call(*args, **kwargs):
            count[0] += 1
            if count[0] == last[0]:
                raise Killed
            return original(*args, **kwargs)

        return call

    killed = True
    while killed:
        with monkeypatch.context() as patch:
            for owner, name in calls:
                patch.setattr(owner, name, counted(getattr(owner, name)))
            count[0], last[0] = 0, last[0] + 1
            try:
                save_best(run, last[0] + 1)
                killed = False
            except Killed:
                killed = True
        found.append(best(run)[0])
        assert found[-1] in (last[0] + 1, *found[:-1], 1)
        newest = run()[1].restore()[0].epoch
        assert newest <= found[-1]  # the better one may be from a moment that is lost, and comes again
    assert last[0] > 12 and len(set(found)) > 3 and found[-1] == last[0] + 1
    left = sorted(names(run()[1]))
    assert left[0] == "best-x2y" and all(name.startswith("epoch_") for name in left[1:])


def test_a_better_one_that_can_not_be_written_leaves_the_one_there_was(run, monkeypatch):
    save_best(run, 1)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        patch.setattr(shutil, "copyfile", full)
        with pytest.raises(UserError, match="epoch_0002 could not be written .*No space left.*epoch_0001 is complete"):
            save_best(run, 2)
    assert best(run) == [1, 1] and sorted(names(run()[1])) == ["best-x2y", "epoch_0001"]


def worker_of(workers, folder, value=0.0):
    """(state, checkpoint manager) of one worker of several; its weights are `value` before it restores."""
    state = {"a": tf.Variable([value, value], name="a")}
    return state, CheckpointManager(folder, state, keep=2, workers=workers)


def test_the_chief_alone_writes_and_all_restore_the_same(tmp_path, caplog):
    def save(workers):
        _, checkpoints = worker_of(workers, tmp_path, value=float(workers.index))
        for epoch in (1, 2, 3):
            assert checkpoints.save(at(epoch)) == tmp_path / f"epoch_{epoch:04d}"
        if not workers.is_chief:
            checkpoints.drop(tmp_path / "epoch_0003")  # which is not its to remove

    assert in_threads(3, save) == [None] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch_0002", "epoch_0003"]

    def restore(workers):
        state, checkpoints = worker_of(workers, tmp_path, value=7.0)
        progress, path = checkpoints.restore()
        return progress, path, state["a"].numpy().tolist()

    assert in_threads(3, restore) == [(at(3), tmp_path / "epoch_0003", [0.0, 0.0])] * 3  # the chief's weights
    data = next((tmp_path / "epoch_0003").glob("state.data*"))
    data.write_bytes(b"x" * data.stat().st_size)
    assert not caplog.messages
    assert in_threads(3, restore) == [(at(2), tmp_path / "epoch_0002", [0.0, 0.0])] * 3
    (text,) = caplog.messages  # only the chief logs it
    assert "can't be read" in text


def test_nothing_to_restore_is_so_for_all(tmp_path):
    assert in_threads(2, lambda workers: worker_of(workers, tmp_path)[1].restore()) == [None, None]


def test_what_the_chief_can_not_write_fails_for_all(tmp_path):
    (tmp_path / "checkpoints").write_text("a file in the way")
    chief, other = in_threads(2, lambda workers: worker_of(workers, tmp_path / "checkpoints")[1].save(at(1)))
    assert isinstance(chief, UserError) and "could not be written" in str(chief)
    assert isinstance(other, UserError) and "the chief could not write a checkpoint" in str(other)


def test_what_the_chief_can_not_read_fails_for_all(run, tmp_path):
    save(run, 1)
    (tmp_path / "checkpoints" / "epoch_0001" / "manifest.json").write_text("{")
    chief, other = in_threads(2, lambda workers: worker_of(workers, tmp_path / "checkpoints")[1].restore())
    assert "none of the 1 checkpoints can be read" in str(chief)
    assert "the chief could not read a checkpoint" in str(other)


def test_storage_that_not_all_workers_see_is_said_by_all(tmp_path):
    in_threads(1, lambda workers: worker_of(workers, tmp_path / "here")[1].save(at(1)))
    chief, other = in_threads(
        2, lambda workers: worker_of(workers, tmp_path / ("here", "there")[workers.index])[1].restore()
    )
    assert "another worker could not read the checkpoint that the others have" in str(chief)
    assert "but by the chief; expected --output_dir on storage that all workers share" in str(other)
