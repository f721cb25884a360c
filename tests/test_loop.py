import types

import numpy as np
import pytest
import tensorflow as tf

from cyclegan import loop
from cyclegan.data import Pairs
from cyclegan.errors import TrainingError
from cyclegan.gan import ERRORS, LOSSES


class Recorder:
    """Stands for the Summary and the Checkpoints of a run: writes down what is asked of them."""

    def __init__(self):
        self.calls = []

    def scalars(self, split, epoch, step, values):
        self.calls.append((split, epoch, step))

    def cycles(self, epoch, forward, backward):
        self.calls.append(("plot", epoch, len(forward[0])))

    def save(self, epoch, step):
        self.calls.append(("save", epoch, step))

    def of(self, kind):
        return [call[1] for call in self.calls if call[0] == kind]


@pytest.fixture
def fit(strategies, pictures_of):
    """A function that runs `loop.fit` on 7 pairs in batches of 3, with a train step that returns the figures given."""

    def run(epochs, done=0, value=1.0, test_value=1.0, **options):
        gan = types.SimpleNamespace(
            epoch=tf.Variable(done, dtype=tf.int64),
            step=tf.Variable(3 * done, dtype=tf.int64),
            learning_rate=0.5,
            cycle=lambda x, y: [tf.constant(x), tf.constant(x), tf.constant(y), tf.constant(y)],
        )
        train, test = (Pairs(pictures_of(7, 16), pictures_of(7, 16), 3, 16, seed) for seed in (0, None))

        def train_step(batch, totals):
            gan.step.assign_add(1)
            return {key: total + value * tf.reduce_sum(batch[2]) / 3 for key, total in totals.items()}

        def test_step(batch, totals):
            return {key: total + test_value * tf.reduce_sum(batch[2]) / 3 for key, total in totals.items()}

        run.recorder = recorder = Recorder()
        options = {"verbose": 0, **options}
        figures = loop.fit(
            gan, train, test, train_step, test_step, strategies[1], recorder, recorder, epochs, **options
        )
        return figures, recorder, gan

    return run


def test_figures_are_exact_means_over_the_samples_whatever_the_last_batch(fit):
    figures, _, _ = fit(1)  # three batches of 3, 3 and 1 samples; every sample's loss is 1
    assert all(figures["train"][key] == pytest.approx(1) for key in LOSSES)
    assert all(figures["test"][key] == pytest.approx(1) for key in LOSSES + ERRORS)
    assert figures["train"]["learning_rate"] == 0.5
    for split in ("train", "test"):
        assert figures[split]["images_per_second"] == pytest.approx(14 / figures[split]["seconds"])


def test_things_happen_every_so_many_epochs_and_at_the_end(fit):
    _, recorder, gan = fit(5, plot_every=2, checkpoint_every=3)
    assert recorder.of("train") == recorder.of("test") == [1, 2, 3, 4, 5]
    assert recorder.of("plot") == [2, 4, 5]
    assert recorder.of("save") == [3, 5]
    assert recorder.calls[-1] == ("save", 5, 15)
    assert ("plot", 2, 5) in recorder.calls  # five samples
    assert int(gan.epoch.numpy()) == 5


def test_a_resumed_run_does_the_rest_only(fit):
    _, recorder, _ = fit(5, done=3)
    assert recorder.of("train") == [4, 5]
    figures, recorder, _ = fit(5, done=5)
    assert figures == {} and recorder.calls == []


def test_a_loss_that_is_not_finite_stops_the_run_before_anything_is_saved(fit):
    for diverged in ({"value": float("nan")}, {"test_value": float("inf")}):
        with pytest.raises(
            TrainingError, match=r"epoch 1: loss_G/loss, .* not finite: training has diverged.*lower --lr"
        ):
            fit(2, **diverged)
        assert fit.recorder.calls == []
    assert TrainingError.exit_code == 1


def test_a_device_without_enough_memory_is_one_clear_line(pictures_of):
    def step(batch, totals):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    pairs = Pairs(pictures_of(2, 16), pictures_of(2, 16), 1, 16)
    with pytest.raises(TrainingError, match="not enough memory for a step: try a smaller --batch_size"):
        loop._run(step, iter([()]), pairs, LOSSES, "Train", 0)


def test_verbosity(fit, capsys):
    fit(1, verbose=0)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    fit(1, verbose=1)
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == "Epoch 001/001"
    assert lines[1] == "MAE(X, F(G(X))): 1.0000  MAE(X, F(X)): 1.0000"
    assert lines[2] == "MAE(Y, G(F(Y))): 1.0000  MAE(Y, G(Y)): 1.0000"
    assert lines[3].startswith("Elapsed: ") and len(lines) == 4
    for bar in ("Train: 100%", "Test: 100%", "3/3", "images/s"):
        assert bar in captured.err
    fit(1, verbose=2)
    assert "train: loss_G/loss 1.0000  loss_G/cycle 1.0000" in capsys.readouterr().out


def test_the_samples_are_the_first_test_pictures(strategies, pictures_of):
    x, y = pictures_of(7, 16, seed=1), pictures_of(6, 16, seed=2)
    seen = []
    gan = types.SimpleNamespace(cycle=lambda x, y: seen.extend([x, y]) or [tf.constant(x)] * 4)
    summary = types.SimpleNamespace(cycles=lambda epoch, forward, backward: (epoch, len(forward), len(backward)))
    assert loop.plot(gan, Pairs(x, y, 3, 16), summary, 9) == (9, 3, 3)
    np.testing.assert_allclose(seen[0], x[:5] / 127.5 - 1, atol=1e-6)
    np.testing.assert_allclose(seen[1], y[:5] / 127.5 - 1, atol=1e-6)
