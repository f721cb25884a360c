"""Layers that the settings of the networks choose."""

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.networks.blocks import BlockBuilder
from tests.networks.helpers import PAPER, network_config, noise

RESIZE = {"upsample": "resize"}
# From 2 channels to 3; with the number of weights of the kernel.
CONVOLUTIONS = [
    (lambda blocks, x, **how: blocks.convolve(x, 3, 4, **how), 4 * 4 * 2 * 3),
    (lambda blocks, x, **how: blocks.convolve_reflected(x, 3, 7, **how), 7 * 7 * 2 * 3),
    (lambda blocks, x, **how: blocks.convolve_pixels(x, 3, **how), 2 * 3),
    (lambda blocks, x, **how: blocks.upsample(x, 3, 3, **how), 3 * 3 * 2 * 3),
]


def built(append, channels=2, **settings):
    """Return the model of the layers that a method of `BlockBuilder` appends."""
    image = tf.keras.Input((None, None, channels))
    return tf.keras.Model(image, append(BlockBuilder(network_config(**settings)), image))


@pytest.mark.parametrize(
    "settings, bias",
    [
        ({}, False),
        ({"norm": "none"}, True),
        ({"norm": "batch"}, False),
        (PAPER, True),  # although an instance normalization removes it
        ({"norm": "none", **PAPER}, True),
        ({"norm": "batch", **PAPER}, False),
    ],
    ids=str,
)
def test_biases_before_a_normalization(settings, bias):
    for append, kernel in CONVOLUTIONS:
        assert built(append, **settings).count_params() == kernel + 3 * bias
        other = built(lambda blocks, x, append=append: append(blocks, x, use_bias=not bias), **settings)
        assert other.count_params() == kernel + 3 * (not bias)


@pytest.mark.parametrize("settings, side", [({}, (9, 5, 9)), (PAPER, (8, 4, 9))], ids=str)
def test_convolutions_divide_the_sides(settings, side):
    """Convolve 9 pixels: "same" padding gives ceil(9 / stride), padding of 1 pixel floor((9 + 2 - 4) / stride) + 1."""
    for append, expected in zip(
        (
            lambda blocks, x: blocks.convolve(x, 3, 4),
            lambda blocks, x: blocks.convolve(x, 3, 4, 2),
            lambda blocks, x: blocks.convolve_reflected(x, 3, 7),
        ),
        side,
    ):
        assert built(append, **settings)(noise(1, 9, 9, 2)).shape == (1, expected, expected, 3)


@pytest.mark.parametrize("size", [3, 4])
@pytest.mark.parametrize("settings", [{}, PAPER, RESIZE, {**RESIZE, **PAPER}], ids=str)
def test_upsampling_doubles_the_sides(settings, size):
    model = built(lambda blocks, x: blocks.upsample(x, 3, size, use_bias=False), **settings)
    assert model(noise(1, 5, 6, 2)).shape == (1, 10, 12, 3)
    kernel = 3 if "upsample" in settings else size
    assert model.count_params() == kernel * kernel * 2 * 3


@pytest.mark.parametrize(
    "settings, size, rows", [({}, 3, [2, 3, 4]), (PAPER, 3, [1, 2, 3]), ({}, 4, [1, 2, 3, 4]), (PAPER, 4, [1, 2, 3, 4])]
)
def test_upsampling_moves_a_pixel_as_the_reference_does(settings, size, rows):
    """Upsample one pixel: row i becomes the rows from 2 i - 1 on; with TensorFlow's padding and a 3 x 3 kernel, from 2 i on."""
    model = built(lambda blocks, x: blocks.upsample(x, 1, size, use_bias=False), 1, **settings)
    model.set_weights([np.ones((size, size, 1, 1), np.float32)])
    x = np.zeros((1, 4, 4, 1), np.float32)
    x[0, 1, 1] = 1
    y = model(x).numpy()[0, ..., 0]
    assert np.flatnonzero(y.any(axis=1)).tolist() == np.flatnonzero(y.any(axis=0)).tolist() == rows


@pytest.mark.parametrize("settings, epsilon", [({}, 1e-3), (PAPER, 1e-5)], ids=str)
def test_normalization_by_hand(settings, epsilon):
    """Normalize the values 0 and 0.02, with mean 0.01 and variance 1e-4."""
    model = built(lambda blocks, x: blocks.normalize(x), 1, norm_affine="no", **settings)
    y = model(tf.constant([[[[0.0], [0.02]]]])).numpy()
    np.testing.assert_allclose(y.ravel(), np.float64([-0.01, 0.01]) / np.sqrt(1e-4 + epsilon), rtol=1e-4)


@pytest.mark.parametrize("settings, count", [({}, 4), (PAPER, 0), ({"norm": "batch"}, 8)], ids=str)
def test_weights_of_normalizations(settings, count):
    """Count for 2 channels a scale and an offset each, and with batch normalization a mean and a variance."""
    assert built(lambda blocks, x: blocks.normalize(x), **settings).count_params() == count
