import functools
import math

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.methods import losses


def loss(name, **settings):
    """Return the settings of an adversarial loss, which compute it."""
    return Config.from_settings(adversarial=name, **settings).objective


def two_samples(first, second):
    """Return two constant samples [2, 2, 1]."""
    return tf.constant(np.array([first, second], np.float32)[:, None, None, None] * np.ones((1, 2, 2, 1), np.float32))


def test_mae_by_hand():
    assert losses.mae(two_samples(1, -1), two_samples(0.5, 2)).numpy().tolist() == [0.5, 3.0]


def test_lsgan_by_hand():
    assert loss("lsgan").labeled_loss(two_samples(0.5, 3), 1.0).numpy().tolist() == [0.25, 4.0]
    assert loss("lsgan").generator_loss(two_samples(0, 1)).numpy().tolist() == [1.0, 0.0]
    # half of (1 - 1)^2 + (3 - 0)^2, half of (0 - 1)^2 + 0^2
    assert loss("lsgan").discriminator_loss(two_samples(1, 0), two_samples(3, 0)).numpy().tolist() == [4.5, 0.5]


def test_bce_is_from_logits_and_per_sample():
    got = loss("bce").labeled_loss(two_samples(0, 2), 1.0).numpy()
    np.testing.assert_allclose(got, [math.log(2), math.log(1 + math.exp(-2))], rtol=1e-6)
    got = loss("bce").labeled_loss(two_samples(0, 2), 0.0).numpy()
    np.testing.assert_allclose(got, [math.log(2), math.log(1 + math.exp(2))], rtol=1e-6)
    assert np.isfinite(loss("bce").labeled_loss(two_samples(1e4, -1e4), 0.0).numpy()).all()


@pytest.mark.parametrize(
    "compute",
    [
        losses.mae,
        *(lambda a, b, name=name: loss(name).generator_loss(a - b) for name in losses.ADVERSARIAL_LOSSES),
    ],
)
def test_losses_of_a_sample_do_not_depend_on_the_others(compute):
    rng = np.random.default_rng(0)
    a, b = (tf.constant(rng.normal(size=(3, 4, 5, 2)), tf.float32) for _ in "ab")
    together = compute(a, b).numpy()
    assert together.shape == (3,)
    np.testing.assert_allclose(together, [compute(a[i : i + 1], b[i : i + 1]).numpy()[0] for i in range(3)], rtol=1e-6)


def test_patch_nce_is_the_formula_of_the_reference():
    """Compare with the positive logit in front of the logits of all keys, where -10 replaces the positive one."""
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(2, 3, 6, 4))
    expected = []
    for q, k in zip(queries, keys):
        q, k = (each / (np.linalg.norm(each, axis=1, keepdims=True) + 1e-7) for each in (q, k))
        logits = q @ k.T
        positive = logits.diagonal().copy()
        np.fill_diagonal(logits, -10)
        logits = np.concatenate([positive[:, None], logits], axis=1) / 0.07
        expected.append(np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[:, 0]))
    queries, keys = (unit(tf.constant(each, tf.float32)) for each in (queries, keys))
    with tf.GradientTape() as tape:
        tape.watch([queries, keys])
        found = losses.patch_nce(queries, keys)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    of_queries, of_keys = tape.gradient(found, [queries, keys])
    assert of_keys is None and np.abs(of_queries).max() > 0


def test_reduce_mean_divides_by_the_global_batch():
    shares = [losses.reduce_mean(tf.constant(share), 3).numpy() for share in ([3.0], [6.0], [9.0])]
    assert (
        shares == [1.0, 2.0, 3.0] and sum(shares) == 6.0
    )  # the mean of 3, 6 and 9; a third of it each on three replicas


def test_correlation_equals_numpy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 4, 5, 2)).astype(np.float32)
    expected = [np.corrcoef(one.ravel(), other.ravel())[0, 1] for one, other in zip(a, b)]
    np.testing.assert_allclose(losses.correlation(a, b), expected, atol=1e-6)
    np.testing.assert_allclose(losses.correlation(a, 1 - 3 * a), -np.ones(3), rtol=1e-5)
    assert losses.correlation(a, np.ones_like(a)).numpy().tolist() == [0, 0, 0]


def test_penalties_of_a_quadratic_form():
    """Compare in float64 with a discriminator that is a quadratic form and has a known gradient."""
    rng = np.random.default_rng(0)
    form = tf.constant(rng.normal(size=(12, 12)), tf.float32)

    def discriminator(images):  # two patches: x A x and 3 x A x
        x = tf.reshape(images, [-1, 12])
        value = tf.reduce_sum(x * (x @ form), axis=1)
        return tf.reshape(tf.stack([value, 3 * value], axis=1), [-1, 1, 2, 1])

    real, fake = (tf.constant(rng.normal(size=(3, 2, 2, 3)), tf.float32) for _ in "rf")
    both = form + tf.transpose(form)  # the gradient of x A x is (A + A^T) x

    def norms(images):
        return np.linalg.norm(
            2 * tf.reshape(images, [-1, 12]).numpy() @ both.numpy(), axis=1
        )  # the mean of 1 and 3 is 2

    np.testing.assert_allclose(losses.squared_gradient_norm(discriminator, real), norms(real) ** 2, rtol=1e-5)
    part = tf.constant([0.0, 0.25, 1.0])
    mixed = real + part[:, None, None, None] * (fake - real)
    got = losses.gradient_penalty(discriminator, real, fake, part)
    np.testing.assert_allclose(got, (norms(mixed) - 1) ** 2, rtol=1e-5)


