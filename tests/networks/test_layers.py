import math
import threading

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.networks import batch_normalization, compat, instance_normalization
from cyclegan.networks import convolution as convolution_module
from cyclegan.networks.activation import LeakyReLU
from cyclegan.networks.convolution import (
    FEW_CHANNELS,
    Convolution,
    make_convolution,
)
from cyclegan.networks.dropout import Dropout, random_stream
from cyclegan.networks.few_channels import convolve_to_few_channels
from cyclegan.networks.padding import ReflectionPadding2D
from cyclegan.networks.transposed_convolution import TransposedConvolution, make_transposed_convolution
from cyclegan.networks.upsampling import NearestUpsampling2D


def oracle(x, gamma, beta, epsilon=1e-3):
    """Instance normalization in float64."""
    x = x.astype(np.float64)
    mean, variance = x.mean(axis=(1, 2), keepdims=True), x.var(axis=(1, 2), keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


@pytest.fixture(params=["on GPUs", "on a CPU", "on a CPU, by one operation"])
def normalization(request, monkeypatch):
    """f(*arguments) -> a layer for instance normalization, and whether to call it as in training."""
    if request.param == "on a CPU, by one operation":
        monkeypatch.setattr(instance_normalization, "LARGE_SAMPLE", 1)
    with monkeypatch.context() as patch:
        patch.setattr(hardware, "accelerated", lambda: request.param == "on GPUs")
        yield lambda *arguments: (
            instance_normalization.make_instance_normalization(*arguments),
            instance_normalization.LARGE_SAMPLE == 1,
        )


@pytest.mark.parametrize("mean, spread", [(0, 1), (100, 0.5), (-30, 20), (5, 0)])
def test_instance_normalization_against_numpy(normalization, mean, spread):
    rng = np.random.default_rng(0)
    x = (mean + spread * rng.normal(size=(3, 8, 6, 5))).astype(np.float32)
    layer, training = normalization()
    layer.build(x.shape)
    gamma, beta = rng.normal(size=5), rng.normal(size=5)
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
    tolerance = 2e-5 * max(1, abs(mean) / max(spread, 1))
    np.testing.assert_allclose(layer(x, training=training).numpy(), oracle(x, gamma, beta), atol=tolerance)


@pytest.mark.parametrize("precision, tolerance", [("bfloat16", 2**-7), ("float16", 2**-10)])
def test_instance_normalization_keeps_float32_statistics_whatever_comes_in(normalization, precision, tolerance):
    x = tf.cast(40 + np.random.default_rng(0).normal(size=(2, 16, 16, 2)), precision)
    layer, training = normalization()
    layer.build(x.shape)
    layer.gamma.assign([1.0, 1.0])
    got = layer(x, training=training)
    expected = oracle(tf.cast(x, tf.float32).numpy(), 1, 0)
    if got.dtype != "float32":  # as TensorFlow Addons gives it back
        assert got.dtype == precision
        expected = tf.cast(expected, precision)
    got, expected = (tf.cast(values, tf.float32).numpy() for values in (got, expected))
    np.testing.assert_allclose(got, expected, atol=1e-4, rtol=tolerance)


def test_instance_normalization_starts_as_the_keras_example_does(normalization):
    layer, _ = normalization()
    layer.build((None, None, None, 4096))
    assert abs(float(tf.math.reduce_std(layer.gamma)) - 0.02) < 2e-3
    assert abs(float(tf.reduce_mean(layer.gamma))) < 2e-3
    assert not np.any(layer.beta.numpy())


@pytest.mark.parametrize("affine", [True, False])
def test_all_instance_normalizations_have_the_same_gradients(normalization, affine):
    x = tf.constant(np.random.default_rng(0).normal(size=(2, 8, 8, 3)), tf.float32)
    others = instance_normalization.make_instance_normalization(affine=affine, second_derivatives=True), True
    gradients = []
    for layer, training in (normalization(instance_normalization.EPSILON, affine), others):
        layer.build(x.shape)
        if affine:
            layer.gamma.assign([0.5, 1, 2])
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(3 * layer(x, training=training)))
        gradients.append(
            [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, [x, *layer.trainable_variables])]
        )
    assert len(gradients[0]) == (3 if affine else 1)
    for one, other in zip(*gradients):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize(
    "size, arguments, operations",
    [
        (256, {}, 2),
        (128, {}, 0),  # small samples
        (256, {"second_derivatives": True}, 0),
        (None, {}, 0),
    ],
)
def test_large_samples_are_normalized_by_one_operation_each_in_training(size, arguments, operations):
    layer = instance_normalization.make_instance_normalization(**arguments)
    layer.build((None, None, None, 1))

    def count(training):
        function = tf.function(lambda x: layer(x, training=training))
        graph = function.get_concrete_function(tf.TensorSpec([2, size, size, 1])).graph
        return [node.type for node in graph.get_operations()].count("FusedBatchNormV3")

    assert count(True) == operations and count(False) == 0


