"""Inputs, weights and comparisons that the tests of the layers share."""

import numpy as np
import tensorflow as tf

from cyclegan.config import Config

PAPER = {"variant": "paper"}


def network_config(**settings):
    """Return a `NetworkConfig` with these settings and what follows from them."""
    return Config.from_settings(**settings).networks


def noise(*shape, seed=0):
    """Return normally distributed float32 values."""
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float32)


def with_random_weights(*alike):
    """Give built layers the same weights."""
    for number, same in enumerate(zip(*(layer.trainable_variables for layer in alike))):
        for weight in same:
            weight.assign(0.3 * noise(*weight.shape, seed=number))


def upstream(y):
    """Return a gradient for y, always the same."""
    return tf.cast(tf.random.stateless_normal(tf.shape(y), seed=[1, 2]), y.dtype)


def output_and_gradients(layer, x, compiled_for=None):
    """Return the output of a layer and its gradients of x and of its variables, as float32 arrays.

    Args:
        layer: Layer, or a function with `trainable_variables`.
        x: Input.
        compiled_for: Static shape of x while the layer is traced; None calls the layer eagerly.
    """

    def call(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        return y, tape.gradient(y, [x, *layer.trainable_variables], upstream(y))

    if compiled_for:
        call = tf.function(call, autograph=False, input_signature=[tf.TensorSpec(compiled_for, x.dtype)])
    y, gradients = call(x)
    return [tf.cast(value, tf.float32).numpy() for value in (y, *gradients)]


def assert_all_close(ours, theirs, tolerance):
    """Compare lists of arrays; the tolerance is relative to the largest value of each array."""
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())
