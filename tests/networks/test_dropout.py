import threading

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.networks import compat
from cyclegan.networks.dropout import Dropout, random_stream


def dropped(x, seed=(1, 2), rows=6, start=0, count=6, rate=0.4, calls=1):
    """Return the output of the last of several calls in one context."""
    with random_stream(tf.constant(seed, tf.int64), rows, start, count):
        for _ in range(calls):
            y = Dropout(rate)(x, training=True)
    return y.numpy()


def dropped_in_graph(x, seed):
    with random_stream(seed, 6, tf.constant(0), 6):
        return Dropout(0.4)(x, training=True)


def fails_in_another_thread(layer, x):
    try:
        layer(x, training=True)
    except RuntimeError:
        return True
    return False


def test_drops_its_share_and_keeps_the_mean():
    y = dropped(tf.fill([6, 40, 30, 5], 3.0))
    assert set(np.unique(y)) == {0.0, np.float32(3) / np.float32(0.6)}
    assert np.mean(y == 0) == pytest.approx(0.4, abs=0.01)
    assert np.mean((y[0] == 0) & (y[1] == 0)) == pytest.approx(0.4**2, abs=0.02)  # independently in each sample


def test_numbers_depend_on_seed_and_call_only():
    x = tf.ones([6, 4, 4, 3])
    first = dropped(x)
    np.testing.assert_array_equal(first, dropped(x))
    for other in (dropped(x, seed=(1, 3)), dropped(x, seed=(2, 2)), dropped(x, calls=2)):
        assert 0.2 < np.mean((first == 0) != (other == 0)) < 0.8
    traced = tf.function(lambda seed: dropped_in_graph(x, seed))(tf.constant([1, 2], tf.int64))
    np.testing.assert_array_equal(first, traced.numpy())


@pytest.mark.parametrize("inputs", [1, 2], ids=["one input", "two inputs as one batch"])
def test_replica_gets_its_share_of_the_global_batch(inputs):
    x = tf.ones([6 * inputs, 3, 5, 4])
    whole = dropped(x).reshape(inputs, 6, 3, 5, 4)
    for count in (1, 2, 3):
        for start in range(0, 6, count):
            part = dropped(x[: count * inputs], start=tf.constant(start), count=count)
            np.testing.assert_array_equal(part.reshape(inputs, count, 3, 5, 4), whole[:, start : start + count])
    halves = whole.reshape(-1, 3 * 5 * 4)
    assert len(np.unique(halves, axis=0)) == len(halves)  # all samples and inputs differ


def test_training_needs_a_stream_in_the_same_thread():
    layer, x = Dropout(0.5), tf.ones([2, 3, 3, 1])
    np.testing.assert_array_equal(layer(x).numpy(), x.numpy())
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"outside of random_stream"):
            layer(x, training=True)
        with random_stream([1, 2], 4, 0, 2), pytest.raises(ValueError, match="a batch of 3 for dropout; expected 2"):
            layer(tf.ones([3, 3, 3, 1]), training=True)
    with random_stream([1, 2], 2, 0, 2):
        with random_stream([3, 4], 2, 0, 2):
            inner = layer(x, training=True).numpy()
        layer(x, training=True)  # the outer stream is active again
        failed = []
        thread = threading.Thread(target=lambda: failed.append(fails_in_another_thread(layer, x)))
        thread.start()
        thread.join()
    assert failed == [True] and inner.shape == x.shape


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_lower_precision_scales_exactly(precision):
    with compat.precision_policy(precision):
        layer = Dropout(0.5)
    with random_stream([1, 2], 1, 0, 1):
        y = layer(tf.ones([1, 8, 8, 2], precision), training=True)
    assert y.dtype == precision and set(np.unique(tf.cast(y, tf.float32))) == {0.0, 2.0}
