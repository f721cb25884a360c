"""Dropout, and networks with dropout or batch normalization on several replicas."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.networks import compat
from cyclegan.networks.dropout import Dropout, random_stream
from cyclegan.networks.generators import make_generator
from tests.networks.helpers import network_config


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


def trained(strategy, config, steps=3):
    """Take steps with SGD on six images each; return the losses and all variables before and after.

    As in training, the network is called with two inputs as one batch, and with one input. The variables include the running
    statistics.
    """
    replicas = strategy.num_replicas_in_sync
    count = 6 // replicas
    x = np.random.default_rng(0).uniform(-1, 1, (steps, 6, 16, 16, 3)).astype(np.float32)
    with strategy.scope():
        tf.keras.utils.set_random_seed(1)
        network = make_generator(config)

    def of_each(value):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(value(context.replica_id_in_sync_group * count))
        )

    def step(number, parts, start):
        x = parts[number]
        with tf.GradientTape() as tape, random_stream(tf.stack([7, number]), 6, start, count):
            one = network(tf.concat([x, -x], axis=0), training=True)
            other = network(one[:count], training=True)
            error = tf.concat([one[:count], one[count:], other], axis=-1) - 0.5
            loss = tf.reduce_sum(tf.reduce_mean(error**2, axis=[1, 2, 3])) / 6
        gradients = tape.gradient(loss, network.trainable_variables)
        summed = tf.distribute.get_replica_context().all_reduce("SUM", [loss, *gradients])
        for variable, gradient in zip(network.trainable_variables, summed[1:]):
            tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=0.1, delta=gradient)
        return summed[0]

    @tf.function(autograph=False)
    def run(parts, starts):
        def one(number, losses):
            loss = strategy.run(step, args=(number, parts, starts))
            return number + 1, losses.write(number, strategy.experimental_local_results(loss)[0])

        return tf.while_loop(
            lambda number, _: number < steps, one, (tf.constant(0), tf.TensorArray(tf.float32, steps))
        )[1].stack()

    def variables():
        return [tf.convert_to_tensor(v).numpy() for v in network.variables]

    before = variables()
    losses = run(of_each(lambda first: x[:, first : first + count]), of_each(lambda first: first)).numpy()
    return losses, before, variables()


@pytest.mark.sampled
@pytest.mark.parametrize("form", [{"norm": "batch", "residual_blocks": 0}, {"dropout": 0.5, "norm": "none"}], ids=str)
def test_result_does_not_depend_on_the_number_of_replicas(form, strategies):
    config = network_config(**{"filters": 4, "residual_blocks": 1, "init": "kaiming", **form})
    (one, before, after), (three, _, apart) = (trained(strategies[replicas], config) for replicas in (1, 3))
    np.testing.assert_allclose(three, one, rtol=1e-5)
    moved = [np.abs(new - old).max() for old, new in zip(before, after)]
    for old, new, other in zip(before, after, apart):
        np.testing.assert_allclose(other, new, atol=1e-5 + 1e-4 * np.abs(new - old).max())
    assert min(moved) > 1e-6 and max(moved) > 1e-2