def test_reflection_padding_is_numpys():
    x = np.random.default_rng(0).normal(size=(2, 5, 4, 3)).astype(np.float32)
    np.testing.assert_array_equal(
        ReflectionPadding2D(3)(x).numpy(), np.pad(x, ((0, 0), (3, 3), (3, 3), (0, 0)), "reflect")
    )


def test_leaky_relu_by_hand():
    assert LeakyReLU()(tf.constant([-5.0, 0.0, 2.0])).numpy().tolist() == [-1.0, 0.0, 2.0]


def test_stack_says_what_a_checkpoint_depends_on():
    assert compat.stack()["keras"] == (3 if tf.__version__ >= "2.16" else 2)


def noise(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float32)


def with_random_weights(*alike):
    """Gives built layers the same weights."""
    for number, same in enumerate(zip(*(layer.trainable_variables for layer in alike))):
        for weight in same:
            weight.assign(0.3 * noise(*weight.shape, seed=number))


def upstream(y):
    """A gradient for y, always the same."""
    return tf.cast(tf.random.stateless_normal(tf.shape(y), seed=[1, 2]), y.dtype)


def output_and_gradients(layer, x, compiled_for=None):
    """What a layer makes of x, and what comes back from noise there to x and to the layer's variables, as float32 arrays.

    Args:
        compiled_for: shape of x as the tracing sees it; `None` to call the layer eagerly.
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
    """The tolerance is relative to the largest value of each array."""
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())


@pytest.mark.parametrize("filters", [3, FEW_CHANNELS])
@pytest.mark.parametrize("kernel", [1, 3, 4, 7, (3, 5), (5, 2)], ids=str)
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("batch, height, width", [(1, 12, 8), (3, 9, 8), (1, 10, 11), (3, 13, 9)])
def test_a_convolution_to_few_channels_is_keras_s_but_for_rounding(filters, kernel, padding, batch, height, width):
    """Outputs and all gradients. The sizes cover blocks of 2 x 2 pixels and what can't be split into such."""
    ours = Convolution(filters, kernel, padding=padding)
    theirs = tf.keras.layers.Conv2D(filters, kernel, padding=padding)
    x = noise(batch, height, width, 5)
    for layer in (ours, theirs):
        layer.build(x.shape)
    with_random_weights(ours, theirs)
    assert_all_close(output_and_gradients(ours, x), output_and_gradients(theirs, x), 1e-5)


