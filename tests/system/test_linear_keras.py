"""The tutorial that fits a line."""

import subprocess
import sys

import pytest
import tensorflow as tf

from cyclegan.errors import TrainingError
from scripts.tutorials import linear_keras


def test_two_steps_by_hand(strategies):
    """Start at 0 x + 0, and subtract a tenth of the gradients twice.

    Squares 1 and 9, gradients -7 and -4. Then 0.7 x + 0.4 misses by -0.1 and 1.2: squares 0.01 and 1.44, gradients -2.3 and -1.1.
    """
    points = tf.data.Dataset.from_tensor_slices(([[1.0], [2.0]], [[1.0], [3.0]])).batch(2, drop_remainder=True)
    for losses, model in (
        linear_keras.by_fit(strategies[2], points, 2),
        linear_keras.by_loop(strategies[2], points, 2, global_batch_size=2),
    ):
        assert losses == pytest.approx([5.0, 0.725])
        assert [value.numpy().item() for value in model.trainable_variables] == pytest.approx([0.93, 0.51])


def test_mean_with_unequal_replicas(strategies):
    """Compare squares 1, 9 and 4 with their mean 14/3; the mean of the replicas' means, 5 and 4, would be 4.5."""
    points = tf.data.Dataset.from_tensor_slices(([[1.0], [2.0], [0.0]], [[1.0], [3.0], [2.0]])).batch(3)
    losses, model = linear_keras.by_loop(strategies[2], points, 1, 3)
    assert losses == pytest.approx([14 / 3])
    assert [value.numpy().item() for value in model.trainable_variables] == pytest.approx([1.4 / 3, 0.4])


def test_fit_and_the_loop_find_the_same_line():
    (fitted, by_fit), (looped, by_loop) = linear_keras.main(["--devices", "3", "--batch_size", "2", "--epochs", "2"])
    assert fitted == pytest.approx(looped, rel=1e-5) and looped[1] < looped[0] / 2
    lines = [[value.numpy().item() for value in model.trainable_variables] for model in (by_fit, by_loop)]
    assert lines[0] == pytest.approx(lines[1], abs=1e-6)
    assert lines[0] == pytest.approx([linear_keras.SLOPE, linear_keras.INTERCEPT], abs=0.1)


@pytest.mark.slow
def test_difference_of_fit_and_loop_is_an_error(monkeypatch):
    by_loop = linear_keras.by_loop

    def wrong(*args):
        losses, model = by_loop(*args)
        return [2 * loss for loss in losses], model

    monkeypatch.setattr(linear_keras, "by_loop", wrong)
    with pytest.raises(TrainingError, match="fit and the loop have different losses"):
        linear_keras.main(["--devices", "2", "--batch_size", "2", "--epochs", "1"])


@pytest.mark.slow
def test_line_runs_as_a_program():
    command = [sys.executable, linear_keras.__file__, "--devices", "2", "--epochs", "1"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert "Replicas: 2, global batch: 24" in result.stdout and result.stdout.count("The line by") == 2
