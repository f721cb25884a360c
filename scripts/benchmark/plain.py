"""The training step in the plain form of tutorials, for comparison: Keras alone, no part of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from cyclegan.config import Config
from cyclegan.networks import compat

layers = tf.keras.layers


def reflect(margin: int) -> tf.keras.layers.Layer:
    """Return a layer that mirrors a margin around an image."""
    sides = [[0, 0], [margin, margin], [margin, margin], [0, 0]]
    return layers.Lambda(lambda x: tf.pad(x, sides, mode="REFLECT"))


def normalization() -> tf.keras.layers.Layer:
    """Return the instance normalization of TensorFlow Addons, or Keras's without Addons."""
    options = {"gamma_initializer": tf.random_normal_initializer(0, 0.02), "epsilon": 1e-3}
    addons = compat.instance_normalization_of_addons()
    return addons(**options) if addons else layers.GroupNormalization(groups=-1, **options)


def generator(filters: int, residual_blocks: int) -> tf.keras.Model:
    """Return the ResNet of the Keras example."""
    options: dict[str, Any] = {"use_bias": False, "kernel_initializer": tf.random_normal_initializer(0, 0.02)}
    image = layers.Input([None, None, 3])
    x = layers.Conv2D(filters, 7, **options)(reflect(3)(image))
    x = layers.ReLU()(normalization()(x))
    for factor in (2, 4):
        x = layers.Conv2D(factor * filters, 3, 2, "same", **options)(x)
        x = layers.ReLU()(normalization()(x))
    for _ in range(residual_blocks):
        y = layers.Conv2D(4 * filters, 3, **options)(reflect(1)(x))
        y = layers.ReLU()(normalization()(y))
        y = layers.Conv2D(4 * filters, 3, **options)(reflect(1)(y))
        x = layers.Add()([x, normalization()(y)])
    for factor in (2, 1):
        x = layers.Conv2DTranspose(factor * filters, 3, 2, "same", **options)(x)
        x = layers.ReLU()(normalization()(x))
    x = layers.Conv2D(3, 7)(reflect(3)(x))
    return tf.keras.Model(image, layers.Activation("tanh")(x))


def discriminator(filters: int) -> tf.keras.Model:
    """Return the 70x70 PatchGAN of the Keras example."""
    initializer = tf.random_normal_initializer(0, 0.02)
    image = layers.Input([None, None, 3])
    x = layers.Conv2D(filters, 4, 2, "same", kernel_initializer=initializer)(image)
    x = layers.LeakyReLU(0.2)(x)
    for factor, stride in ((2, 2), (4, 2), (8, 1)):
        x = layers.Conv2D(factor * filters, 4, stride, "same", use_bias=False, kernel_initializer=initializer)(x)
        x = layers.LeakyReLU(0.2)(normalization()(x))
    return tf.keras.Model(image, layers.Conv2D(1, 4, 1, "same", kernel_initializer=initializer)(x))


def make(strategy: tf.distribute.Strategy, batch: int, config: Config) -> Callable[[Any], Any]:
    """Return a function that trains plain networks as tutorials do.

    Every network runs on each input separately, in float32. Each network has a tape and Keras's Adam; a call is one
    step. As in the Keras example, each network minimizes its own total only, which is no more work than the paper's
    objective.
    """
    filters, blocks = config.networks.filters, config.networks.residual_blocks
    with strategy.scope():
        networks = [*(generator(filters, blocks) for _ in "GF"), *(discriminator(filters) for _ in "XY")]
        optimizers = [tf.keras.optimizers.Adam(2e-4, 0.5) for _ in networks]
        for optimizer, network in zip(optimizers, networks):
            optimizer.build(network.trainable_variables)

    def mean(values: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.reduce_mean(values, axis=[1, 2, 3])) / batch

    def totals(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, ...]:
        G, F, D_X, D_Y = (lambda images, network=network: network(images, training=True) for network in networks)
        fake_y, fake_x = G(x), F(y)
        cycle_x, cycle_y, same_x, same_y = F(fake_y), G(fake_x), F(x), G(y)
        real_x, fake_logits_x, real_y, fake_logits_y = D_X(x), D_X(fake_x), D_Y(y), D_Y(fake_y)
        total_G = mean((fake_logits_y - 1) ** 2) + 10 * mean(abs(y - cycle_y)) + 5 * mean(abs(y - same_y))
        total_F = mean((fake_logits_x - 1) ** 2) + 10 * mean(abs(x - cycle_x)) + 5 * mean(abs(x - same_x))
        loss_X = 0.5 * (mean((real_x - 1) ** 2) + mean(fake_logits_x**2))
        loss_Y = 0.5 * (mean((real_y - 1) ** 2) + mean(fake_logits_y**2))
        return total_G, total_F, loss_X, loss_Y

    def step(x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
        x, y = (tf.cast(images[0], tf.float32) / 127.5 - 1 for images in (x, y))
        with tf.GradientTape() as g, tf.GradientTape() as f, tf.GradientTape() as d_x, tf.GradientTape() as d_y:
            losses = totals(x, y)
        for tape, loss, network, optimizer in zip((g, f, d_x, d_y), losses, networks, optimizers):
            gradients = tape.gradient(loss, network.trainable_variables)
            optimizer.apply_gradients(zip(gradients, network.trainable_variables))
        return sum(losses)

    @tf.function(autograph=False)
    def function(batch: tuple[tf.Tensor, ...]) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(step, args=batch), axis=None)

    return function