@pytest.mark.parametrize("shape", [(None, None, None, 4), (2, None, 10, 4), (None, 12, 10, 4)], ids=str)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    "ours, theirs", [(Convolution, tf.keras.layers.Conv2D), (TransposedConvolution, tf.keras.layers.Conv2DTranspose)]
)
def test_convolutions_are_keras_s_where_sizes_are_not_known_when_traced(ours, theirs, stride, shape):
    settings = {"filters": 3, "kernel_size": 3, "strides": stride, "padding": "same", "use_bias": False}
    ours, theirs = ours(**settings), theirs(**settings)
    for layer in (ours, theirs):
        layer.build((None, None, None, 4))
    with_random_weights(ours, theirs)
    x = noise(2, 12, 10, 4)
    assert_all_close(output_and_gradients(ours, x, shape), output_and_gradients(theirs, x), 1e-5)


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
def test_other_convolutions_are_exactly_keras_s(settings):
    ours, theirs = Convolution(kernel_size=3, **settings), tf.keras.layers.Conv2D(kernel_size=3, **settings)
    x = noise(2, 10, 9, 4)
    for layer in (ours, theirs):
        layer.build(x.shape)
    with_random_weights(ours, theirs)
    for one, other in zip(output_and_gradients(ours, x), output_and_gradients(theirs, x)):
        np.testing.assert_array_equal(one, other)


def test_on_a_gpu_convolutions_to_few_channels_are_exactly_keras_s(monkeypatch):
    monkeypatch.setattr(hardware, "accelerated", lambda: True)
    monkeypatch.setattr(convolution_module, "convolve_to_few_channels", None)  # not to be called
    ours, theirs = Convolution(3, 7), tf.keras.layers.Conv2D(3, 7)
    x = noise(1, 10, 10, 4)
    for layer in (ours, theirs):
        layer.build(x.shape)
    with_random_weights(ours, theirs)
    np.testing.assert_array_equal(ours(x).numpy(), theirs(x).numpy())


@pytest.mark.parametrize("kernel, height, width", [((3, 3), 6, 8), ((3, 5), 5, 8), ((2, 3), 5, 6), ((1, 1), 2, 4)])
def test_convolve_to_few_and_its_gradients_against_loops_in_float64(kernel, height, width):
    rng = np.random.default_rng(0)
    tall, wide = kernel
    x, weight = rng.normal(size=(2, height, width, 3)), rng.normal(size=(tall, wide, 3, 2))
    y = np.zeros((2, height - tall + 1, width - wide + 1, 2))
    dy = rng.normal(size=y.shape)
    dx, dweight = np.zeros(x.shape), np.zeros(weight.shape)
    for n, i, j, down, right in np.ndindex(*y.shape[:3], tall, wide):
        y[n, i, j] += x[n, i + down, j + right] @ weight[down, right]
        dx[n, i + down, j + right] += weight[down, right] @ dy[n, i, j]
        dweight[down, right] += np.outer(x[n, i + down, j + right], dy[n, i, j])
    x, weight, back = (tf.constant(array, tf.float32) for array in (x, weight, dy))
    with tf.GradientTape() as tape:
        tape.watch([x, weight])
        got = convolve_to_few_channels(x, weight)
    gradients = tape.gradient(got, [x, weight], back)
    assert_all_close([t.numpy() for t in (got, *gradients)], [y, dx, dweight], 1e-6)


@pytest.mark.parametrize("kernel", [2, 3, 4, 7])
@pytest.mark.parametrize("height, width", [(4, 6), (5, 3), (1, 1)])
def test_an_upsampling_convolution_is_keras_s(kernel, height, width):
    ours = make_transposed_convolution(6, kernel)
    theirs = tf.keras.layers.Conv2DTranspose(6, kernel, 2, "same", use_bias=False)
    x = noise(2, height, width, 4)
    for layer in (ours, theirs):
        layer.build(x.shape)
    with_random_weights(ours, theirs)
    assert ours(x).shape == (2, 2 * height, 2 * width, 6)
    assert_all_close(output_and_gradients(ours, x), output_and_gradients(theirs, x), 1e-6)


EPSILONS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # the largest relative error of rounding to nearest