@pytest.mark.parametrize("name", ["hinge", "wgan-gp"])
def test_hinge_and_wasserstein_by_hand(name):
    real, fake = (tf.reshape(tf.constant(values), [2, 1, 2, 1]) for values in ([0.5, 3.0, -1, -1], [0.0, -2.0, 2, 0]))
    hinge = [0.5 * (0.25 + 0.5), 0.5 * (2 + 2)]
    wasserstein = [0.5 * (-1 - 1.75), 0.5 * (1 + 1)]
    got = loss(name).discriminator_loss(real, fake)
    np.testing.assert_allclose(got, hinge if name == "hinge" else wasserstein)
    np.testing.assert_allclose(loss(name).generator_loss(fake), [1, -1])


def test_label_smoothing_by_hand():
    ones, zeros = tf.ones([1, 1, 1, 1]), tf.zeros([1, 1, 1, 1])
    assert loss("lsgan", label_smoothing=0.25).discriminator_loss(ones, zeros).numpy() == pytest.approx(0.5 * 0.25**2)
    expected = 0.5 * (0.75 * np.log(1 + np.exp(-1)) + 0.25 * np.log(1 + np.exp(1)) + np.log(2))
    assert loss("bce", label_smoothing=0.25).discriminator_loss(ones, zeros).numpy() == pytest.approx(
        expected, rel=1e-6
    )


def unit(vectors):
    return vectors / tf.norm(vectors, axis=-1, keepdims=True)


def published_hard_nce(q, k, gamma):
    """Return what Jung et al. 2022 minimize for one sample, and the loss that our code reports, with masks of -10."""
    diagonal = tf.eye(len(q), dtype=tf.bool)
    weights = tf.nn.softmax(tf.where(diagonal, -10.0, k @ tf.transpose(k)) / gamma, axis=1)
    weights /= tf.reduce_max(weights, axis=1, keepdims=True)
    negative = tf.where(diagonal, -10.0, weights * (q @ tf.transpose(k)))
    positive = tf.reduce_sum(q * k, axis=1, keepdims=True)
    value = tf.reduce_logsumexp((negative - positive) / 0.07, axis=1)
    return tf.reduce_mean(tf.exp(value - tf.stop_gradient(value))), tf.reduce_mean(value)


def published_divergence(q, k):
    """Return the sum over the patches of KL(p, m) / 2 + KL(r, m) / 2, m the mean of p and r."""
    p, r = (tf.nn.softmax(each @ tf.transpose(each), axis=0) for each in (q, k))
    middle = tf.math.log((p + r) / 2)
    value = 0.5 * tf.reduce_sum(p * (tf.math.log(p) - middle)) + 0.5 * tf.reduce_sum(r * (tf.math.log(r) - middle))
    return value, value


@pytest.mark.parametrize(
    "loss, published",
    [
        *(
            (functools.partial(losses.hard_nce, gamma=g), functools.partial(published_hard_nce, gamma=g))
            for g in (50, 1)
        ),
        (losses.relation_divergence, published_divergence),
    ],
)
def test_losses_of_semantic_relations_are_the_published_ones(loss, published):
    """Compare values and gradients with float64; the keys have no gradients."""
    rng = np.random.default_rng(0)
    keys = unit(tf.constant(rng.normal(size=(2, 256, 8))))
    queries = unit(keys + tf.constant(rng.normal(size=(2, 256, 8))))
    expected, gradients = [], []
    for q, k in zip(queries, keys):
        with tf.GradientTape() as tape:
            tape.watch(q)
            minimized, value = published(q, k)
        expected.append(float(value))
        gradients.append(tape.gradient(minimized, q))
    queries, keys = tf.cast(queries, tf.float32), tf.cast(keys, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch([queries, keys])
        found = loss(queries, keys)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    of_queries, of_keys = tape.gradient(found, [queries, keys])
    assert of_keys is None
    np.testing.assert_allclose(of_queries, gradients, rtol=0, atol=1e-3 * np.abs(gradients).max())


def test_hard_negatives_by_hand():
    """Take two patches: the single negative has the weight 1."""
    queries, keys = [[[1.0, 0.0], [0.6, 0.8]]], [[[0.8, 0.6], [0.0, 1.0]]]
    found = losses.hard_nce(tf.constant(queries), tf.constant(keys), 10.0)
    assert float(found[0]) == pytest.approx(((0.0 - 0.8) / 0.07 + (0.96 - 0.8) / 0.07) / 2, rel=1e-5)
