import numpy as np
import pytest
import tensorflow as tf

from cyclegan import models


def test_parameter_counts_are_those_of_the_keras_example():
    assert models.generator().count_params() == 11_383_427
    assert models.discriminator().count_params() == 2_765_633


@pytest.mark.parametrize("height, width", [(16, 16), (32, 48), (36, 20)])
def test_a_generator_keeps_the_size_and_stays_in_range(height, width):
    generator = models.generator(filters=4, residual_blocks=1)
    x = np.random.default_rng(0).uniform(-1, 1, (2, height, width, 3)).astype(np.float32)
    y = generator(x).numpy()
    assert y.shape == x.shape and y.dtype == np.float32 and np.abs(y).max() <= 1


@pytest.mark.parametrize("size, patches", [(256, 32), (64, 8), (36, 5)])
def test_a_discriminator_judges_patches(size, patches):
    discriminator = models.discriminator(filters=4)
    assert discriminator(tf.zeros([1, size, size, 3])).shape == (1, patches, patches, 1)


def test_networks_have_the_channels_asked_for():
    assert models.generator(4, 0, channels=1)(tf.zeros([1, 16, 16, 1])).shape == (1, 16, 16, 1)
    assert models.discriminator(4, channels=5)(tf.zeros([1, 16, 16, 5])).shape == (1, 2, 2, 1)


def test_kernels_start_normal():
    kernels = [w.numpy() for w in models.generator(32, 2).trainable_variables if len(w.shape) == 4]
    assert abs(np.concatenate([k.ravel() for k in kernels]).std() - 0.02) < 2e-4


def test_the_patch_of_a_discriminator_is_70_pixels_wide():
    discriminator = models.discriminator(filters=2)
    field = 1
    convolutions = [layer for layer in discriminator.layers if isinstance(layer, tf.keras.layers.Conv2D)]
    for layer in reversed(convolutions):
        field = (field - 1) * layer.strides[0] + layer.kernel_size[0]
    assert field == 70