def convolutions_in(precision):
    """(layer that computes in a precision, TensorFlow's operation for it): to few and to many channels, down and up."""
    with compat.precision_policy(precision):
        return (
            (make_convolution(3, 3, padding="valid"), lambda x, k: tf.nn.conv2d(x, k, 1, "VALID")),
            (make_convolution(12, 3, padding="valid"), lambda x, k: tf.nn.conv2d(x, k, 1, "VALID")),
            (make_convolution(12, 4, stride=2), lambda x, k: tf.nn.conv2d(x, k, 2, "SAME")),
            (
                make_transposed_convolution(6, 3),
                lambda x, k: tf.nn.conv2d_transpose(x, k, [2, 2 * x.shape[1], 2 * x.shape[2], 6], 2, "SAME"),
            ),
        )


def operation_and_gradients(operation, x, kernel):
    """As `output_and_gradients`, of an operation on x and a kernel."""
    with tf.GradientTape() as tape:
        tape.watch([x, kernel])
        y = operation(x, kernel)
    return [tf.cast(value, tf.float32).numpy() for value in (y, *tape.gradient(y, [x, kernel], upstream(y)))]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_convolutions_in_lower_precision_are_tensorflow_s_to_its_rounding(precision, native, monkeypatch):
    """TensorFlow adds some of the up to 320 products of a sum in that precision, hence the factor of 16."""
    monkeypatch.setattr(hardware, "is_native", lambda name: native or name == "float32")
    for layer, operation in convolutions_in(precision):
        x = tf.cast(noise(2, 8, 10, 5), precision)
        layer.build(x.shape)
        with_random_weights(layer)
        theirs = operation_and_gradients(operation, x, tf.cast(layer.kernel, precision))
        assert layer(x).dtype == precision and layer.kernel.dtype == "float32"
        assert_all_close(output_and_gradients(layer, x), theirs, 16 * EPSILONS[precision])


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_without_instructions_for_a_precision_only_what_goes_in_and_comes_out_is_rounded(precision, monkeypatch):
    monkeypatch.setattr(hardware, "is_native", lambda name: name == "float32")
    for layer, operation in convolutions_in(precision):
        x = tf.cast(noise(2, 8, 10, 5), precision)
        layer.build(x.shape)
        with_random_weights(layer)

        def exact(x, kernel, operation=operation):  # upstream is rounded as y is
            return tf.cast(operation(tf.cast(x, tf.float32), tf.cast(kernel, tf.float32)), x.dtype)

        expected = operation_and_gradients(exact, x, tf.cast(layer.kernel, precision))
        for ours, same in zip(output_and_gradients(layer, x), expected):
            np.testing.assert_allclose(ours, same, rtol=2 * EPSILONS[precision], atol=1e-4)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("filters", [3, 12])
def test_the_gradient_of_a_bias_is_the_sum_over_all_pixels_in_any_precision(precision, filters):
    with compat.precision_policy(precision):
        layer = make_convolution(filters, 1, use_bias=True)
    x = tf.zeros([1, 128, 128, 2], precision)
    layer.build(x.shape)
    layer.bias.assign(tf.range(float(filters)))
    with tf.GradientTape() as tape:
        y = layer(x)
    gradient = tape.gradient(y, layer.bias, tf.fill(y.shape, tf.constant(0.5, precision)))
    assert y.dtype == precision and gradient.dtype == "float32"
    assert gradient.numpy() == pytest.approx([0.5 * 128**2] * filters, rel=2 * EPSILONS[precision])
    np.testing.assert_array_equal(tf.cast(y[0, 0, 0], tf.float32).numpy(), np.arange(filters))


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_layers_compute_in_the_precision_asked_for_with_float32_variables(precision):
    with compat.precision_policy(precision):
        layer = make_convolution(3, 3, use_bias=True)
        pad, relu, norm = ReflectionPadding2D(1), LeakyReLU(), instance_normalization.make_instance_normalization()
    after = make_convolution(3, 3)
    x = noise(1, 8, 8, 3)
    assert layer(x).dtype == pad(x).dtype == relu(x).dtype == precision
    assert norm(layer(x)).dtype == precision and after(x).dtype == "float32"
    assert {tf.as_dtype(v.dtype).name for v in layer.variables + norm.variables + after.variables} == {"float32"}


