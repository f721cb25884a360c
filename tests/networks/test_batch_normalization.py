import numpy as np
import pytest

from cyclegan.networks import batch_normalization


def expected_output(x, gamma, beta):
    """Return (output, mean, variance) of batch normalization in float64."""
    x = x.astype(np.float64)
    mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
    return (x - mean) / np.sqrt(variance + 1e-5) * gamma + beta, mean, variance


def test_training_and_inference_equal_numpy():
    x = (5 + 3 * np.random.default_rng(0).normal(size=(4, 3, 2, 6))).astype(np.float32)
    layer = batch_normalization.BatchNormalization()
    layer.build(x.shape)
    gamma, beta = (np.random.default_rng(1).normal(size=(2, 6))).astype(np.float32)
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
    expected, mean, variance = expected_output(x, gamma, beta)
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
    layer = batch_normalization.BatchNormalization()
    x = np.ones((2, 3, 3, 2), np.float32)
    layer(x, training=True)
    before = [w.numpy() for w in layer.non_trainable_variables]
    x[0, 0, 0, 1] = bad
    layer(x, training=True)
    for one, other in zip(before, layer.non_trainable_variables):
        np.testing.assert_array_equal(one, other.numpy())
