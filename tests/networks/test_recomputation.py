"""Test that recomputation keeps fewer tensors, and gives the same results and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.networks import compat
from cyclegan.networks.discriminators import make_discriminator
from cyclegan.networks.generators import make_generator
from cyclegan.networks.recomputation import call_with_recomputation
from tests.networks.helpers import PAPER, network_config, noise

FORMS = [
    {"residual_blocks": 2},
    {"residual_blocks": 1, **PAPER},
    {"residual_blocks": 1, "norm": "none", "upsample": "resize"},
    {"residual_blocks": 0},
]


def with_gradients(network, x, recomputes):
    """Return the output of a network, and the gradients of a loss at its input and its variables."""

    @tf.function(autograph=False)
    def compute(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = call_with_recomputation(network, x) if recomputes else network(x, training=True)
            loss = tf.reduce_mean(tf.square(y - 0.3))
        gradients = tape.gradient(loss, [x, *network.trainable_variables])
        return y, [gradient for gradient in gradients if gradient is not None]

    y, gradients = compute(x)
    return [y.numpy(), *(gradient.numpy() for gradient in gradients)]


@pytest.mark.sampled
@pytest.mark.parametrize("form, precision", [(FORMS[0], "bfloat16"), *((form, "float32") for form in FORMS)], ids=str)
def test_results_and_gradients_are_the_same(form, precision):
    with compat.precision_policy(precision):
        generator = make_generator(network_config(filters=4, **form))
    x = tf.constant(noise(2, 16, 16, 3))
    for plain, again in zip(*(with_gradients(generator, x, recomputes) for recomputes in (False, True))):
        np.testing.assert_allclose(again, plain, rtol=1e-5, atol=1e-6 * np.abs(plain).max())


def test_networks_without_residual_blocks_are_called_as_they_are():
    discriminator = make_discriminator(network_config(filters=2))
    x = noise(1, 32, 32, 3)
    np.testing.assert_array_equal(call_with_recomputation(discriminator, x), discriminator(x, training=True))


def test_blocks_run_again_in_the_backward_pass():
    """Count the convolutions: without recomputation, a network has one per layer in the forward pass."""
    generator = make_generator(network_config(filters=2, residual_blocks=3))

    @tf.function(autograph=False)
    def gradients(x):
        with tf.GradientTape() as tape:
            y = call_with_recomputation(generator, x)
        return tape.gradient(y, generator.trainable_variables)

    operations = gradients.get_concrete_function(tf.TensorSpec([1, 32, 32, 3])).graph.get_operations()
    paddings = [operation for operation in operations if operation.type == "MirrorPad"]
    assert len(paddings) == 2 + 2 * 2 * 3  # of the first and the last layer once, of the blocks twice
    assert len({operation.inputs[0].ref() for operation in paddings}) == len(paddings)  # so they cannot be merged