def test_the_precision_is_as_before_after_an_exception():
    before = tf.keras.mixed_precision.global_policy().name
    with pytest.raises(RuntimeError), compat.precision_policy("bfloat16"):
        assert tf.keras.mixed_precision.global_policy().name == "mixed_bfloat16"
        with compat.precision_policy("float32"):
            assert tf.keras.mixed_precision.global_policy().name == "float32"
        assert tf.keras.mixed_precision.global_policy().name == "mixed_bfloat16"
        raise RuntimeError
    assert tf.keras.mixed_precision.global_policy().name == before == "float32"


def test_instance_normalization_without_scales_and_offsets(normalization):
    x = (3 + np.random.default_rng(0).normal(size=(2, 5, 4, 3))).astype(np.float32)
    layer, training = normalization(1e-5, False)
    np.testing.assert_allclose(layer(x, training=training).numpy(), oracle(x, 1, 0, 1e-5), atol=2e-5)
    assert not layer.weights


def test_the_transposed_convolution_of_pytorch_against_a_loop():
    """ConvTranspose2d(kernel 3, stride 2, padding 1, output padding 1): each pixel adds its share of the kernel from 2 i - 1 on."""
    layer = make_transposed_convolution(4, 3, padding="valid", use_bias=True)
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 6)).astype(np.float32)
    layer.build(x.shape)
    with_random_weights(layer)
    kernel, bias = layer.kernel.numpy(), layer.bias.numpy()
    expected = np.zeros((2, 6, 10, 4)) + bias
    for i, j, down, right in np.ndindex(3, 5, 3, 3):
        row, column = 2 * i - 1 + down, 2 * j - 1 + right
        if 0 <= row < 6 and 0 <= column < 10:
            expected[:, row, column] += x[:, i, j] @ kernel[down, right].T
    np.testing.assert_allclose(layer(x).numpy(), expected, atol=1e-5)
    assert tuple(layer.compute_output_shape((2, 3, None, 6))) == (2, 6, None, 4)
    free = tf.function(layer, input_signature=[tf.TensorSpec([None, None, None, 6])])
    np.testing.assert_allclose(free(x).numpy(), expected, atol=1e-5)


def test_doubling_repeats_each_pixel_and_sums_what_comes_back():
    x = noise(2, 3, 4, 5)
    y, dx = output_and_gradients(NearestUpsampling2D(), x)
    np.testing.assert_array_equal(y, x.numpy().repeat(2, axis=1).repeat(2, axis=2))
    np.testing.assert_allclose(dx, upstream(y).numpy().reshape(2, 3, 2, 4, 2, 5).sum(axis=(2, 4)), atol=1e-6)


@pytest.mark.parametrize(
    "init, scale",
    [
        ("normal", 0.02),
        ("xavier", 0.02 * math.sqrt(2 / (9 * 64 + 9 * 32))),
        ("kaiming", math.sqrt(2 / (9 * 64))),
    ],
)
def test_kernels_start_with_the_spread_of_the_reference(init, scale):
    layer = make_convolution(32, 3, init=init)
    layer.build((None, None, None, 64))
    kernel = layer.kernel.numpy()
    assert kernel.std() == pytest.approx(scale, rel=0.02) and abs(kernel.mean()) < 0.02 * scale
    assert np.abs(kernel).max() > 3 * scale  # not truncated


def test_orthogonal_kernels():
    layer = make_convolution(8, 3, init="orthogonal")
    layer.build((None, None, None, 4))
    columns = layer.kernel.numpy().reshape(36, 8)
    np.testing.assert_allclose(columns.T @ columns, 0.02**2 * np.eye(8), atol=1e-8)


