import numpy as np
import pytest
import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.networks import compat
from cyclegan.networks.convolution import make_convolution
from cyclegan.networks.transposed_convolution import make_transposed_convolution
from tests.networks.helpers import assert_all_close, noise, output_and_gradients, upstream, with_random_weights

EPSILONS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # largest relative error of rounding to nearest


def convolutions_in(precision):
    """Return (layer, operation of TensorFlow) pairs: to few and to many channels, down and up."""
    with compat.precision_policy(precision):
        return (
            (make_convolution(3, 3, padding="valid"), lambda x, k: tf.nn.conv2d(x, k, 1, "VALID")),
            (make_convolution(12, 3, padding="valid"), lambda x, k: tf.nn.conv2d(x, k, 1, "VALID")),
            (make_convolution(12, 4, stride=2), lambda x, k: tf.nn.conv2d(x, k, 2, "SAME")),
            (
                make_convolution(12, 4, 2, "valid", margin=1),
                lambda x, k: tf.nn.conv2d(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), k, 2, "VALID"),
            ),
            (
                make_transposed_convolution(6, 3),
                lambda x, k: tf.nn.conv2d_transpose(x, k, [2, 2 * x.shape[1], 2 * x.shape[2], 6], 2, "SAME"),
            ),
            (
                make_transposed_convolution(6, 3, "valid"),
                lambda x, k: tf.nn.conv2d_transpose(x, k, [2, 2 * x.shape[1] + 1, 2 * x.shape[2] + 1, 6], 2, "VALID")[
                    :, 1:, 1:
                ],
            ),
        )


def operation_and_gradients(operation, x, kernel):
    """Return what `output_and_gradients` does, for an operation on x and a kernel."""
    with tf.GradientTape() as tape:
        tape.watch([x, kernel])
        y = operation(x, kernel)
    return [tf.cast(value, tf.float32).numpy() for value in (y, *tape.gradient(y, [x, kernel], upstream(y)))]


@pytest.mark.sampled
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_lower_precision_equals_tensorflow_to_its_rounding(precision, native, monkeypatch):
    """Compare with a tolerance of 16 roundings, because TensorFlow adds some of up to 320 products in that precision."""
    monkeypatch.setattr(hardware, "has_instructions_for", lambda name: native or name == "float32")
    for layer, operation in convolutions_in(precision):
        x = tf.cast(noise(2, 8, 10, 5), precision)
        layer.build(x.shape)
        with_random_weights(layer)
        theirs = operation_and_gradients(operation, x, tf.cast(layer.kernel, precision))
        assert layer(x).dtype == precision and layer.kernel.dtype == "float32"
        assert_all_close(output_and_gradients(layer, x), theirs, 16 * EPSILONS[precision])


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_only_inputs_and_outputs_are_rounded_without_native_instructions(precision, monkeypatch):
    monkeypatch.setattr(hardware, "has_instructions_for", lambda name: name == "float32")
    for layer, operation in convolutions_in(precision):
        x = tf.cast(noise(2, 8, 10, 5), precision)
        layer.build(x.shape)
        with_random_weights(layer)

        def exact(x, kernel, operation=operation):  # upstream is rounded like y
            return tf.cast(operation(tf.cast(x, tf.float32), tf.cast(kernel, tf.float32)), x.dtype)

        expected = operation_and_gradients(exact, x, tf.cast(layer.kernel, precision))
        for ours, same in zip(output_and_gradients(layer, x), expected):
            np.testing.assert_allclose(ours, same, rtol=2 * EPSILONS[precision], atol=1e-4)


@pytest.mark.sampled
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("filters", [3, 12])
def test_bias_gradient_is_the_sum_over_all_pixels(precision, filters):
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
