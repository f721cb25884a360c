"""The tutorials, on small made-up datasets."""

import re

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.errors import TrainingError, UserError
from scripts.tutorials import fashion, fashion_mnist, linear_keras
from tests.system.runs import run


def examples(count, seed):
    """Return uint8 [count, 28, 28] and classes uint8 [count]; each class has its own coarse squares, with noise."""
    squares = np.random.default_rng(0).uniform(0, 255, (10, 7, 7))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, count).astype(np.uint8)
    x = squares[y].repeat(4, axis=1).repeat(4, axis=2) + rng.normal(0, 120, (count, 28, 28))
    return x.clip(0, 255).astype(np.uint8), y


@pytest.fixture(scope="module")
def arrays():
    return dict(zip(("x_train", "y_train", "x_test", "y_test"), (*examples(350, 1), *examples(205, 2))))


@pytest.fixture(scope="module")
def data(arrays, tmp_path_factory):
    path = tmp_path_factory.mktemp("set") / "set.npz"
    np.savez(path, **arrays)
    return str(path)


def test_fashion_mnist_learns_and_restores(data, tmp_path, capsys):
    flags = ["--devices", "2", "--batch_size", "8", "--epochs", "3", "--seed", "1", "--whole_epoch"]
    history, restored = fashion_mnist.main(["--data", data, "--output_dir", str(tmp_path), *flags])
    assert history[-1]["test accuracy"] > 0.9 and history[-1]["accuracy"] > 0.9
    assert history[-1]["loss"] < history[0]["loss"] / 2 and history[-1]["test loss"] < history[0]["test loss"]
    assert restored == history[-1]["test accuracy"]
    test = fashion.batches(*fashion.load(data)[2:], 50)
    earlier = fashion_mnist.restored_accuracy(str(tmp_path / "epoch-2"), test)
    assert earlier == pytest.approx(history[1]["test accuracy"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Replicas: 2, global batch: 16 of 350 examples" and len(lines) == 5
    assert lines[3].startswith("Epoch 3, loss: ") and f"test accuracy: {restored:.4f}" in lines[3]
    assert lines[4] == f"Restored without a strategy from {tmp_path}/epoch-3, test accuracy: {restored:.4f}"


def trainer(strategy, rate, monkeypatch):
    """Return a trainer with gradient descent, which shows a missing or doubled sum over replicas; Adam hides it."""
    monkeypatch.setattr(fashion, "L2", 0.01)  # as large as the rest of the loss
    monkeypatch.setattr(tf.keras.optimizers, "Adam", lambda _: tf.keras.optimizers.SGD(rate))
    tf.keras.utils.set_random_seed(3)
    return fashion_mnist.Trainer(strategy, 12)


def dataset(count=30):
    x, y = examples(count, 4)
    return fashion.batches(x[..., None], y.astype(np.int64), 12)


@pytest.mark.slow
def test_same_result_on_any_number_of_replicas(strategies, monkeypatch):
    results = {}
    for replicas, whole in ((1, False), (2, False), (2, True)):
        one = trainer(strategies[replicas], 0.05, monkeypatch)
        before = [value.numpy() for value in one.model.trainable_variables]
        metrics = {**one.train(dataset(), whole), **one.test(dataset(9))}
        after = [value.numpy() for value in one.model.trainable_variables]
        results[replicas, whole] = metrics, after
        assert max(np.abs(a - b).max() for a, b in zip(before, after)) > 0.01
    first, weights = results.pop((1, False))
    assert results[2, True][0] == results[2, False][0]
    for metrics, others in results.values():
        assert metrics == pytest.approx(first, rel=1e-5)
        for a, b in zip(weights, others):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_metrics_are_means_over_the_examples(strategies, monkeypatch):
    one = trainer(strategies[2], 0.0, monkeypatch)  # rate 0, so that all steps have the same weights
    x, y = examples(30, 4)
    logits = one.model(x[..., None]).numpy().astype(np.float64)
    entropy = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(30), y])
    kernels = [value.numpy() for value in one.model.trainable_variables if len(value.shape) > 1]
    penalty = 0.01 * sum(np.square(kernel).sum() for kernel in kernels)
    accuracy = np.mean(logits.argmax(axis=1) == y)
    assert len(kernels) == 4 and penalty > 0.5
    metrics = {"loss": entropy + penalty, "accuracy": accuracy, "test loss": entropy, "test accuracy": accuracy}
    assert {**one.train(dataset(), whole=False), **one.test(dataset())} == pytest.approx(metrics, rel=1e-5)


