"""Training that goes back to a checkpoint, with interruptions."""

import math
import signal

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.errors import Stopped
from cyclegan.run.run_directory import saved_checkpoints
from scripts.soak.comparison import log_lines
from tests.system.resume.world import STEPS, Killed, check_equal, kill_at, send_at


def poison(at):
    """Return a hook for `before_step` that spoils a weight at one step."""

    def hook(step, trainer):
        if step == at:
            weight = trainer.gan.networks.generators["G"].trainable_variables[0]
            weight.assign(tf.fill(weight.shape, math.nan))

    return hook


def both(first, second):
    """Return a hook that calls two."""
    return lambda step, trainer: (first(step, trainer), second(step, trainer))


def test_broken_weights_send_training_back(world, undisturbed, tmp_path, caplog):
    trainer = world.finish(tmp_path, poison(STEPS + 2), epochs=5, max_bad_steps=3)
    assert trainer.state.reshuffles == 1 and trainer.state.epoch == 5
    assert any("goes back to" in text and "epoch_0001" in text for text in caplog.messages)
    lines = log_lines(tmp_path)
    assert [(line["split"], line["step"]) for line in lines if "event" not in line] == [
        (split, step) for epoch in range(5) for split, step in (
            *(("steps", 3 * epoch + i) for i in (1, 2, 3)), ("train", 3 * epoch + 3), ("test", 3 * epoch + 3))
    ]  # fmt: skip
    event = next(line for line in lines if line.get("event") == "went back")
    assert len(event["bad_steps"]) == 3
    assert all("loss_G/cycle" in text and "X[" in text for text in event["bad_steps"])
    assert lines[:5] == undisturbed[2][:5] and lines[6:11] != undisturbed[2][5:]  # another order
    assert all(np.isfinite(value).all() for value in world.values())


@pytest.mark.slow
def test_resume_after_going_back_is_bit_exact(world, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    world.finish(whole, poison(STEPS + 2), epochs=4, max_bad_steps=3)
    values = world.values()
    with pytest.raises(Killed):  # killed one step after going back, before the next save
        world.finish(parts, both(poison(STEPS + 2), kill_at(STEPS + 2 + 4)), epochs=4, max_bad_steps=3)
    with pytest.raises(Stopped):
        world.finish(parts, both(poison(2), send_at(signal.SIGTERM, 2 + 5)), epochs=4, max_bad_steps=3)
    trainer = world.finish(parts, epochs=4)
    assert trainer.state.reshuffles == 1
    for mine, theirs in zip(world.values(), values):
        np.testing.assert_array_equal(mine, theirs)
    assert log_lines(parts) == log_lines(whole)


def test_broken_weights_are_not_saved_by_a_stop(world, undisturbed, tmp_path):
    hook = both(poison(STEPS + 1), send_at(signal.SIGTERM, STEPS + 2))
    with pytest.raises(Stopped, match="everything since the last checkpoint is lost"):
        world.finish(tmp_path, hook, max_bad_steps=3)
    assert [path.name for path in saved_checkpoints(tmp_path / "checkpoints")] == ["epoch_0000-1", "epoch_0001-2"]
    check_equal(world, world.finish(tmp_path), tmp_path, undisturbed)
