"""A full disk; tests/run/test_kill.py kills a save."""

import contextlib
import resource

import pytest
import tensorflow as tf

from cyclegan.errors import UserError
from cyclegan.training import checkpoint_policy
from tests.system.resume.world import EPOCHS, STEPS, Killed, check_equal, kill_at


def files_may_have(size):
    """Let the kernel refuse writes beyond this size of a file, as a full disk does."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [True, False])
def test_full_disk_that_is_freed_loses_nothing(world, undisturbed, tmp_path, monkeypatch, caplog, is_killed):
    monkeypatch.setattr(checkpoint_policy, "RETRY_SECONDS", 0.0)

    def hook(step, trainer):
        if step == 3:
            files_may_have(1000)
        if step == 8:
            files_may_have(resource.RLIM_INFINITY)
            older = [path.name for path in trainer.checkpoints.all()]
            assert older == ["epoch_0000-1", "epoch_0000_pair_00006-2", "epoch_0000_pair_00012-3"]
            if is_killed:
                raise Killed

    try:
        with pytest.raises(Killed) if is_killed else contextlib.nullcontext():
            world.finish(tmp_path, hook, checkpoint_minutes=0)
    finally:
        files_may_have(resource.RLIM_INFINITY)
    failures = [text for text in caplog.messages if "Training continues, and tries again in" in text]
    assert failures and "without its lines of the log" in failures[0]
    assert "metrics.jsonl could not be written" in caplog.text
    assert ("metrics.jsonl can be written again; nothing is missing" in caplog.text) == (not is_killed)
    check_equal(world, world.finish(tmp_path), tmp_path, undisturbed)


def test_end_waits_for_room_for_the_checkpoint(world, undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_policy, "RETRY_SECONDS", 0.01)
    tries = []

    def full(self, path):
        tries.append(path)
        if len(tries) < 4:
            raise OSError(28, "No space left on device")
        return write(self, path)

    def hook(step, trainer):
        if step == EPOCHS * STEPS:
            monkeypatch.setattr(tf.train.Checkpoint, "write", full)

    write = tf.train.Checkpoint.write
    trainer = world.finish(tmp_path, hook)
    assert len(tries) == 4 and trainer.checkpoints.all()[-1].name == "epoch_0002-3"
    check_equal(world, trainer, tmp_path, undisturbed)


@pytest.mark.slow
def test_unwritable_folder_stops_a_new_run_only(world, undisturbed, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(checkpoint_policy, "RETRY_SECONDS", 0.0)
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(UserError, match="epoch_0000 could not be written .*there is no checkpoint before it"):
        world.finish(tmp_path, kill_at(1))  # before the first step
    (tmp_path / "checkpoints").unlink()

    def hook(step, trainer):
        if step == 2:
            (tmp_path / "checkpoints").rename(tmp_path / "away")
            (tmp_path / "checkpoints").write_text("")
        if step == 5:
            (tmp_path / "checkpoints").unlink()
            (tmp_path / "away").rename(tmp_path / "checkpoints")

    trainer = world.finish(tmp_path, hook, checkpoint_minutes=0)
    assert any("Training continues, and tries again" in text for text in caplog.messages)
    check_equal(world, trainer, tmp_path, undisturbed)