def batch_oracle(x, gamma, beta):
    """Batch normalization in float64."""
    x = x.astype(np.float64)
    mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
    return (x - mean) / np.sqrt(variance + 1e-5) * gamma + beta, mean, variance


def test_batch_normalization_against_numpy():
    x = (5 + 3 * np.random.default_rng(0).normal(size=(4, 3, 2, 6))).astype(np.float32)
    layer = batch_normalization.BatchNormalization()
    layer.build(x.shape)
    gamma, beta = (np.random.default_rng(1).normal(size=(2, 6))).astype(np.float32)
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
    expected, mean, variance = batch_oracle(x, gamma, beta)
    np.testing.assert_allclose(layer(x).numpy(), x / np.sqrt(1 + 1e-5) * gamma + beta, atol=1e-5)  # nothing seen yet
    np.testing.assert_allclose(layer(x, training=True).numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(layer.moving_mean.numpy(), 0.1 * mean, atol=1e-6)
    np.testing.assert_allclose(layer.moving_variance.numpy(), 0.9 + 0.1 * variance * 24 / 23, rtol=1e-5)
    for _ in range(200):
        layer(x, training=True)
    unbiased = np.sqrt((variance * 24 / 23 + 1e-5) / (variance + 1e-5))
    np.testing.assert_allclose(layer(x).numpy(), (expected - beta) / unbiased + beta, atol=1e-4)
    assert len(layer.trainable_variables) == len(layer.non_trainable_variables) == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30], ids=str)
def test_what_is_not_finite_does_not_get_into_the_running_statistics(bad):
    """The variance of 1e30 is more than float32 can hold."""
    layer = batch_normalization.BatchNormalization()
    x = np.ones((2, 3, 3, 2), np.float32)
    layer(x, training=True)
    before = [w.numpy() for w in layer.non_trainable_variables]
    x[0, 0, 0, 1] = bad
    layer(x, training=True)
    for one, other in zip(before, layer.non_trainable_variables):
        np.testing.assert_array_equal(one, other.numpy())


def dropped(x, seed=(1, 2), rows=6, start=0, count=6, rate=0.4, calls=1):
    """What the last of several calls in one context makes of x."""
    with random_stream(tf.constant(seed, tf.int64), rows, start, count):
        for _ in range(calls):
            y = Dropout(rate)(x, training=True)
    return y.numpy()


def test_dropout_drops_its_share_and_keeps_the_mean():
    y = dropped(tf.fill([6, 40, 30, 5], 3.0))
    assert set(np.unique(y)) == {0.0, np.float32(3) / np.float32(0.6)}
    assert np.mean(y == 0) == pytest.approx(0.4, abs=0.01)
    assert np.mean((y[0] == 0) & (y[1] == 0)) == pytest.approx(0.4**2, abs=0.02)  # in each sample by itself


def test_what_dropout_draws_depends_on_seed_and_call_only():
    x = tf.ones([6, 4, 4, 3])
    first = dropped(x)
    np.testing.assert_array_equal(first, dropped(x))
    for other in (dropped(x, seed=(1, 3)), dropped(x, seed=(2, 2)), dropped(x, calls=2)):
        assert 0.2 < np.mean((first == 0) != (other == 0)) < 0.8
    traced = tf.function(lambda seed: dropped_in_graph(x, seed))(tf.constant([1, 2], tf.int64))
    np.testing.assert_array_equal(first, traced.numpy())


def dropped_in_graph(x, seed):
    with random_stream(seed, 6, tf.constant(0), 6):
        return Dropout(0.4)(x, training=True)


