"""Instance, batch and spectral normalization compared with NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.networks import compat, normalization
from cyclegan.networks.normalization import BatchNormalization, SpectralConvolution, make_instance_normalization
from tests.networks.helpers import noise


def normalized(x, gamma=1, beta=0, epsilon=1e-3, axes=(1, 2)):
    """Normalize in float64."""
    x = np.asarray(x, np.float64)
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


@pytest.fixture(params=["on GPUs", "on a CPU", "on a CPU, by one operation", "in inference"])
def make_layer(request, monkeypatch):
    """Return a function from arguments to (layer, whether to call it with training=True)."""
    if request.param == "on a CPU, by one operation":
        monkeypatch.setattr(normalization, "LARGE_SAMPLE", 1)
    monkeypatch.setattr(hardware, "has_accelerator", lambda: request.param == "on GPUs")
    return lambda *arguments: (make_instance_normalization(*arguments), request.param != "in inference")


@pytest.mark.parametrize("mean, spread", [(0, 1), (100, 0.5), (-30, 20), (5, 0)])
def test_instance_normalization_equals_numpy(make_layer, mean, spread):
    rng = np.random.default_rng(0)
    x = (mean + spread * rng.normal(size=(3, 8, 6, 5))).astype(np.float32)
    layer, training = make_layer()
    layer.build(x.shape)
    gamma, beta = rng.normal(size=5), rng.normal(size=5)
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
    tolerance = 2e-5 * max(1, abs(mean) / max(spread, 1))
    np.testing.assert_allclose(layer(x, training=training).numpy(), normalized(x, gamma, beta), atol=tolerance)
    plain, _ = make_layer(1e-5, False)
    np.testing.assert_allclose(plain(x, training=training), normalized(x, epsilon=1e-5), atol=tolerance)
    assert not plain.weights


@pytest.mark.parametrize("precision, tolerance", [("bfloat16", 2**-7), ("float16", 2**-10)])
def test_statistics_are_float32_for_any_input_type(make_layer, precision, tolerance):
    x = tf.cast(40 + np.random.default_rng(0).normal(size=(2, 16, 16, 2)), precision)
    layer, training = make_layer()
    layer.build(x.shape)
    layer.gamma.assign([1.0, 1.0])
    got = layer(x, training=training)
    assert got.dtype == precision
    expected = tf.cast(normalized(tf.cast(x, tf.float32)), precision)
    got, expected = (tf.cast(values, tf.float32).numpy() for values in (got, expected))
    np.testing.assert_allclose(got, expected, atol=1e-4, rtol=tolerance)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("precision, tolerance", [("float32", 1e-5), ("bfloat16", 2**-7)])
def test_all_implementations_have_the_same_gradients(make_layer, affine, precision, tolerance):
    x, upstream = (tf.cast(each, precision) for each in np.random.default_rng(0).normal(size=(2, 2, 8, 8, 3)))
    others = make_instance_normalization(affine=affine, second_derivatives=True), True
    gradients = []
    for layer, training in (make_layer(normalization.EPSILON, affine), others):
        layer.build(x.shape)
        if affine:
            layer.gamma.assign([0.5, 1, 2])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=training)
        found = tape.gradient(y, [x, *layer.trainable_variables], upstream)
        assert [each.dtype for each in found] == [precision, *["float32"] * (len(found) - 1)]
        gradients.append([tf.cast(each, tf.float32).numpy() for each in found])
    assert len(gradients[0]) == (3 if affine else 1)
    for one, other in zip(*gradients):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())


def test_the_layer_is_that_of_addons_where_it_is_installed():
    addons = compat.instance_normalization_of_addons()
    assert (addons is None) == (compat.KERAS_MAJOR > 2)
    assert isinstance(make_instance_normalization(), addons or normalization.PlainInstanceNormalization)


def test_batch_normalization_equals_numpy():
    x = (5 + 3 * np.random.default_rng(0).normal(size=(4, 3, 2, 6))).astype(np.float32)
    layer = BatchNormalization()
    layer.build(x.shape)
    gamma, beta = (np.random.default_rng(1).normal(size=(2, 6))).astype(np.float32)
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
    expected = normalized(x, gamma, beta, 1e-5, (0, 1, 2))
    mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
    np.testing.assert_allclose(layer(x).numpy(), x / np.sqrt(1 + 1e-5) * gamma + beta, atol=1e-5)  # initial statistics
    np.testing.assert_allclose(layer(x, training=True).numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(layer.moving_mean.numpy(), 0.1 * mean, atol=1e-6)
    np.testing.assert_allclose(layer.moving_variance.numpy(), 0.9 + 0.1 * variance * 24 / 23, rtol=1e-5)
    for _ in range(200):
        layer(x, training=True)
    unbiased = np.sqrt((variance * 24 / 23 + 1e-5) / (variance + 1e-5))
    np.testing.assert_allclose(layer(x).numpy(), (expected - beta) / unbiased + beta, atol=1e-4)
    assert len(layer.trainable_variables) == len(layer.non_trainable_variables) == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30], ids=str)
def test_running_statistics_stay_finite(bad):
    """Normalize values of 1e30, whose variance exceeds float32."""
    layer = BatchNormalization()
    x = np.ones((2, 3, 3, 2), np.float32)
    layer(x, training=True)
    before = [w.numpy() for w in layer.non_trainable_variables]
    x[0, 0, 0, 1] = bad
    layer(x, training=True)
    for one, other in zip(before, layer.non_trainable_variables):
        np.testing.assert_array_equal(one, other.numpy())


def iterated(layer, x, calls=60):
    for _ in range(calls):
        layer(x, training=True)
    return layer


@pytest.mark.parametrize("filters, stride", [(3, 1), (12, 2)])
def test_spectral_convolution_divides_by_the_largest_singular_value(filters, stride):
    x = noise(2, 6, 8, 5)
    layer = SpectralConvolution(filters, 4, stride, margin=1, bias_initializer="ones")
    layer(x)
    layer.kernel.assign(noise(*layer.kernel.shape) + 1)  # a large gap between its singular values: iteration converges
    kernel = tf.convert_to_tensor(iterated(layer, x).kernel).numpy()
    largest = np.linalg.svd(kernel.reshape(-1, filters), compute_uv=False)[0]
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    np.testing.assert_allclose(layer(x), tf.nn.conv2d(padded, kernel / largest, stride, "VALID") + 1, atol=1e-5)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_spectral_convolution_in_low_precision_is_close_to_float32(precision):
    x, outputs = noise(2, 6, 8, 5), []
    for policy in ("float32", f"mixed_{precision}"):
        layer = SpectralConvolution(12, 3, dtype=tf.keras.mixed_precision.Policy(policy))
        layer(x)
        layer.kernel.assign(noise(*layer.kernel.shape) + 1)
        outputs.append(iterated(layer, x)(x))
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


def test_gradient_holds_the_singular_vectors_fixed():
    """Compare with differences; a scaled kernel changes nothing."""
    x = noise(1, 5, 5, 2)
    layer = SpectralConvolution(4, 3)
    kernel = tf.convert_to_tensor(iterated(layer, x).kernel)
    upstream = noise(*layer(x).shape)

    def loss_of(value):
        layer.kernel.assign(value)
        return float(tf.reduce_sum(layer(x) * upstream))

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x) * upstream)
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.trainable_variables[0]))
    assert float(tf.reduce_sum(gradient * kernel)) == pytest.approx(0, abs=1e-4)
    change = 1e-2 * noise(*kernel.shape)
    slope = (loss_of(kernel + change) - loss_of(kernel - change)) / 2
    assert slope == pytest.approx(float(tf.reduce_sum(gradient * change)), rel=1e-2)


def test_statistics_of_large_images_are_exact():
    """A float32 sum over all pixels, as of tf.nn.moments, has an error of 0.8 deviations here."""
    values = (np.random.default_rng(0).normal(size=(1, 2048, 2048, 2)) + 30).astype(np.float32)
    layer = make_instance_normalization(affine=False)
    output = layer(tf.constant(values), training=False).numpy()
    assert np.abs(output[0].mean((0, 1), np.float64)).max() < 1e-4
    assert np.abs(output[0].std((0, 1), dtype=np.float64) - 1).max() < 1e-3
