"""The tutorials, on small made-up datasets."""

import gzip
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.distribution.collectives import reduce_dict
from cyclegan.errors import TrainingError, UserError
from cyclegan.methods.losses import reduce_mean
from scripts.tutorials import fashion, fashion_mnist, linear_keras

TUTORIALS = pathlib.Path(fashion_mnist.__file__).parent


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


def run(script, *arguments, **environment):
    return subprocess.run(
        [sys.executable, TUTORIALS / script, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_fashion_mnist_learns_and_restores(data, tmp_path, capsys):
    flags = ["--devices", "2", "--batch_size", "8", "--epochs", "3", "--seed", "1", "--whole_epoch"]
    history, restored = fashion_mnist.main(["--data", data, "--output_dir", str(tmp_path), *flags])
    assert history[-1]["test accuracy"] > 0.9 and history[-1]["accuracy"] > 0.9
    assert history[-1]["loss"] < history[0]["loss"] / 2 and history[-1]["test loss"] < history[0]["test loss"]
    folder = tmp_path / "checkpoints"
    assert restored == history[-1]["test accuracy"]
    test = fashion.batches(*fashion.load(data)[2:], 50)
    assert fashion_mnist.restored_accuracy(folder / "epoch_0002-2", test) == pytest.approx(history[1]["test accuracy"])
    assert sorted(path.name for path in folder.iterdir()) == ["epoch_0000-1", "epoch_0002-2", "epoch_0003-3"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Replicas: 2, global batch: 16 of 350 examples" and len(lines) == 5
    assert lines[3].startswith("Epoch 3, loss: ") and f"test accuracy: {restored:.4f}" in lines[3]
    assert lines[4] == f"Restored without a strategy from {folder}/epoch_0003-3, test accuracy: {restored:.4f}"


def test_other_restored_accuracy_is_an_error(data, tmp_path, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "restored_accuracy", lambda checkpoint, dataset: 0.1)
    with pytest.raises(TrainingError, match="restored model's accuracy is 0.1000: expected 0.* as trained"):
        fashion_mnist.main(["--data", data, "--output_dir", str(tmp_path), "--epochs", "1"])


def trainer(strategy, rate, monkeypatch):
    """Return a trainer with gradient descent, which shows a sum over replicas that is missing or done twice; Adam hides it."""
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


def test_regularization_shrinks_kernels(strategies, monkeypatch):
    """Train with L2 x w^2, whose gradient is 2 x L2 x w: a step with rate 0.5 leaves 1 - 0.5 x 2 x 0.01 = 0.99 of each kernel."""
    one = trainer(strategies[2], 0.5, monkeypatch)
    before = [value.numpy() for value in one.model.trainable_variables]
    nothing = dataset(12).map(lambda images, labels, weights: (images, labels, 0 * weights))
    one.step(next(iter(strategies[2].experimental_distribute_dataset(nothing))))
    for old, new in zip(before, one.model.trainable_variables):
        np.testing.assert_allclose(new.numpy(), 0.99 * old, atol=1e-7)


def test_shares_of_a_mean_are_summed(strategies):
    strategy = strategies[2]
    per_example = strategy.experimental_distribute_values_from_function(
        lambda replica: tf.constant([[2.0, 3.0], [4.0, 5.0]][replica.replica_id_in_sync_group])
    )
    shares = strategy.run(lambda values: {"loss": reduce_mean(values, 4)}, args=(per_example,))
    assert [float(share) for share in strategy.experimental_local_results(shares["loss"])] == [1.25, 2.25]
    for total in strategy.experimental_local_results(
        strategy.run(lambda share: reduce_dict(share)[0], args=(shares,))["loss"]
    ):
        assert float(total) == 3.5
    with strategy.scope():
        of_shares, of_examples = tf.keras.metrics.Mean(), tf.keras.metrics.Mean()
    strategy.run(of_shares.update_state, args=(shares["loss"],))
    strategy.run(of_examples.update_state, args=(per_example,))
    assert float(of_shares.result()) == 1.75  # 3.5 over two replicas
    assert float(of_examples.result()) == 3.5


def test_batches_are_full():
    x, y = np.arange(5)[:, None], np.arange(5) + 10
    whole, filled = ([part.numpy().tolist() for part in batch] for batch in fashion.batches(x, y, 4))
    assert whole == [[[0], [1], [2], [3]], [10, 11, 12, 13], [1, 1, 1, 1]]
    assert filled == [[[4], [0], [1], [2]], [14, 10, 11, 12], [1, 0, 0, 0]]


def test_order_depends_on_the_seed():
    def order(seed):
        ((images, labels, _),) = fashion.batches(np.arange(9), np.arange(9) + 10, 9, seed)
        np.testing.assert_array_equal(images + 10, labels)
        return images.numpy().tolist()

    first, second = order([0, 1]), order([0, 2])
    assert sorted(first) == sorted(second) == list(range(9)) and first != second and first == order([0, 1])


@pytest.mark.parametrize(
    "change, problem",
    [
        ({"x_test": None}, "x_test is not a file in the archive"),
        ({"x_train": np.zeros((350, 28, 28))}, r"x_train is float64 \[350, 28, 28\]"),
        ({"x_test": np.zeros((205, 28, 28, 3), np.uint8)}, r"x_test is uint8 \[205, 28, 28, 3\]"),
        ({"x_train": np.zeros((0, 28, 28), np.uint8)}, r"x_train is uint8 \[0, 28, 28\]"),
        ({"y_train": np.zeros(350)}, r"y_train is float64 \[350\] for 350 images"),
        ({"y_test": np.zeros(204, int)}, r"y_test is int64 \[204\] for 205 images"),
        ({"y_test": np.full(205, 10)}, "y_test has numbers from 10 to 10"),
        ({"y_train": np.full(350, -1)}, "y_train has numbers from -1 to -1"),
    ],
)
def test_wrong_arrays_are_refused(arrays, tmp_path, change, problem):
    path = tmp_path / "set.npz"
    np.savez(path, **{name: array for name, array in {**arrays, **change}.items() if array is not None})
    with pytest.raises(UserError, match=rf"--data {path}: .*{problem}.*; expected .*uint8 \[N, 28, 28\]"):
        fashion.load(path)


class Trap:
    """Make a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickles_are_not_executed(arrays, tmp_path):
    trap, path = np.array([Trap(tmp_path / "trapped")]), tmp_path / "set.npz"
    np.savez(path, **{**arrays, "x_train": trap})
    with pytest.raises(UserError, match="Object arrays cannot be loaded"):
        fashion.load(path)
    path.write_bytes(pickle.dumps(trap))
    for name in (path, tmp_path / "nothing.npz", tmp_path):
        with pytest.raises(UserError, match=f"--data {name}: .*; expected an .npz file"):
            fashion.load(name)
    assert not (tmp_path / "trapped").exists()


def test_truncated_file_is_refused(data, tmp_path):
    whole, path = pathlib.Path(data).read_bytes(), tmp_path / "set.npz"
    for content in (whole[:1000], whole[:500] + b"damaged" + whole[507:]):
        path.write_bytes(content)
        with pytest.raises(UserError, match="BadZipFile: .*; expected an .npz file"):
            fashion.load(path)


@pytest.mark.parametrize("error", [Exception("URL fetch failure"), EOFError("Compressed file ended")])
def test_failed_download_names_the_fix(monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr(tf.keras.datasets.fashion_mnist, "load_data", fail)
    with pytest.raises(
        UserError, match=rf"\({type(error).__name__}: {error}\): put the four .*--data FILE.npz, with"
    ) as got:
        fashion.load()
    assert "\n" not in str(got.value)


def idx(path, array):
    """Write an array in the format of the original files."""
    sizes = np.array(array.shape, ">i4").tobytes()
    path.write_bytes(gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()))


@pytest.mark.slow
def test_cache_of_keras_replaces_a_download(arrays, tmp_path):
    cache = tmp_path / ".keras" / "datasets" / "fashion-mnist"
    cache.mkdir(parents=True)
    for name, part in (("train", "train"), ("t10k", "test")):
        idx(cache / f"{name}-images-idx3-ubyte.gz", arrays[f"x_{part}"])
        idx(cache / f"{name}-labels-idx1-ubyte.gz", arrays[f"y_{part}"])
    flags = ["--devices", "2", "--epochs", "1", "--output_dir", str(tmp_path / "run")]
    result = run("fashion_mnist.py", *flags, HOME=str(tmp_path), KERAS_HOME=str(tmp_path / ".keras"))
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert "Replicas: 2, global batch: 128 of 350 examples" in result.stdout and "Restored" in result.stdout


def test_impossible_flags_are_refused(data, tmp_path):
    (tmp_path / "file").touch()
    for flags, text in (
        (["--batch_size", "351"], "--batch_size 351: expected a global batch of at most all examples"),
        (["--devices", "9"], "--devices 9: TensorFlow has started with 8 CPU devices"),
        (["--output_dir", str(tmp_path / "file")], "could not be written"),
    ):
        with pytest.raises(UserError, match=text):
            fashion_mnist.main(["--data", data, "--output_dir", str(tmp_path / "run"), *flags])
    (tmp_path / "config.json").touch()
    with pytest.raises(UserError, match="holds a run of train.py; expected another folder"):
        fashion_mnist.main(["--data", data, "--output_dir", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "file"]


@pytest.mark.parametrize("main", [fashion_mnist.main, linear_keras.main])
@pytest.mark.parametrize("flag", ["--devices", "--epochs", "--batch_size"])
def test_numbers_out_of_range_are_refused(main, flag, capsys):
    for value in ("0", "-1", "x", "1000001"):
        with pytest.raises(SystemExit) as stopped:
            main([flag, value])
        assert (
            stopped.value.code == 2 and f"{flag}: '{value}': expected a whole number from 1" in capsys.readouterr().err
        )


def test_nonfinite_loss_ends_training(data, tmp_path, monkeypatch):
    monkeypatch.setattr(tf.keras.optimizers, "Adam", lambda _: tf.keras.optimizers.SGD(1e30))
    with pytest.raises(TrainingError, match="the loss of epoch 1 is not finite"):
        fashion_mnist.main(["--data", data, "--output_dir", str(tmp_path), "--batch_size", "175"])
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["epoch_0000-1"]
