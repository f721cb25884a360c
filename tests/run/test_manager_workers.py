import tensorflow as tf

from cyclegan.errors import UserError
from cyclegan.run.manager import CheckpointManager
from tests.run.saves import at, save
from tests.thread_workers import in_threads


def worker_of(workers, folder, value=0.0):
    """Return (state, checkpoint manager) of one of several workers, whose weights are `value` at first."""
    state = {"a": tf.Variable([value, value], name="a")}
    return state, CheckpointManager(folder, state, keep=2, workers=workers)


def test_the_chief_writes_and_all_restore(tmp_path, caplog):
    def save(workers):
        _, checkpoints = worker_of(workers, tmp_path, value=float(workers.index))
        for epoch in (1, 2, 3):
            assert checkpoints.save(at(epoch)) == tmp_path / f"epoch_{epoch:04d}"
        if not workers.is_chief:
            checkpoints.drop(tmp_path / "epoch_0003")  # only the chief removes

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


def test_workers_restore_nothing_without_checkpoints(tmp_path):
    assert in_threads(2, lambda workers: worker_of(workers, tmp_path)[1].restore()) == [None, None]


def test_a_failed_save_of_the_chief_fails_on_all(tmp_path):
    (tmp_path / "checkpoints").write_text("a file in the way")
    chief, other = in_threads(2, lambda workers: worker_of(workers, tmp_path / "checkpoints")[1].save(at(1)))
    assert isinstance(chief, UserError) and "could not be written" in str(chief)
    assert isinstance(other, UserError) and "the chief could not write a checkpoint" in str(other)


def test_a_failed_restore_of_the_chief_fails_on_all(run, tmp_path):
    save(run, 1)
    (tmp_path / "checkpoints" / "epoch_0001" / "manifest.json").write_text("{")
    chief, other = in_threads(2, lambda workers: worker_of(workers, tmp_path / "checkpoints")[1].restore())
    assert "none of the 1 checkpoints can be read" in str(chief)
    assert "the chief could not read a checkpoint" in str(other)


def test_storage_that_is_not_shared_is_reported(tmp_path):
    in_threads(1, lambda workers: worker_of(workers, tmp_path / "here")[1].save(at(1)))
    chief, other = in_threads(
        2, lambda workers: worker_of(workers, tmp_path / ("here", "there")[workers.index])[1].restore()
    )
    assert "another worker could not read the chief's checkpoint" in str(chief)
    assert "only by the chief; expected --output_dir on storage that all workers share" in str(other)
