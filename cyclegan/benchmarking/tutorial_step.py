"""The training step in the plain form of tutorials, for comparison in `benchmark.py`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import tensorflow as tf

from cyclegan.config import Config
from cyclegan.images.value_range import to_float
from cyclegan.networks import blocks, compat, normalization
from cyclegan.networks.layers import normal
from cyclegan.training.gan import GAN


def _normalization(epsilon: float, affine: bool, second_derivatives: bool) -> tf.keras.layers.Layer:
    """Return the layer of TensorFlow Addons, or one that computes the same way."""
    kind = compat.instance_normalization_of_addons() or normalization.PlainInstanceNormalization
    return kind(epsilon=epsilon, center=affine, scale=affine, gamma_initializer=normal(), dtype="float32")


def _convolution(
    *args: Any, trains_bias: bool = True, margin: int = 0, **kwargs: Any
) -> Callable[[tf.Tensor], tf.Tensor]:
    pads = [tf.keras.layers.ZeroPadding2D(margin)] if margin else []
    return _chain(*pads, tf.keras.layers.Conv2D(*args, **kwargs))


def _transposed_convolution(*args: Any, trains_bias: bool = True, **kwargs: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    layer = tf.keras.layers.Conv2DTranspose(*args, **kwargs)
    return _chain(layer, *([tf.keras.layers.Cropping2D(((1, 0), (1, 0)))] if layer.padding == "valid" else []))


def _chain(*layers: tf.keras.layers.Layer) -> Callable[[tf.Tensor], tf.Tensor]:
    return lambda x: functools.reduce(lambda y, layer: layer(y), layers, x)


def make(strategy: tf.distribute.Strategy, batch: int, config: Config) -> tuple[GAN, Callable]:
    """Return the networks of the package and a function that trains them as tutorials do.

    Every network runs on each input separately, in float32, with Keras's own convolutions and the instance normalization of
    TensorFlow Addons. Each network has a tape and Keras's Adam; a call is one step. As in the Keras example, each network minimizes
    its own total only, which is no more work than the paper's objective.

    Args:
        strategy: Strategy of the replicas.
        batch: Global batch size.
        config: The configuration of the networks.

    Returns:
        (gan, function): a `GAN` without optimizers, and a compiled function of one batch of `UnpairedDataset` (with an axis of
        length 1 in front) that returns the sum of all losses.
    """
    with strategy.scope():
        with (
            mock.patch.object(blocks, "Convolution", _convolution),
            mock.patch.object(blocks, "TransposedConvolution", _transposed_convolution),
            mock.patch.object(normalization, "make_instance_normalization", _normalization),
        ):
            gan = GAN(batch, config)
        del gan.generator_optimizer, gan.discriminator_optimizer  # to free their memory
        networks = [*gan.networks.generators.values(), *gan.networks.discriminators.values()]
        optimizers = [tf.keras.optimizers.Adam(2e-4, 0.5) for _ in networks]
        for optimizer, network in zip(optimizers, networks):
            optimizer.build(network.trainable_variables)

    identity = gan.objective.settings.lambda_identity

    def mean(values: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.reduce_mean(values, axis=[1, 2, 3])) / batch

    def totals(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, ...]:
        G, F, D_X, D_Y = networks
        fake_y, fake_x = G(x, training=True), F(y, training=True)
        cycle_x, cycle_y = F(fake_y, training=True), G(fake_x, training=True)
        real_logits_x, fake_logits_x = D_X(x, training=True), D_X(fake_x, training=True)
        real_logits_y, fake_logits_y = D_Y(y, training=True), D_Y(fake_y, training=True)
        total_G = mean((fake_logits_y - 1) ** 2) + 10 * mean(abs(y - cycle_y))
        total_F = mean((fake_logits_x - 1) ** 2) + 10 * mean(abs(x - cycle_x))
        if identity:
            total_G += identity * mean(abs(y - G(y, training=True)))
            total_F += identity * mean(abs(x - F(x, training=True)))
        loss_X = 0.5 * (mean((real_logits_x - 1) ** 2) + mean(fake_logits_x**2))
        loss_Y = 0.5 * (mean((real_logits_y - 1) ** 2) + mean(fake_logits_y**2))
        return total_G, total_F, loss_X, loss_Y

    def step(x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
        x, y = to_float(x[0]), to_float(y[0])
        with tf.GradientTape() as g, tf.GradientTape() as f, tf.GradientTape() as d_x, tf.GradientTape() as d_y:
            losses = totals(x, y)
        for tape, loss, network, optimizer in zip((g, f, d_x, d_y), losses, networks, optimizers):
            gradients = tape.gradient(loss, network.trainable_variables)
            optimizer.apply_gradients(zip(gradients, network.trainable_variables))
        return sum(losses)

    @tf.function(autograph=False)
    def function(batch: tuple[tf.Tensor, ...]) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(step, args=batch), axis=None)

    return gan, function
