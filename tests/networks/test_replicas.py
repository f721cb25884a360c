"""Test batch normalization and dropout on several replicas."""

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.networks.dropout import random_stream
from cyclegan.networks.generators import make_generator
from tests.networks.helpers import network_config


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