@pytest.mark.parametrize(
    "change, problem",
    [
        ({"x_test": None}, "x_test is not a file in the archive"),
        ({"x_train": np.zeros((350, 28, 28))}, r"x_train is float64 \[350, 28, 28\]"),
        ({"y_test": np.zeros(204, int)}, r"y_test is int64 \[204\]"),
        ({"y_test": np.full(205, 10)}, "y_test is int64"),
        ({"x_train": np.array([{}])}, "Object arrays cannot be loaded"),  # a pickle, which could run code
    ],
)
def test_wrong_arrays_are_refused(arrays, tmp_path, change, problem):
    path = tmp_path / "set.npz"
    np.savez(path, **{name: array for name, array in {**arrays, **change}.items() if array is not None})
    with pytest.raises(UserError, match=rf"--data {path}: .*{problem}.*; expected .*uint8 \[N, 28, 28\]"):
        fashion.load(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UserError, match="--data .*set.npz: .*; expected an .npz file"):
        fashion.load(path)


def test_nonfinite_loss_ends_training(data, tmp_path, monkeypatch):
    monkeypatch.setattr(tf.keras.optimizers, "Adam", lambda _: tf.keras.optimizers.SGD(1e30))
    with pytest.raises(TrainingError, match="the loss of epoch 1 is not finite"):
        fashion_mnist.main(["--data", data, "--output_dir", str(tmp_path), "--batch_size", "175"])
    assert not list(tmp_path.iterdir())


def test_two_steps_of_the_line_by_hand(strategies):
    """Start at 0 x + 0, and subtract a tenth of the gradients twice.

    Squares 1 and 9, gradients -7 and -4. Then 0.7 x + 0.4 misses by -0.1 and 1.2: squares 0.01 and 1.44, gradients -2.3
    and -1.1.
    """
    points = tf.data.Dataset.from_tensor_slices(([[1.0], [2.0]], [[1.0], [3.0]])).batch(2, drop_remainder=True)
    for losses, model in (
        linear_keras.by_fit(strategies[2], points, 2),
        linear_keras.by_loop(strategies[2], points, 2, global_batch_size=2),
    ):
        assert losses == pytest.approx([5.0, 0.725])
        assert [value.numpy().item() for value in model.trainable_variables] == pytest.approx([0.93, 0.51])


def test_batches_are_full_and_their_order_depends_on_the_seed():
    whole, filled = (
        [part.numpy().tolist() for part in batch] for batch in fashion.batches(np.arange(5), np.arange(5), 4)
    )
    assert whole == [[0, 1, 2, 3], [0, 1, 2, 3], [1, 1, 1, 1]]
    assert filled == [[4, 0, 1, 2], [4, 0, 1, 2], [1, 0, 0, 0]]

    def order(seed):
        ((images, labels, _),) = fashion.batches(np.arange(9), np.arange(9) + 10, 9, seed)
        np.testing.assert_array_equal(images + 10, labels)
        return images.numpy().tolist()

    first, second = order([0, 1]), order([0, 2])
    assert sorted(first) == sorted(second) == list(range(9)) and first != second and first == order([0, 1])


@pytest.mark.slow
def test_the_line_is_found_by_a_program():
    result = run("--devices", "2", "--epochs", "2", program=linear_keras.__file__)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert "Replicas: 2, global batch: 24" in result.stdout and result.stdout.count("The line by") == 2
    slopes = re.findall(r"The line by [\w ]+: ([\d.]+) x \+ ([\d.-]+);", result.stdout)
    for slope, intercept in slopes:
        assert float(slope) == pytest.approx(linear_keras.SLOPE, abs=0.1)
        assert float(intercept) == pytest.approx(linear_keras.INTERCEPT, abs=0.1)
