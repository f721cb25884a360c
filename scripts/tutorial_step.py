"""The training step in the plain form that tutorials have, for `benchmark.py` to compare with."""

from unittest import mock

import tensorflow as tf

from cyclegan.images.value_range import to_float
from cyclegan.networks import compat, convolution, instance_normalization, transposed_convolution
from cyclegan.training.gan import GAN


def _normalization(epsilon, affine, second_derivatives):
    """The layer of TensorFlow Addons, or what it does."""
    if compat.KERAS_MAJOR > 2:
        return instance_normalization.InstanceNormalization(epsilon, affine, fused=False)
    return compat.addons_instance_normalization(epsilon, affine)


def make(strategy, batch, config):
    """The networks of the package, trained as tutorials do it.

    Every network runs on every input by itself, in Keras's own convolutions, the instance normalization of TensorFlow Addons and
    float32; a tape and Keras's Adam for each network; one step per call. Each network descends its own total only, as in the
    Keras example: no more work than the paper's objective, which the package descends.

    Returns:
        (gan, function): a `GAN` with the networks, whose own step and optimizers are not used; and the compiled function of
        one batch as `data.UnpairedDataset` gives it (an axis of length 1 in front), which returns the sum of all losses.
    """
    with strategy.scope():
        with (
            mock.patch.object(convolution, "Convolution", tf.keras.layers.Conv2D),
            mock.patch.object(transposed_convolution, "TransposedConvolution", tf.keras.layers.Conv2DTranspose),
            mock.patch.object(instance_normalization, "make_instance_normalization", _normalization),
        ):
            gan = GAN(batch, config)
        gan.generator_optimizer = gan.discriminator_optimizer = None  # their memory is not the plain form's
        networks = [*gan.networks.generators.values(), *gan.networks.discriminators.values()]
        optimizers = [tf.keras.optimizers.Adam(2e-4, 0.5) for _ in networks]
        for optimizer, network in zip(optimizers, networks):
            optimizer.build(network.trainable_variables)

    identity = config.objective.lambda_identity

    def mean(values):
        return tf.reduce_sum(tf.reduce_mean(values, axis=[1, 2, 3])) / batch

    def totals(x, y, G, F, D_X, D_Y):
        fake_y, fake_x = G(x, training=True), F(y, training=True)
        cycle_x, cycle_y = F(fake_y, training=True), G(fake_x, training=True)
        real_x, judged_x = D_X(x, training=True), D_X(fake_x, training=True)
        real_y, judged_y = D_Y(y, training=True), D_Y(fake_y, training=True)
        total_G = mean((judged_y - 1) ** 2) + 10 * mean(abs(y - cycle_y))
        total_F = mean((judged_x - 1) ** 2) + 10 * mean(abs(x - cycle_x))
        if identity:
            total_G += identity * mean(abs(y - G(y, training=True)))
            total_F += identity * mean(abs(x - F(x, training=True)))
        loss_X = 0.5 * (mean((real_x - 1) ** 2) + mean(judged_x**2))
        loss_Y = 0.5 * (mean((real_y - 1) ** 2) + mean(judged_y**2))
        return total_G, total_F, loss_X, loss_Y

    def step(x, y, weight):
        x, y = to_float(x[0]), to_float(y[0])
        with tf.GradientTape() as g, tf.GradientTape() as f, tf.GradientTape() as d_x, tf.GradientTape() as d_y:
            losses = totals(x, y, *networks)
        for tape, loss, network, optimizer in zip((g, f, d_x, d_y), losses, networks, optimizers):
            gradients = tape.gradient(loss, network.trainable_variables)
            optimizer.apply_gradients(zip(gradients, network.trainable_variables))
        return sum(losses)

    @tf.function(autograph=False)
    def function(batch):
        return strategy.reduce("SUM", strategy.run(step, args=batch), axis=None)

    return gan, function
