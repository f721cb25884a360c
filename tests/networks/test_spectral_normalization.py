import numpy as np
import pytest
import tensorflow as tf

from cyclegan.networks.spectral_normalization import SpectralConvolution
from tests.networks.helpers import noise


def largest(kernel):
    return np.linalg.svd(np.reshape(kernel, (-1, kernel.shape[-1])), compute_uv=False)[0]


def trained(layer, x, calls=60):
    for _ in range(calls):
        layer(x, training=True)
    return layer


@pytest.mark.parametrize("filters, stride", [(3, 1), (12, 2)])
def test_output_is_that_of_the_divided_kernel(filters, stride):
    x = noise(2, 6, 8, 5)
    layer = SpectralConvolution(filters, 4, stride, margin=1, padding="valid", use_bias=True, bias_initializer="ones")
    layer(x)
    layer.kernel.assign(noise(*layer.kernel.shape) + 1)  # a large gap between its singular values: iteration converges
    trained(layer, x)
    kernel = tf.convert_to_tensor(layer.kernel).numpy()
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = tf.nn.conv2d(padded, kernel / largest(kernel), stride, "VALID") + 1
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_low_precision_is_close_to_float32(precision):
    x, outputs = noise(2, 6, 8, 5), []
    for policy in ("float32", f"mixed_{precision}"):
        layer = SpectralConvolution(12, 3, dtype=tf.keras.mixed_precision.Policy(policy))
        layer(x)
        layer.kernel.assign(noise(*layer.kernel.shape) + 1)
        outputs.append(trained(layer, x)(x))
    assert outputs[1].dtype == precision
    np.testing.assert_allclose(tf.cast(outputs[1], tf.float32), outputs[0], atol=0.02)


def test_each_training_call_is_a_step_of_power_iteration():
    x = noise(1, 4, 4, 3)
    layer = SpectralConvolution(5, 3)
    layer(x)
    kernel, direction = (tf.convert_to_tensor(each).numpy() for each in (layer.kernel, layer.direction))
    layer(x)  # not in training
    np.testing.assert_array_equal(tf.convert_to_tensor(layer.direction), direction)
    matrix = kernel.reshape(-1, 5).astype(np.float64)
    for _ in range(3):
        layer(x, training=True)
        direction = matrix.T @ (matrix @ direction)
        direction /= np.linalg.norm(direction)
        np.testing.assert_allclose(tf.convert_to_tensor(layer.direction), direction, atol=1e-5)
    assert [variable.shape for variable in layer.non_trainable_variables] == [(5,)]


def test_gradient_holds_the_singular_vectors_fixed():
    """Compare with differences; a scaled kernel changes nothing."""
    x = noise(1, 5, 5, 2)
    layer = trained(SpectralConvolution(4, 3), x)
    kernel = tf.convert_to_tensor(layer.kernel)

    def loss_of(value):
        layer.kernel.assign(value)
        return float(tf.reduce_sum(layer(x) * upstream))

    upstream = noise(*layer(x).shape)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x) * upstream)
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.trainable_variables[0]))
    assert float(tf.reduce_sum(gradient * kernel)) == pytest.approx(0, abs=1e-4)
    change = 1e-2 * noise(*kernel.shape)
    slope = (loss_of(kernel + change) - loss_of(kernel - change)) / 2
    assert slope == pytest.approx(float(tf.reduce_sum(gradient * change)), rel=1e-2)
