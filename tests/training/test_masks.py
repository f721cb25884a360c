"""Masks in a step: outside of them, images stay as they are, and all losses weigh 0."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.images.value_range import to_float
from cyclegan.methods import losses
from cyclegan.methods.objective import Inputs
from cyclegan.training import callbacks
from cyclegan.training import step as step_module
from cyclegan.training.step import GAN, Batch, compile_test_step, compile_train_step, train_step
from tests.training.helpers import TINIER, TINY, as_trained, flat, weights, with_sgd

PAIRED = {"dataset": "folder", "paired_names": True, "lambda_paired": 5.0}
OBJECTIVES = {
    "cyclegan": {"lambda_ssim": 2.0, "pool_size": 0, "diffaugment": "color", "r1": 0.5, **PAIRED},
    "cut": {"objective": "cut", **PAIRED},
    "fastcut": {"objective": "fastcut"},
    "dclgan": {"objective": "dclgan"},
}


def box(top, bottom, left, right, side=32):
    """Return a mask, uint8 [1, side, side, 1]."""
    mask = np.zeros((1, side, side, 1), np.uint8)
    mask[:, top:bottom, left:right] = 1
    return mask


MASKS = box(4, 20, 3, 29), box(9, 30, 6, 16)


def make(options):
    return as_trained(GAN(1, Config.from_settings(**{**TINY, **options})))


def step(gan, x, y, masks=()):
    is_pair = tf.ones([1]) if "loss_G/paired" in gan.metric_names["train"] else None
    metrics, gradients, _ = train_step(gan, Batch(x, y, tf.ones([1]), is_pair=is_pair, masks=masks))
    return {name: float(value) for name, value in metrics.items()}, flat(tf.nest.flatten(gradients))


@pytest.mark.sampled
@pytest.mark.parametrize("name", OBJECTIVES)
def test_full_masks_change_nothing(make_images, name):
    gan, x, y = make(OBJECTIVES[name]), make_images(1, seed=1), make_images(1, seed=2)
    (plain, gradients), (masked, masked_gradients) = (
        step(gan, x, y, masks) for masks in ((), [np.ones((1, 32, 32, 1), np.uint8)] * 2)
    )
    assert masked == plain
    np.testing.assert_array_equal(masked_gradients, gradients)


@pytest.mark.sampled
@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_gradients_outside_are_zero(make_images, monkeypatch, name):
    """Differentiate all losses, adversarial ones included, by each value that a generator returns."""
    gan, composed, compose = make(OBJECTIVES[name]), [], losses.compose
    variables = gan.networks.generator_variables = []

    def shift_and_compose(mask, output, image):
        variables.append(tf.Variable(tf.zeros(output.shape)))
        composed.append(np.broadcast_to(mask, output.shape))
        return compose(mask, output + variables[-1], image)

    monkeypatch.setattr(losses, "compose", shift_and_compose)
    _, gradients = step(gan, make_images(1, seed=1), make_images(1, seed=2), MASKS)
    outside = ~np.stack(composed)
    gradients = gradients[: outside.size].reshape(outside.shape)
    assert composed and (gradients[outside] == 0).all()
    assert np.mean(gradients[~outside] != 0) > 0.9


@pytest.mark.sampled
@pytest.mark.parametrize("name", OBJECTIVES)
def test_translations_are_composed(make_images, name):
    gan, (x, y) = make(OBJECTIVES[name]), (to_float(make_images(1, seed=seed)) for seed in (1, 2))
    generated = gan.objective.generate(gan.networks, Inputs(x, y, masks=tuple(mask == 1 for mask in MASKS)))
    assert "G(X)" in generated.images
    for name, output in generated.images.items():
        original, mask = (x, MASKS[0]) if "(X)" in name else (y, MASKS[1])
        inside = mask[..., 0] == 1
        np.testing.assert_array_equal(np.asarray(original)[~inside], np.asarray(output)[~inside])
        assert (np.asarray(original) != np.asarray(output))[inside].any()


def test_losses_by_hand(make_images):
    """Average over all pixels, so that the balance of the losses does not depend on the size of a mask."""
    gan, bytes_x, bytes_y = make({**PAIRED, "pool_size": 0}), make_images(1, seed=1), make_images(1, seed=2)
    x, y, (m_x, m_y) = to_float(bytes_x), to_float(bytes_y), (mask.astype(np.float32) for mask in MASKS)
    G, F, D_Y = (gan.networks[name] for name in ("G", "F", "D_Y"))
    metrics, _ = step(gan, bytes_x, bytes_y, MASKS)
    fake_y, fake_x = m_x * G(x) + (1 - m_x) * x, m_y * F(y) + (1 - m_y) * y
    expected = {
        "loss_G/cycle": 10 * tf.reduce_mean(m_y * tf.abs(y - G(fake_x))),
        "loss_F/cycle": 10 * tf.reduce_mean(m_x * tf.abs(x - F(fake_y))),
        "loss_G/identity": 5 * tf.reduce_mean(m_y * tf.abs(y - G(y))),
        "loss_G/paired": 5 * tf.reduce_mean(m_x * tf.abs(y - G(x))),
        "loss_F/paired": 5 * tf.reduce_mean(m_y * tf.abs(x - F(y))),
        "loss_G/loss": tf.reduce_mean(tf.square(D_Y(fake_y) - 1)),
        "loss_Y/loss": tf.reduce_mean(tf.square(D_Y(y) - 1) + tf.square(D_Y(fake_y))) / 2,
    }
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(float(value), rel=1e-4), name
    tested = step_module.test_step(gan, Batch(bytes_x, bytes_y, tf.ones([1]), masks=MASKS))
    inside = float(tf.reduce_sum(m_x * tf.abs(x - G(x))) / (3 * m_x.sum()))
    assert float(tested["change/MAE(X, G(X))"]) == pytest.approx(inside, rel=1e-4)
    empty = step_module.test_step(gan, Batch(bytes_x, bytes_y, tf.ones([1]), masks=[np.zeros_like(m_x)] * 2))
    assert np.isfinite([float(value) for value in empty.values()]).all()


class Masked(np.ndarray):
    """Images with masks."""


def masked_dataset(count, batch, seed=0):
    """Return pairs of noise, each with a box of its own as mask."""
    rng, sets = np.random.default_rng(7), []
    for _ in "XY":
        images = rng.integers(0, 256, (count, 16, 16, 3)).astype(np.uint8).view(Masked)
        images.masks = np.concatenate([box(i % 5, 9 + i % 7, i % 3, 8 + i, 16) for i in range(count)])
        sets.append(images)
    return UnpairedDataset(*sets, batch, (16, 16), seed)


@pytest.mark.slow
def test_compiled_steps_with_masks_are_equal_on_several_replicas(strategies):
    outcomes = []
    for count in (1, 2):
        with strategies[count].scope():
            gan = with_sgd(as_trained(GAN(2, Config.from_settings(**{**TINIER, "pool_size": 2}))), 0.05)
        train, test = (make(strategies[count], gan) for make in (compile_train_step, compile_test_step))
        before, values = weights(gan), []
        for number, batch in enumerate(itertools.islice(masked_dataset(5, 2).distributed(strategies[count]), 3)):
            for function in (train, test):
                _, good, metrics = function(batch, {}, tf.constant(1), tf.constant(number))
                assert good[0]
                values += [float(value[0]) for value in metrics.values()]
        outcomes.append((values, flat(weights(gan)) - flat(before)))
    (one, moved), (two, moved_too) = outcomes
    assert np.isfinite(one).all() and np.abs(moved).max() > 1e-3
    assert len(one) == len(two) and np.abs(moved - moved_too).max() < 2e-2 * np.abs(moved).max()


def test_samples_are_composed():
    data, gan = masked_dataset(3, 1, seed=None), make({"image_size": 16, "residual_blocks": 0})
    images, masks = callbacks.load_samples(data)
    samples = callbacks.translate_samples(gan, images, masks)
    for (images, *outputs), mask in zip(samples, masks):
        for output in outputs:
            outside = ~mask[..., 0]
            np.testing.assert_array_equal(output[outside], images[outside])
            assert (output != images)[mask[..., 0]].any()
