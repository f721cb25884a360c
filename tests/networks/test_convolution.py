import numpy as np
import pytest
import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.networks import convolution
from cyclegan.networks.convolution import FEW_CHANNELS, Convolution
from cyclegan.networks.instance_normalization import make_instance_normalization
from cyclegan.networks.transposed_convolution import TransposedConvolution
from tests.networks.helpers import assert_all_close, noise, output_and_gradients, upstream, with_random_weights


@pytest.mark.sampled
@pytest.mark.parametrize("filters", [3, FEW_CHANNELS])
@pytest.mark.parametrize("kernel", [1, 3, 4, 7, (3, 5), (5, 2)], ids=str)
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("batch, height, width", [(1, 12, 8), (3, 9, 8), (1, 10, 11), (3, 13, 9)])
def test_few_channels_equal_keras_except_for_rounding(filters, kernel, padding, batch, height, width):
    """Compare for sizes that split into blocks of 2 x 2 pixels, and for sizes that do not."""
    ours = Convolution(filters, kernel, padding=padding)
    theirs = tf.keras.layers.Conv2D(filters, kernel, padding=padding)
    x = noise(batch, height, width, 5)
    for layer in (ours, theirs):
        layer.build(x.shape)
    with_random_weights(ours, theirs)
    assert_all_close(output_and_gradients(ours, x), output_and_gradients(theirs, x), 1e-5)


@pytest.mark.sampled
@pytest.mark.parametrize("filters", [3, FEW_CHANNELS + 1])
@pytest.mark.parametrize("stride, size", [(1, 4), (2, 4), (2, 3)])
@pytest.mark.parametrize("shape", [(2, 9, 12, 4), (None, None, None, 4)], ids=str)
def test_margin_is_zero_padding(filters, stride, size, shape):
    ours = Convolution(filters, size, stride, margin=1)
    theirs = tf.keras.layers.Conv2D(filters, size, stride)
    x = noise(2, 9, 12, 4)
    for layer in (ours, theirs):
        layer.build((None, None, None, 4))
    with_random_weights(ours, theirs)
    image = tf.keras.Input(x.shape[1:])
    padded = tf.keras.Model(image, theirs(tf.keras.layers.ZeroPadding2D(1)(image)))
    assert_all_close(output_and_gradients(ours, x, shape), output_and_gradients(padded, x), 1e-5)
    assert tuple(ours.compute_output_shape(x.shape)) == tuple(ours(x).shape)
    assert tuple(ours.compute_output_shape((None, None, 12, 4)))[:2] == (None, None)


@pytest.mark.parametrize(
    "kind, settings",
    [(Convolution, {}), (Convolution, {"strides": 2, "margin": 1}), (TransposedConvolution, {"strides": 2})],
)
def test_a_cancelled_bias_changes_no_output_and_no_gradient(kind, settings):
    x, norm, found = noise(2, 6, 6, 4), make_instance_normalization(), []
    norm.build((None, None, None, FEW_CHANNELS + 1))
    for trains_bias in (True, False):
        layer = kind(FEW_CHANNELS + 1, 3, use_bias=True, trains_bias=trains_bias, **settings)
        layer.build(x.shape)
        layer.bias.assign(5 + noise(layer.filters))
        layer.kernel.assign(noise(*layer.kernel.shape))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = norm(layer(x, training=True), training=True)
        found.append([y, *tape.gradient(y, [x, layer.kernel, *norm.trainable_variables], upstream(y))])
        assert (layer(x, training=True).numpy().mean() > 2.5) == trains_bias
    assert_all_close(*([value.numpy() for value in values] for values in found), 1e-4)


@pytest.mark.sampled
@pytest.mark.parametrize("shape", [(None, None, None, 4), (2, None, 10, 4), (None, 12, 10, 4)], ids=str)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    "ours, theirs", [(Convolution, tf.keras.layers.Conv2D), (TransposedConvolution, tf.keras.layers.Conv2DTranspose)]
)
def test_unknown_sizes_equal_keras(ours, theirs, stride, shape):
    settings = {"filters": 3, "kernel_size": 3, "strides": stride, "padding": "same", "use_bias": False}
    ours, theirs = ours(**settings), theirs(**settings)
    for layer in (ours, theirs):
        layer.build((None, None, None, 4))
    with_random_weights(ours, theirs)
    x = noise(2, 12, 10, 4)
    assert_all_close(output_and_gradients(ours, x, shape), output_and_gradients(theirs, x), 1e-5)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "settings",
    [
        {"filters": FEW_CHANNELS + 1},
        {"filters": 3, "strides": 2},
        {"filters": 3, "strides": (1, 2), "padding": "same"},
        {"filters": 3, "dilation_rate": 2},
        {"filters": 3, "dilation_rate": (2, 1), "padding": "same"},
    ],
    ids=str,
)
def test_other_settings_are_bit_identical_to_keras(settings):
    ours, theirs = Convolution(kernel_size=3, **settings), tf.keras.layers.Conv2D(kernel_size=3, **settings)
    x = noise(2, 10, 9, 4)
    for layer in (ours, theirs):
        layer.build(x.shape)
    with_random_weights(ours, theirs)
    for one, other in zip(output_and_gradients(ours, x), output_and_gradients(theirs, x)):
        np.testing.assert_array_equal(one, other)


def test_few_channels_on_a_gpu_are_bit_identical_to_keras(monkeypatch):
    monkeypatch.setattr(hardware, "has_accelerator", lambda: True)
    monkeypatch.setattr(convolution, "convolve_to_few_channels", None)  # must not be called
    ours, theirs = Convolution(3, 7), tf.keras.layers.Conv2D(3, 7)
    x = noise(1, 10, 10, 4)
    for layer in (ours, theirs):
        layer.build(x.shape)
    with_random_weights(ours, theirs)
    np.testing.assert_array_equal(ours(x).numpy(), theirs(x).numpy())