@pytest.mark.parametrize("inputs", [1, 2], ids=["one input", "two inputs as one batch"])
def test_a_replica_draws_its_samples_part_of_the_global_batch(inputs):
    x = tf.ones([6 * inputs, 3, 5, 4])
    whole = dropped(x).reshape(inputs, 6, 3, 5, 4)
    for count in (1, 2, 3):
        for start in range(0, 6, count):
            part = dropped(x[: count * inputs], start=tf.constant(start), count=count)
            np.testing.assert_array_equal(part.reshape(inputs, count, 3, 5, 4), whole[:, start : start + count])
    halves = whole.reshape(-1, 3 * 5 * 4)
    assert len(np.unique(halves, axis=0)) == len(halves)  # no two samples, nor inputs, meet the same


def test_dropout_knows_whether_it_trains_and_where_its_draws_come_from():
    layer, x = Dropout(0.5), tf.ones([2, 3, 3, 1])
    np.testing.assert_array_equal(layer(x).numpy(), x.numpy())
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"outside of random_stream"):
            layer(x, training=True)
        with random_stream([1, 2], 4, 0, 2), pytest.raises(ValueError, match="a batch of 3 for dropout; expected 2"):
            layer(tf.ones([3, 3, 3, 1]), training=True)
    with random_stream([1, 2], 2, 0, 2):
        with random_stream([3, 4], 2, 0, 2):
            inner = layer(x, training=True).numpy()
        layer(x, training=True)  # the outer one still is there
        failed = []
        thread = threading.Thread(target=lambda: failed.append(fails_in_another_thread(layer, x)))
        thread.start()
        thread.join()
    assert failed == [True] and inner.shape == x.shape


def fails_in_another_thread(layer, x):
    try:
        layer(x, training=True)
    except RuntimeError:
        return True
    return False


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_dropout_in_lower_precision(precision):
    with compat.precision_policy(precision):
        layer = Dropout(0.5)
    with random_stream([1, 2], 1, 0, 1):
        y = layer(tf.ones([1, 8, 8, 2], precision), training=True)
    assert y.dtype == precision and set(np.unique(tf.cast(y, tf.float32))) == {0.0, 2.0}


@pytest.mark.parametrize(
    "layer",
    [
        instance_normalization.InstanceNormalization(1e-4, affine=False, fused=False),
        batch_normalization.BatchNormalization(1e-4),
        Dropout(0.3),
        NearestUpsampling2D(),
        make_transposed_convolution(3, 3, padding="valid", use_bias=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_are_made_again_from_their_configuration(layer):
    copy = type(layer).from_config(layer.get_config())
    for attribute in {"epsilon", "affine", "fused", "rate", "padding", "use_bias"} & set(vars(layer)):
        assert getattr(copy, attribute) == getattr(layer, attribute)
    x = noise(2, 4, 4, 3)
    assert copy(x).shape == layer(x).shape


def test_second_derivatives_of_our_instance_normalization_are_right():
    """Against differences in float64; by tf.nn.moments, which stops a gradient, they would be off by 3e-3 of 3."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 9))

    def value(x):
        return (w * np.tanh(1.5 * (x - x.mean()) / np.sqrt(x.var() + instance_normalization.EPSILON))).sum()

    steps = 1e-3 * np.eye(9)
    expected = [
        [(value(x + a + b) - value(x + a - b) - value(x - a + b) + value(x - a - b)) / 4e-6 for b in steps]
        for a in steps
    ]
    layer = instance_normalization.make_instance_normalization(second_derivatives=True)
    layer(tf.zeros([1, 3, 3, 1]))
    layer.gamma.assign([1.5])
    point = tf.constant(x.reshape(1, 3, 3, 1), tf.float32)
    with tf.GradientTape() as second:
        second.watch(point)
        with tf.GradientTape() as first:
            first.watch(point)
            at = tf.reduce_sum(w.reshape(1, 3, 3, 1).astype(np.float32) * tf.tanh(layer(point)))
        slope = first.gradient(at, point)
    got = second.jacobian(slope, point).numpy().reshape(9, 9)
    np.testing.assert_allclose(got, expected, atol=2e-4)
