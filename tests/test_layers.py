import numpy as np
import pytest
import tensorflow as tf

from cyclegan import layers


def oracle(x, gamma, beta, epsilon=1e-3):
    """Instance normalization in float64."""
    x = x.astype(np.float64)
    mean, variance = x.mean(axis=(1, 2), keepdims=True), x.var(axis=(1, 2), keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


def implementations():
    yield layers.instance_normalization()
    yield layers.InstanceNormalization(dtype="float32")


@pytest.mark.parametrize("which", [0, 1], ids=["of this stack", "our own"])
@pytest.mark.parametrize("mean, spread", [(0, 1), (100, 0.5), (-30, 20), (5, 0)])
def test_instance_normalization_against_numpy(which, mean, spread):
    rng = np.random.default_rng(0)
    x = (mean + spread * rng.normal(size=(3, 8, 6, 5))).astype(np.float32)
    layer = list(implementations())[which]
    layer.build(x.shape)
    gamma, beta = rng.normal(size=5), rng.normal(size=5)
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
    tolerance = 2e-5 * max(1, abs(mean) / max(spread, 1))
    np.testing.assert_allclose(layer(x).numpy(), oracle(x, gamma, beta), atol=tolerance)


@pytest.mark.parametrize("which", [0, 1], ids=["of this stack", "our own"])
def test_instance_normalization_keeps_float32_statistics_whatever_comes_in(which):
    x = (40 + np.random.default_rng(0).normal(size=(1, 16, 16, 2))).astype(np.float32)
    layer = list(implementations())[which]
    layer.build(x.shape)
    layer.gamma.assign([1.0, 1.0])
    rounded = tf.cast(x, tf.bfloat16)
    got = layer(rounded)
    assert got.dtype == tf.float32
    np.testing.assert_allclose(got.numpy(), oracle(tf.cast(rounded, tf.float32).numpy(), 1, 0), atol=1e-4)


@pytest.mark.parametrize("which", [0, 1], ids=["of this stack", "our own"])
def test_instance_normalization_starts_as_the_keras_example_does(which):
    layer = list(implementations())[which]
    layer.build((None, None, None, 4096))
    assert abs(float(tf.math.reduce_std(layer.gamma)) - 0.02) < 2e-3
    assert abs(float(tf.reduce_mean(layer.gamma))) < 2e-3
    assert not np.any(layer.beta.numpy())


def test_the_two_implementations_have_the_same_gradients():
    x = tf.constant(np.random.default_rng(0).normal(size=(2, 8, 8, 3)), tf.float32)
    gradients = []
    for layer in implementations():
        layer.build(x.shape)
        layer.gamma.assign([0.5, 1, 2])
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(3 * layer(x)))
        gradients.append(
            [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, [x, *layer.trainable_variables])]
        )
    for one, other in zip(*gradients):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_reflection_padding_is_numpys():
    x = np.random.default_rng(0).normal(size=(2, 5, 4, 3)).astype(np.float32)
    np.testing.assert_array_equal(
        layers.ReflectionPadding2D(3)(x).numpy(), np.pad(x, ((0, 0), (3, 3), (3, 3), (0, 0)), "reflect")
    )


def test_leaky_relu_by_hand():
    assert layers.LeakyReLU()(tf.constant([-5.0, 0.0, 2.0])).numpy().tolist() == [-1.0, 0.0, 2.0]


def test_a_residual_block_adds_to_its_input():
    picture = tf.keras.Input((None, None, 4))
    block = tf.keras.Model(picture, layers.residual_block(picture))
    for weight in block.trainable_variables:
        weight.assign(tf.zeros_like(weight))
    x = np.random.default_rng(0).normal(size=(1, 6, 5, 4)).astype(np.float32)
    np.testing.assert_array_equal(block(x).numpy(), x)  # also negative values: no ReLU after the sum


def test_stack_says_what_a_checkpoint_depends_on():
    assert layers.stack()["keras"] == (3 if tf.__version__ >= "2.16" else 2)
