import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.images.value_range import to_float
from cyclegan.methods.diffaugment import RANDOM_NUMBERS, diffaugment
from cyclegan.methods.randomness import StepRandomness
from cyclegan.training.step import GAN, Batch, train_step
from tests.training.helpers import TINY, as_trained


@pytest.mark.sampled
@pytest.mark.parametrize("options", [{"adversarial": "wgan-gp", "lambda_gp": 3.0}, {"r1": 0.7}], ids=["wgan-gp", "r1"])
def test_penalty_gradients_match_finite_differences(make_images, options, monkeypatch):
    """Compare with finite differences along a direction; tanh replaces LeakyReLU, whose derivative has a step."""
    monkeypatch.setattr(tf.keras.layers.LeakyReLU, "call", lambda self, x: tf.tanh(x))
    x, y = make_images(2, seed=1), make_images(2, seed=2)
    gan = as_trained(GAN(2, Config.from_settings(**{**TINY, "pool_size": 0, **options})))
    variables = gan.networks.discriminator_variables

    def total():
        metrics, (_, received), _ = train_step(gan, Batch(x, y, tf.ones([2])))
        names = ("loss_X/loss", "loss_Y/loss", "loss_X/penalty", "loss_Y/penalty")
        assert float(metrics["loss_X/penalty"]) > 0
        return sum(np.float64(metrics[name]) for name in names), received

    direction, norm = tf.clip_by_global_norm(total()[1], 3e-3)  # along the gradient, with some noise
    rng = np.random.default_rng(0)
    direction = [d + tf.constant(rng.normal(size=d.shape) * 1e-5, tf.float32) for d in direction]
    slope = sum(float(tf.reduce_sum(g * d)) for g, d in zip(total()[1], direction))
    assert slope > 2e-3 * float(norm)
    values = []
    for sign in (1, -2):
        for variable, d in zip(variables, direction):
            variable.assign_add(sign * d)
        values.append(total()[0])
    assert slope == pytest.approx((values[0] - values[1]) / 2, rel=2e-2)


def test_reals_and_fakes_are_augmented(make_images):
    x, y = make_images(2, seed=1), make_images(2, seed=2)
    gan = as_trained(GAN(2, Config.from_settings(**{**TINY, "pool_size": 0, "diffaugment": "translation,color"})))
    metrics, _, _ = train_step(gan, Batch(x, y, tf.ones([2])), 7)
    random = [StepRandomness(0, tf.constant(7, tf.int64), 2, 2).uniform(2 + kind, RANDOM_NUMBERS) for kind in range(4)]
    seen = [
        diffaugment(images, ("color", "translation"), d)
        for images, d in zip((to_float(y), gan.networks["G"](to_float(x))), random[::2])
    ]
    expected = Config.from_settings().objective.discriminator_loss(*(gan.networks["D_Y"](images) for images in seen))
    assert float(metrics["loss_Y/loss"]) == pytest.approx(float(tf.reduce_mean(expected)), rel=1e-4)
    gan = as_trained(GAN(2, Config.from_settings(**{**TINY, "pool_size": 0})))
    plain, _, _ = train_step(gan, Batch(x, y, tf.ones([2])), 7)
    assert float(metrics["loss_Y/loss"]) != pytest.approx(float(plain["loss_Y/loss"]), rel=1e-4)
    assert float(metrics["loss_G/cycle"]) == pytest.approx(float(plain["loss_G/cycle"]), rel=1e-5)
