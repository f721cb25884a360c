import numpy as np
import pytest
import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.networks import compat, instance_normalization


def expected_output(x, gamma, beta, epsilon=1e-3):
    """Normalize in float64."""
    x = x.astype(np.float64)
    mean, variance = x.mean(axis=(1, 2), keepdims=True), x.var(axis=(1, 2), keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


@pytest.fixture(params=["on GPUs", "on a CPU", "on a CPU, by one operation", "in inference"])
def make_layer(request, monkeypatch):
    """Return a function from arguments to (layer, whether to call it with training=True)."""
    if request.param == "on a CPU, by one operation":
        monkeypatch.setattr(instance_normalization, "LARGE_SAMPLE", 1)
    monkeypatch.setattr(hardware, "has_accelerator", lambda: request.param == "on GPUs")
    return lambda *arguments: (
        instance_normalization.make_instance_normalization(*arguments),
        request.param != "in inference",
    )


@pytest.mark.parametrize("mean, spread", [(0, 1), (100, 0.5), (-30, 20), (5, 0)])
def test_equals_numpy(make_layer, mean, spread):
    rng = np.random.default_rng(0)
    x = (mean + spread * rng.normal(size=(3, 8, 6, 5))).astype(np.float32)
    layer, training = make_layer()
    layer.build(x.shape)
    gamma, beta = rng.normal(size=5), rng.normal(size=5)
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
    tolerance = 2e-5 * max(1, abs(mean) / max(spread, 1))
    np.testing.assert_allclose(layer(x, training=training).numpy(), expected_output(x, gamma, beta), atol=tolerance)


@pytest.mark.parametrize("precision, tolerance", [("bfloat16", 2**-7), ("float16", 2**-10)])
def test_statistics_are_float32_for_any_input_type(make_layer, precision, tolerance):
    x = tf.cast(40 + np.random.default_rng(0).normal(size=(2, 16, 16, 2)), precision)
    layer, training = make_layer()
    layer.build(x.shape)
    layer.gamma.assign([1.0, 1.0])
    got = layer(x, training=training)
    assert got.dtype == precision
    expected = tf.cast(expected_output(tf.cast(x, tf.float32).numpy(), 1, 0), precision)
    got, expected = (tf.cast(values, tf.float32).numpy() for values in (got, expected))
    np.testing.assert_allclose(got, expected, atol=1e-4, rtol=tolerance)


def test_gamma_starts_normal_and_beta_at_0(make_layer):
    layer, _ = make_layer()
    layer.build((None, None, None, 4096))
    assert abs(float(tf.math.reduce_std(layer.gamma)) - 0.02) < 2e-3
    assert abs(float(tf.reduce_mean(layer.gamma))) < 2e-3
    assert not np.any(layer.beta.numpy())


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("precision, tolerance", [("float32", 1e-5), ("bfloat16", 2**-7)])
def test_all_implementations_have_the_same_gradients(make_layer, affine, precision, tolerance):
    x, upstream = (tf.cast(each, precision) for each in np.random.default_rng(0).normal(size=(2, 2, 8, 8, 3)))
    others = instance_normalization.make_instance_normalization(affine=affine, second_derivatives=True), True
    gradients = []
    for layer, training in (make_layer(instance_normalization.EPSILON, affine), others):
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


@pytest.mark.parametrize(
    "size, arguments, on_gpu, operations",
    [
        (256, {}, False, 2),
        (128, {}, False, 0),  # small samples
        (128, {}, True, 2),
        (256, {"second_derivatives": True}, True, 0),
        (None, {}, True, 0),
    ],
)
def test_training_uses_the_fused_operation(size, arguments, on_gpu, operations, monkeypatch):
    monkeypatch.setattr(hardware, "has_accelerator", lambda: on_gpu)
    layer = instance_normalization.make_instance_normalization(**arguments)
    layer.build((None, None, None, 1))

    def count(training):
        function = tf.function(lambda x: layer(x, training=training))
        graph = function.get_concrete_function(tf.TensorSpec([2, size, size, 1])).graph
        return [node.type for node in graph.get_operations()].count("FusedBatchNormV3")

    assert count(True) == operations and count(False) == 0


def test_without_gamma_and_beta_there_are_no_weights(make_layer):
    x = (3 + np.random.default_rng(0).normal(size=(2, 5, 4, 3))).astype(np.float32)
    layer, training = make_layer(1e-5, False)
    np.testing.assert_allclose(layer(x, training=training).numpy(), expected_output(x, 1, 0, 1e-5), atol=2e-5)
    assert not layer.weights


def test_the_layer_is_that_of_addons_where_it_is_installed():
    addons = compat.instance_normalization_of_addons()
    assert (addons is None) == (compat.KERAS_MAJOR > 2)
    layer = instance_normalization.make_instance_normalization()
    assert isinstance(layer, addons or instance_normalization.PlainInstanceNormalization)


def test_second_derivatives():
    """Compare with differences in float64; tf.nn.moments, which stops a gradient, would be off by 3e-3 of 3."""
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
