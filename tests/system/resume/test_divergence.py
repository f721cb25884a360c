"""Training that goes back to a checkpoint, with interruptions."""

import math
import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.errors import Stopped, TrainingError
from scripts.soak.comparison import log_lines
from tests.system.resume.world import STEPS, Killed, kill_at, wait_for

RATES = (1e-3, 1e-3)


class Poison:
    """Hook for `before_step` that spoils a weight at one step, every time if it is `stubborn`, else only the first time."""

    def __init__(self, step, stubborn=False):
        self.step, self.stubborn = step, stubborn

    def __call__(self, step, trainer):
        if step == self.step or (self.stubborn and step > self.step):
            weight = trainer.gan.networks.generators["G"].trainable_variables[0]
            weight.assign(tf.fill(weight.shape, math.nan))


def test_broken_weights_send_training_back(world, undisturbed, tmp_path, caplog):
    trainer = world.finish(tmp_path, Poison(STEPS + 2), epochs=5, max_bad_steps=3)
    assert trainer.state.reshuffles == 1 and trainer.state.epoch == 5
    assert any("goes back to" in text and "epoch_0001" in text for text in caplog.messages)
    lines = log_lines(tmp_path)
    assert [(line["split"], line["step"]) for line in lines if "event" not in line] == [
        (split, step) for epoch in range(5) for split, step in (
            *(("steps", 3 * epoch + i) for i in (1, 2, 3)), ("train", 3 * epoch + 3), ("test", 3 * epoch + 3))
    ]  # fmt: skip
    event = next(line for line in lines if line.get("event") == "went back")
    assert len(event["bad_steps"]) == 3
    assert all("loss_G/cycle" in text and "x[" in text for text in event["bad_steps"])
    assert lines[:5] == undisturbed[2][:5] and lines[6:11] != undisturbed[2][5:]  # another order
    assert all(np.isfinite(value).all() for value in world.values())


@pytest.mark.slow
def test_resume_after_going_back_is_bit_exact(world, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    world.finish(whole, Poison(STEPS + 2), epochs=4, max_bad_steps=3)
    values = world.values()
    with pytest.raises(Killed):  # killed one step after going back, before the next save
        hook = Poison(STEPS + 2)
        world.finish(parts, lambda *at: (hook(*at), kill_at(STEPS + 2 + 4)(*at)), epochs=4, max_bad_steps=3)
    with pytest.raises(Stopped):
        hook = Poison(2)
        world.finish(parts, lambda *at: (hook(*at), wait_for(signal.SIGTERM)(2 + 5)(*at)), epochs=4, max_bad_steps=3)
    trainer = world.finish(parts, epochs=4)
    assert trainer.state.reshuffles == 1
    for mine, theirs in zip(world.values(), values):
        np.testing.assert_array_equal(mine, theirs)
    assert log_lines(parts) == log_lines(whole)


@pytest.mark.slow
def test_weights_that_break_again_stop_training(world, tmp_path):
    with pytest.raises(TrainingError, match="diverged again after going back once"):
        world.finish(tmp_path, Poison(STEPS + 2, stubborn=True), max_bad_steps=3, epochs=4)
    trainer = world.begin(tmp_path)
    assert trainer.state.epoch == 1 and all(np.isfinite(value).all() for value in world.values())


def test_stop_while_the_weights_are_broken_is_bit_exact(world, tmp_path):
    """Save the broken weights and the row of bad steps without removing another checkpoint; continue as without the stop."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    world.finish(whole, Poison(STEPS + 1), epochs=3, max_bad_steps=3)
    values = world.values()
    hook = Poison(STEPS + 1)
    with pytest.raises(Stopped, match="saved in .*epoch_0001_pair_00012"):
        world.finish(
            parts, lambda *at: (hook(*at), wait_for(signal.SIGTERM)(STEPS + 2)(*at)), epochs=3, max_bad_steps=3, keep=1
        )
    names = ["epoch_0001-2", "epoch_0001_pair_00012-3"]
    assert sorted(path.name for path in (parts / "checkpoints").iterdir()) == names
    trainer = world.finish(parts, epochs=3, max_bad_steps=3)
    assert trainer.state.reshuffles == 1
    for mine, theirs in zip(world.values(), values):
        np.testing.assert_array_equal(mine, theirs)
    assert log_lines(parts) == log_lines(whole)


@pytest.mark.slow
def test_training_goes_back_behind_a_checkpoint_of_broken_weights(world, tmp_path, caplog):
    """Save weights that an update broke: the metrics of a step precede its own update, so nothing shows this yet."""

    def hook(step, trainer):
        trainer._learning_rates.schedule = (
            lambda epochs_done: (1e38, 1e38) if step == STEPS + 1 else RATES
        )  # used by the next step

    trainer = world.finish(tmp_path, hook, checkpoint_minutes=0, max_bad_steps=3, epochs=4)
    assert trainer.state.reshuffles == 1 and any(
        "goes back to" in text and "epoch_0001_pair_00006" in text for text in caplog.messages
    )
    assert all(np.isfinite(value).all() for value in world.values())


@pytest.mark.slow
def test_row_of_bad_steps_continues_after_a_stop(world, tmp_path):
    """Stop in the test pass between the second bad step, the last of an epoch, and the third."""

    def spoil(steps):
        def hook(step, trainer):
            weight = trainer.gan.networks.generators["G"].trainable_variables[0]
            if step in steps:
                spoil.healthy = tf.convert_to_tensor(weight)
                weight.assign(tf.fill(weight.shape, math.nan))
            elif step - 1 in steps:
                weight.assign(spoil.healthy)

        return hook

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    bad = spoil({2})
    again = spoil({STEPS + 1})
    world.finish(whole, lambda *at: (bad(*at), again(*at)), max_bad_steps=2, epochs=3)
    assert "went back" not in [line.get("event") for line in log_lines(whole)]  # step 3 was good
    bad = spoil({3})
    world.finish(tmp_path / "row", lambda *at: (bad(*at), again(*at)), max_bad_steps=2, epochs=3)
    values, lines = world.values(), log_lines(tmp_path / "row")
    assert "went back" in [line.get("event") for line in lines]
    bad, again = spoil({3}), spoil({1})
    with pytest.raises(Stopped):
        world.finish(parts, lambda *at: (bad(*at), wait_for(signal.SIGTERM)(STEPS)(*at)), max_bad_steps=2, epochs=3)
    world.finish(parts, again, max_bad_steps=2, epochs=3)
    for mine, theirs in zip(world.values(), values):
        np.testing.assert_array_equal(mine, theirs)
    assert log_lines(parts) == lines


def test_training_ends_without_a_checkpoint_to_go_back_to(world, tmp_path):
    def hook(step, trainer):
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
        Poison(2)(step, trainer)

    with pytest.raises(TrainingError, match="loss_G/cycle.*there is no checkpoint to go back to"):
        world.finish(tmp_path, hook, max_bad_steps=2)
