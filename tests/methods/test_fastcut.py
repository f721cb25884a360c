import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.images.value_range import to_float
from cyclegan.methods import losses
from cyclegan.methods.cut import random_positions
from cyclegan.methods.randomness import FLIP, StepRandomness
from cyclegan.networks.features import compute_features
from cyclegan.training import step as step_module
from cyclegan.training.gan import GAN
from tests.training.helpers import TINY, as_trained, eager_step

NAMES = ("loss_G/loss", "loss_G/nce", "loss_G/total", "loss_Y/loss")


@pytest.fixture(scope="module")
def gan():
    return as_trained(GAN(4, Config.from_settings(**TINY, objective="fastcut")))


def test_a_step_by_hand(gan, make_images):
    """Mirror whole feature maps back, as the reference does, instead of the positions in them."""
    x, y = make_images(4, seed=1), make_images(4, seed=2)
    noise = gan.objective.make_noise(StepRandomness(gan.optimization.seed, tf.constant(0, tf.int64), 4, 4), (32, 32))
    positions, flip = random_positions(noise), noise[FLIP].numpy()[:, None, None, None]
    assert 0 < flip.sum() < 4

    def mirror(images):
        return np.where(flip, images[:, :, ::-1], images)

    fake_y = gan.networks["G"](mirror(to_float(x)), training=True)
    queries = [mirror(each.numpy()) for each in compute_features(gan.networks["G"], fake_y, training=True)]
    keys = compute_features(gan.networks["G"], to_float(x), training=True)
    rows = [
        [np.take_along_axis(np.reshape(each, (4, -1, each.shape[-1])), at.numpy()[..., None], 1) for each in pair]
        for *pair, at in zip(queries, keys, positions)
    ]
    terms = [losses.patch_nce(*pair) for pair in zip(*(gan.networks.heads(list(part)) for part in zip(*rows)))]
    nce, loss = 10 * float(tf.reduce_mean(terms)), float(tf.reduce_mean((gan.networks["D_Y"](fake_y) - 1) ** 2))
    metrics = eager_step(gan, x, y)
    assert tuple(metrics)[:4] == gan.metric_names["train"] == NAMES
    assert metrics["loss_G/nce"] == pytest.approx(nce, rel=1e-4)
    assert metrics["loss_G/loss"] == pytest.approx(loss, rel=1e-4)
    assert metrics["loss_G/total"] == pytest.approx(nce + loss, rel=1e-4)


def test_validation_mirrors_nothing(gan, make_images):
    x, y = make_images(4, seed=1), make_images(4, seed=2)
    metrics = step_module.test_step(gan, x, y, tf.ones([4]))
    assert {*NAMES, "error/MAE(Y, G(Y))", "change/MAE(X, G(X))"} <= set(metrics)
    change = np.abs(gan.networks["G"](to_float(x)) - to_float(x)).mean()
    assert float(metrics["change/MAE(X, G(X))"]) == pytest.approx(change, rel=1e-4)


def test_flops_by_hand(gan, monkeypatch):
    """Count with a generator of 1000 MACs, of which the encoder has 400, and a discriminator of 10."""
    work = {gan.networks["G"]: 1000, gan.networks["D_Y"]: 10}
    monkeypatch.setattr(
        "cyclegan.networks.features.count_macs",
        lambda network, height, width, last=None: 400 if last else work[network],
    )
    assert gan.flops(4, 5) == 2 * (3 * 1000 + (3 + 1) * 400 + (2 * 3 + 1) * 10)
