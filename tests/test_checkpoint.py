import errno
import shutil

import pytest
import tensorflow as tf

from cyclegan import gan
from cyclegan.checkpoint import Checkpoints
from cyclegan.errors import UserError


@pytest.fixture
def run(tmp_path):
    """A function that makes a state and its Checkpoints, as a new start of the program would."""

    def start(keep=3, names=("a", "b")):
        state = {name: tf.Variable([0.0, 0.0], name=name) for name in names}
        said = []
        return state, Checkpoints(tmp_path / "checkpoints", state, keep, said.append), said

    return start


def save(run, *epochs, keep=3):
    state, checkpoints, _ = run(keep)
    for epoch in epochs:
        state["a"].assign([epoch, epoch])
        checkpoints.save(epoch, 10 * epoch)
    return checkpoints


def names(checkpoints):
    return [path.name for path in checkpoints.folder.iterdir()]


def test_without_checkpoints_nothing_is_restored(run, tmp_path):
    assert run()[1].restore() is None and not list(tmp_path.iterdir())


def test_the_newest_comes_back(run):
    save(run, 1, 2, 10)
    state, checkpoints, said = run()
    restored = checkpoints.restore()
    assert (restored["epoch"], restored["step"], restored["folder"].name) == (10, 100, "epoch_0010")
    assert state["a"].numpy().tolist() == [10, 10] and not said


def test_the_newest_ones_are_kept_and_nothing_else(run):
    checkpoints = save(run, *range(1, 8), keep=2)
    assert sorted(names(checkpoints)) == ["epoch_0006", "epoch_0007"]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "missing", "manifest", "no manifest"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(run, damage):
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
    else:
        (folder / "manifest.json").unlink()
    state, checkpoints, said = run()
    assert checkpoints.restore()["epoch"] == 1
    assert state["a"].numpy().tolist() == [1, 1]
    assert len(said) == 1 and "epoch_0002 can't be read" in said[0]
    state["a"].assign([5, 5])  # training goes on from epoch 1 and saves epoch 2 anew
    checkpoints.save(2, 20)
    state, checkpoints, said = run()
    assert checkpoints.restore()["epoch"] == 2 and state["a"].numpy().tolist() == [5, 5] and not said


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
        three = gan.CycleGAN(3, filters=2, residual_blocks=0, seed=1)
        for i, moment in enumerate(three.generator_optimizer.variables):
            if moment.shape.rank and moment.shape.rank > 0:
                moment.assign(tf.fill(moment.shape, tf.cast(i, moment.dtype)))
        Checkpoints(tmp_path, three.state()).save(4, 12)
    alone = gan.CycleGAN(1, filters=2, residual_blocks=0, seed=2)
    assert not all((a == b).all() for a, b in zip(everything(three), everything(alone)))
    assert Checkpoints(tmp_path, alone.state()).restore()["epoch"] == 4
    assert len(everything(alone)) > 20
    for a, b in zip(everything(three), everything(alone)):
        assert (a == b).all()


def test_what_could_not_be_read_does_not_push_out_what_can(run):
    checkpoints = save(run, 2, 4, 6)
    next((checkpoints.folder / "epoch_0006").glob("state.data*")).write_bytes(b"")
    _, checkpoints, _ = run(keep=1)
    assert checkpoints.restore()["epoch"] == 4
    checkpoints.save(5, 50)
    assert names(checkpoints) == ["epoch_0005"]


def test_a_save_that_fails_leaves_the_ones_before_alone(run, monkeypatch):
    state, checkpoints, _ = run()
    state["a"].assign([1, 1])
    checkpoints.save(1, 10)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints._checkpoint, "write", full)
    with pytest.raises(UserError, match="epoch_0002 could not be written .*No space left on device.*resumes from"):
        checkpoints.save(2, 20)
    state, checkpoints, said = run()
    assert checkpoints.restore()["epoch"] == 1 and not said


def test_a_save_that_was_killed_half_way_is_not_seen(run):
    checkpoints = save(run, 1)
    shutil.copytree(checkpoints.folder / "epoch_0001", checkpoints.folder / ".partial_epoch_0002")
    _, checkpoints, said = run()
    assert checkpoints.restore()["epoch"] == 1 and not said
    checkpoints.save(2, 20)
    assert sorted(names(checkpoints)) == ["epoch_0001", "epoch_0002"]
