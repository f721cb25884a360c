"""Convolutions compared with Keras and TensorFlow; padding, upsampling, initial values, precision and dropout."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.networks import compat
from cyclegan.networks.layers import (
    FEW_CHANNELS,
    BlurDownsampling2D,
    BlurUpsampling2D,
    Convolution,
    Dropout,
    LeakyReLU,
    NearestUpsampling2D,
    ReflectionPadding2D,
    TransposedConvolution,
    kernel_initializer,
    random_stream,
)
from cyclegan.networks.normalization import make_instance_normalization
from tests.networks.helpers import assert_all_close, noise, output_and_gradients, upstream, with_random_weights

EPSILONS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # largest relative error of rounding to nearest


def built_alike(ours, theirs, shape):
    """Build two layers for inputs of a shape, and give them the same weights."""
    for layer in (ours, theirs):
        layer.build(shape)
    with_random_weights(ours, theirs)
    return ours, theirs


@pytest.mark.sampled
@pytest.mark.parametrize("filters", [3, FEW_CHANNELS])
@pytest.mark.parametrize("kernel", [1, 3, 4, 7, (3, 5), (5, 2)], ids=str)
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("batch, height, width", [(1, 12, 8), (3, 9, 8), (1, 10, 11), (3, 13, 9)])
def test_few_channels_equal_keras_except_for_rounding(filters, kernel, padding, batch, height, width):
    """Compare for sizes that split into blocks of 2 x 2 pixels, and for sizes that do not."""
    x = noise(batch, height, width, 5)
    ours, theirs = (kind(filters, kernel, padding=padding) for kind in (Convolution, tf.keras.layers.Conv2D))
    built_alike(ours, theirs, x.shape)
    assert_all_close(output_and_gradients(ours, x), output_and_gradients(theirs, x), 1e-5)


@pytest.mark.sampled
@pytest.mark.parametrize("filters, stride, accelerator", [(FEW_CHANNELS + 1, 1, False), (3, 2, False), (3, 1, True)])
def test_other_convolutions_are_bit_identical_to_keras(filters, stride, accelerator, monkeypatch):
    monkeypatch.setattr(hardware, "has_accelerator", lambda: accelerator)
    x = noise(2, 10, 9, 4)
    ours, theirs = built_alike(Convolution(filters, 3, stride), tf.keras.layers.Conv2D(filters, 3, stride), x.shape)
    for one, other in zip(output_and_gradients(ours, x), output_and_gradients(theirs, x)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.sampled
@pytest.mark.parametrize("filters", [3, FEW_CHANNELS + 1])
@pytest.mark.parametrize("stride, size", [(1, 4), (2, 4), (2, 3)])
@pytest.mark.parametrize("shape", [(2, 9, 12, 4), (None, None, None, 4)], ids=str)
def test_margin_is_zero_padding(filters, stride, size, shape):
    x = noise(2, 9, 12, 4)
    ours, theirs = Convolution(filters, size, stride, margin=1), tf.keras.layers.Conv2D(filters, size, stride)
    built_alike(ours, theirs, (None, None, None, 4))
    image = tf.keras.Input(x.shape[1:])
    padded = tf.keras.Model(image, theirs(tf.keras.layers.ZeroPadding2D(1)(image)))
    assert_all_close(output_and_gradients(ours, x, shape), output_and_gradients(padded, x), 1e-5)
    assert tuple(ours.compute_output_shape(x.shape)) == tuple(ours(x).shape)
    assert tuple(ours.compute_output_shape((None, None, 12, 4)))[:2] == (None, None)


@pytest.mark.sampled
@pytest.mark.parametrize("shape", [(None, None, None, 4), (2, None, 10, 4), (None, 12, 10, 4)], ids=str)
@pytest.mark.parametrize("kernel", [2, 3, 4, 7])
@pytest.mark.parametrize("kind, stride", [("Conv2DTranspose", 2), ("Conv2D", 1), ("Conv2D", 2)])
def test_unknown_sizes_equal_keras(kind, stride, shape, kernel):
    settings = {"filters": 3, "kernel_size": kernel, "strides": stride, "padding": "same"}
    ours = (Convolution if kind == "Conv2D" else TransposedConvolution)(**settings)
    theirs = getattr(tf.keras.layers, kind)(**settings)
    built_alike(ours, theirs, (None, None, None, 4))
    x = noise(2, 12, 10, 4)
    assert_all_close(output_and_gradients(ours, x, shape), output_and_gradients(theirs, x), 1e-5)


@pytest.mark.parametrize(
    "kind, settings",
    [(Convolution, {}), (Convolution, {"strides": 2, "margin": 1}), (TransposedConvolution, {"strides": 2})],
)
def test_a_cancelled_bias_changes_no_output_and_no_gradient(kind, settings):
    x, norm, found = noise(2, 6, 6, 4), make_instance_normalization(), []
    norm.build((None, None, None, FEW_CHANNELS + 1))
    for trains_bias in (True, False):
        layer = kind(FEW_CHANNELS + 1, 3, trains_bias=trains_bias, **settings)
        layer.build(x.shape)
        layer.bias.assign(5 + noise(layer.filters))
        layer.kernel.assign(noise(*layer.kernel.shape))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = norm(layer(x, training=True), training=True)
        found.append([y, *tape.gradient(y, [x, layer.kernel, *norm.trainable_variables], upstream(y))])
        assert (layer(x, training=True).numpy().mean() > 2.5) == trains_bias
    assert_all_close(*([value.numpy() for value in values] for values in found), 1e-4)


def convolutions_in(precision):
    """Return (layer, operation of TensorFlow) pairs: to few and to many channels, down and up."""
    margin, plain = [[0, 0], [1, 1], [1, 1], [0, 0]], {"use_bias": False}
    with compat.precision_policy(precision):
        return (
            (Convolution(3, 3, **plain), lambda x, k: tf.nn.conv2d(x, k, 1, "VALID")),
            (Convolution(12, 4, 2, "same", **plain), lambda x, k: tf.nn.conv2d(x, k, 2, "SAME")),
            (Convolution(12, 4, 2, margin=1, **plain), lambda x, k: tf.nn.conv2d(tf.pad(x, margin), k, 2, "VALID")),
            (
                TransposedConvolution(6, 3, 2, "same", **plain),
                lambda x, k: tf.nn.conv2d_transpose(x, k, [2, 2 * x.shape[1], 2 * x.shape[2], 6], 2, "SAME"),
            ),
        )


@pytest.mark.sampled
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_lower_precision_equals_tensorflow_to_its_rounding(precision, native, monkeypatch):
    """Without instructions, only inputs and outputs are rounded; with them, sums of up to 320 products."""
    monkeypatch.setattr(hardware, "has_instructions_for", lambda name: native or name == "float32")
    inside = precision if native else "float32"
    for layer, operation in convolutions_in(precision):
        x = tf.cast(noise(2, 8, 10, 5), precision)
        layer.build(x.shape)
        with_random_weights(layer)
        kernel = tf.cast(layer.kernel, precision)
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            y = tf.cast(operation(tf.cast(x, inside), tf.cast(kernel, inside)), precision)
        theirs = [tf.cast(each, tf.float32).numpy() for each in (y, *tape.gradient(y, [x, kernel], upstream(y)))]
        assert layer(x).dtype == precision and layer.kernel.dtype == "float32"
        assert_all_close(output_and_gradients(layer, x), theirs, (16 if native else 2) * EPSILONS[precision])


@pytest.mark.sampled
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("filters", [3, 12])
def test_bias_gradient_is_the_sum_over_all_pixels(precision, filters):
    with compat.precision_policy(precision):
        layer = Convolution(filters, 1)
    x = tf.zeros([1, 128, 128, 2], precision)
    layer.build(x.shape)
    layer.bias.assign(tf.range(float(filters)))
    with tf.GradientTape() as tape:
        y = layer(x)
    gradient = tape.gradient(y, layer.bias, tf.fill(y.shape, tf.constant(0.5, precision)))
    assert y.dtype == precision and gradient.dtype == "float32"
    assert gradient.numpy() == pytest.approx([0.5 * 128**2] * filters, rel=2 * EPSILONS[precision])


def test_leaky_relu_padding_and_upsampling_by_hand():
    assert LeakyReLU()(tf.constant([-5.0, 0.0, 2.0])).numpy() == pytest.approx([-1.0, 0.0, 2.0])
    x = noise(2, 5, 4, 3)
    mirrored = np.pad(x, ((0, 0), (3, 3), (3, 3), (0, 0)), "reflect")
    np.testing.assert_array_equal(ReflectionPadding2D(3)(x).numpy(), mirrored)
    y, dx = output_and_gradients(NearestUpsampling2D(), x)
    np.testing.assert_array_equal(y, x.numpy().repeat(2, axis=1).repeat(2, axis=2))
    np.testing.assert_allclose(dx, upstream(y).numpy().reshape(2, 5, 2, 4, 2, 3).sum(axis=(2, 4)), atol=1e-6)


def blurred_by_hand(x):
    """Return features [N, H, W, C] halved and doubled as the reference of CUT defines it."""
    binomial, wide = (np.outer(row, row) / np.sum(row) ** 2 for row in ([1, 2, 1], [1, 3, 3, 1]))
    batch, height, width, channels = x.shape
    mirrored, repeated = (np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode) for mode in ("reflect", "edge"))
    halved = np.zeros((batch, (height + 1) // 2, (width + 1) // 2, channels))
    for i, j in np.ndindex(halved.shape[1:3]):
        halved[:, i, j] = np.tensordot(mirrored[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3], binomial, ((1, 2), (0, 1)))
    doubled = np.zeros((batch, 2 * height + 6, 2 * width + 6, channels))
    for i, j in np.ndindex(repeated.shape[1:3]):
        doubled[:, 2 * i : 2 * i + 4, 2 * j : 2 * j + 4] += 4 * np.einsum("nc,ij->nijc", repeated[:, i, j], wide)
    return halved, doubled[:, 3:-3, 3:-3]


@pytest.mark.parametrize("height, width", [(6, 8), (7, 5)])
def test_blurs_equal_their_definition(height, width):
    """The gradient of a linear layer is the transposed operation."""
    x = noise(2, height, width, 3)
    for layer, expected in zip((BlurDownsampling2D(), BlurUpsampling2D()), blurred_by_hand(x.numpy())):
        y, dx = output_and_gradients(layer, x, (None, None, None, 3))
        np.testing.assert_allclose(y, expected, atol=1e-6)
        assert np.sum(dx * x) == pytest.approx(np.sum(upstream(y) * y), rel=1e-5)
        with compat.precision_policy("bfloat16"):
            half = type(layer)()(x)
        assert half.dtype == "bfloat16"
        np.testing.assert_allclose(tf.cast(half, tf.float32), expected, atol=0.05)


@pytest.mark.parametrize(
    "init, scale",
    [("normal", 0.02), ("xavier", 0.02 * math.sqrt(2 / (9 * 64 + 9 * 32))), ("kaiming", math.sqrt(2 / (9 * 64)))],
)
def test_initial_spread_equals_the_reference(init, scale):
    tf.keras.utils.set_random_seed(0)  # other seeds may have a mean further from 0
    kernel = np.asarray(kernel_initializer(init)((3, 3, 64, 32)))
    assert kernel.std() == pytest.approx(scale, rel=0.02) and abs(kernel.mean()) < 0.02 * scale
    assert np.abs(kernel).max() > 3 * scale  # not truncated


def test_orthogonal_kernels_have_orthogonal_columns():
    columns = np.asarray(kernel_initializer("orthogonal")((3, 3, 4, 8))).reshape(36, 8)
    np.testing.assert_allclose(columns.T @ columns, 0.02**2 * np.eye(8), atol=1e-8)


def dropped(x, seed=(1, 2), rows=6, start=0, count=6, rate=0.4, calls=1):
    """Return the output of the last of several calls in one context."""
    with random_stream(tf.cast(seed, tf.int64), rows, start, count):
        for _ in range(calls):
            y = Dropout(rate)(x, training=True)
    return y


def test_dropout_drops_its_share_and_keeps_the_mean():
    y = dropped(tf.fill([6, 40, 30, 5], 3.0)).numpy()
    assert set(np.unique(y)) == {0.0, np.float32(3) / np.float32(0.6)}
    assert np.mean(y == 0) == pytest.approx(0.4, abs=0.01)
    assert np.mean((y[0] == 0) & (y[1] == 0)) == pytest.approx(0.4**2, abs=0.02)  # independently in each sample


def test_numbers_depend_on_seed_and_call_only():
    x = tf.ones([6, 4, 4, 3])
    first = dropped(x).numpy()
    np.testing.assert_array_equal(first, dropped(x))
    for other in (dropped(x, seed=(1, 3)), dropped(x, seed=(2, 2)), dropped(x, calls=2)):
        assert 0.2 < np.mean((first == 0) != (other == 0)) < 0.8
    np.testing.assert_array_equal(first, tf.function(lambda seed: dropped(x, seed))(tf.constant([1, 2])))


@pytest.mark.parametrize("inputs", [1, 2], ids=["one input", "two inputs as one batch"])
def test_replica_gets_its_share_of_the_global_batch(inputs):
    x = tf.ones([6 * inputs, 3, 5, 4])
    whole = dropped(x).numpy().reshape(inputs, 6, 3, 5, 4)
    for count in (1, 2, 3):
        for start in range(0, 6, count):
            part = dropped(x[: count * inputs], start=tf.constant(start), count=count).numpy()
            np.testing.assert_array_equal(part.reshape(inputs, count, 3, 5, 4), whole[:, start : start + count])
    halves = whole.reshape(-1, 3 * 5 * 4)
    assert len(np.unique(halves, axis=0)) == len(halves)  # all samples and inputs differ


def test_training_needs_a_stream_in_the_same_thread():
    layer, x = Dropout(0.5), tf.ones([2, 3, 3, 1])
    np.testing.assert_array_equal(layer(x), x)
    with random_stream([1, 2], 2, 0, 2):
        with random_stream([3, 4], 2, 0, 2):
            layer(x, training=True)
        layer(x, training=True)  # the outer stream is active again
        with ThreadPoolExecutor() as pool, pytest.raises(RuntimeError, match="outside of random_stream"):
            pool.submit(layer, x, training=True).result()
    with pytest.raises(RuntimeError, match="outside of random_stream"):
        layer(x, training=True)
