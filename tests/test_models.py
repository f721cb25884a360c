import math

import numpy as np
import pytest
import tensorflow as tf

from cyclegan import devices, models
from cyclegan.config import Config


def test_parameter_counts_are_those_of_the_keras_example():
    assert models.generator(Config()).count_params() == 11_383_427
    assert models.discriminator(Config()).count_params() == 2_765_633


@pytest.mark.parametrize("height, width", [(16, 16), (32, 48), (36, 20)])
def test_a_generator_keeps_the_size_and_stays_in_range(height, width):
    generator = models.generator(Config(filters=4, residual_blocks=1))
    x = np.random.default_rng(0).uniform(-1, 1, (2, height, width, 3)).astype(np.float32)
    y = generator(x).numpy()
    assert y.shape == x.shape and y.dtype == np.float32 and np.abs(y).max() <= 1


@pytest.mark.parametrize("size, patches", [(256, 32), (64, 8), (36, 5)])
def test_a_discriminator_judges_patches(size, patches):
    discriminator = models.discriminator(Config(filters=4))
    assert discriminator(tf.zeros([1, size, size, 3])).shape == (1, patches, patches, 1)


def test_networks_have_the_channels_asked_for():
    assert models.generator(Config(filters=4, residual_blocks=0), 1, 1)(tf.zeros([1, 16, 16, 1])).shape == (
        1,
        16,
        16,
        1,
    )
    assert models.discriminator(Config(filters=4), 5)(tf.zeros([1, 16, 16, 5])).shape == (1, 2, 2, 1)


def test_kernels_start_normal():
    kernels = [
        w.numpy()
        for w in models.generator(Config(filters=32, residual_blocks=2)).trainable_variables
        if len(w.shape) == 4
    ]
    assert abs(np.concatenate([k.ravel() for k in kernels]).std() - 0.02) < 2e-4


def test_the_patch_of_a_discriminator_is_70_pixels_wide():
    discriminator = models.discriminator(Config(filters=2))
    field = 1
    convolutions = [layer for layer in discriminator.layers if isinstance(layer, tf.keras.layers.Conv2D)]
    for layer in reversed(convolutions):
        field = (field - 1) * layer.strides[0] + layer.kernel_size[0]
    assert field == 70


def test_the_multiplications_of_the_paper_s_networks_by_hand():
    """At 256 px. Generator: 7x7 in and out, two convolutions down, 18 in the blocks, two up. Discriminator: five of 4x4."""
    generator = (
        256**2 * 7**2 * 3 * 64
        + 128**2 * 3**2 * 64 * 128
        + 64**2 * 3**2 * 128 * 256
        + 18 * 64**2 * 3**2 * 256 * 256
        + 64**2 * 3**2 * 256 * 128  # transposed: each number that goes in is multiplied by the whole kernel
        + 128**2 * 3**2 * 128 * 64
        + 256**2 * 7**2 * 64 * 3
    )
    assert generator == pytest.approx(49.55e9, rel=1e-4)
    assert models.multiplications(models.generator(Config(filters=64, residual_blocks=9)), 256, 256) == generator
    channels = (3, 64, 128, 256, 512, 1)
    discriminator = sum(
        side**2 * 4**2 * before * after for side, before, after in zip((128, 64, 32, 32, 32), channels, channels[1:])
    )
    assert models.multiplications(models.discriminator(Config(filters=64)), 256, 256) == discriminator


@pytest.mark.parametrize(
    "make, height, width",
    [
        (lambda: models.generator(Config(filters=2, residual_blocks=2)), 16, 16),
        (lambda: models.generator(Config(filters=2, residual_blocks=0)), 36, 20),
        (lambda: models.generator(Config(filters=3, residual_blocks=1), 1, 1), 20, 44),
        (lambda: models.discriminator(Config(filters=2)), 16, 16),
        (lambda: models.discriminator(Config(filters=2)), 37, 53),
        (lambda: models.discriminator(Config(filters=2), 5), 70, 31),
    ],
)
def test_multiplications_are_those_of_the_operations_of_the_graph(make, height, width, monkeypatch):
    monkeypatch.setattr(devices, "on_gpu", lambda: True)  # where every convolution is one operation
    network = make()
    graph = tf.function(network).get_concrete_function(tf.TensorSpec([1, height, width, network.input_shape[-1]])).graph
    counted = 0
    for operation in graph.get_operations():
        if operation.type in ("Conv2D", "Conv2DBackpropInput"):
            which = operation.outputs[0] if operation.type == "Conv2D" else operation.inputs[2]
            counted += math.prod(which.shape[1:3]) * math.prod(operation.inputs[1].shape)
    assert models.multiplications(network, height, width) == counted > 0
