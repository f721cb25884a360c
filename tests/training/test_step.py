import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.images.value_range import to_float
from cyclegan.methods.metric_names import WEIGHT_DECAY
from cyclegan.methods.randomness import StepRandomness
from cyclegan.training.gan import GAN
from cyclegan.training.step import train_step
from tests.training.helpers import (
    FEW_LAYERS,
    TINY,
    as_trained,
    eager_step,
    sgd_gradients,
    sgd_gradients_with,
    weights,
    with_sgd,
)


@pytest.mark.sampled
@pytest.mark.parametrize("adversarial", ["lsgan", "bce"])
def test_gradients_match_a_tape_per_network(make_images, adversarial):
    x, y = make_images(2, seed=1), make_images(2, seed=2)

    def make():
        return as_trained(GAN(2, Config.from_settings(adversarial=adversarial, seed=5, **TINY)))

    def apart(got, expected):
        return np.linalg.norm(got - expected) / np.linalg.norm(expected)

    got, expected = sgd_gradients(make(), x, y), oracle(make(), x, y, adversarial)
    assert apart(*(np.concatenate([g.ravel() for g in part]) for part in (got, expected))) < 5e-3
    # Rounding may turn the sign of a value near 0, which matters in a small tensor.
    assert max(map(apart, got, expected)) < 5e-2


def oracle(gan, x, y, adversarial):
    """Return the gradients from a tape for each network, with all images computed anew each time."""
    x, y = to_float(x), to_float(y)
    G, F, D_X, D_Y = (
        gan.networks["G"],
        gan.networks["F"],
        gan.networks["D_X"],
        gan.networks["D_Y"],
    )

    def adversarial_loss(logits, target):
        if adversarial == "lsgan":
            return tf.reduce_mean((logits - target) ** 2)
        p = tf.sigmoid(logits)
        return -tf.reduce_mean(target * tf.math.log(p) + (1 - target) * tf.math.log(1 - p))

    def both_cycles():
        return 10 * tf.reduce_mean(tf.abs(x - F(G(x)))) + 10 * tf.reduce_mean(tf.abs(y - G(F(y))))

    shares = {
        G: lambda: adversarial_loss(D_Y(G(x)), 1.0) + both_cycles() + 5 * tf.reduce_mean(tf.abs(y - G(y))),
        F: lambda: adversarial_loss(D_X(F(y)), 1.0) + both_cycles() + 5 * tf.reduce_mean(tf.abs(x - F(x))),
        D_X: lambda: 0.5 * (adversarial_loss(D_X(x), 1.0) + adversarial_loss(D_X(F(y)), 0.0)),
        D_Y: lambda: 0.5 * (adversarial_loss(D_Y(y), 1.0) + adversarial_loss(D_Y(G(x)), 0.0)),
    }
    result = []
    for network, loss in shares.items():
        with tf.GradientTape() as tape:
            value = loss()
        result += tape.gradient(value, network.trainable_variables)
    return [tf.convert_to_tensor(g).numpy() for g in result]


@pytest.mark.parametrize("pool_size, runs", [(0, 6), (50, 8)])
def test_no_network_runs_twice_on_an_input(make_images, pool_size, runs):
    gan = GAN(1, Config.from_settings(pool_size=pool_size, **TINY))
    seen = []
    for networks in (gan.networks.generators, gan.networks.discriminators):
        for name, network in networks.items():

            def count(x, training=None, name=name, network=network):
                seen.append((name, x.numpy().tobytes()))
                return network(x, training=training)

            networks[name] = count
    eager_step(gan, make_images(1, seed=1), make_images(1, seed=2))
    # G and F run on (x, y) and on the fakes; D_X and D_Y on (real, fake), and on the new fake if the pool shows another one.
    assert len(seen) == len(set(seen)) == runs


@pytest.mark.slow
def test_discriminator_runs_once_without_a_pool(make_images):
    for options, runs in (({"pool_size": 0}, 1), ({"pool_size": 3}, 2)):
        gan, seen = GAN(1, Config.from_settings(**{**TINY, **FEW_LAYERS, **options})), []
        network = gan.networks["D_Y"]
        gan.networks.discriminators["D_Y"] = lambda x, training, seen=seen, network=network: seen.append(1) or network(
            x, training=training
        )
        step = tf.function(lambda x, y, gan=gan: train_step(gan, x, y, tf.ones([1]))[0], autograph=False)
        step(make_images(1, seed=1), make_images(1, seed=2))
        assert len(seen) == runs


def test_losses_of_the_first_step(make_images):
    metrics = eager_step(
        GAN(1, Config.from_settings(filters=16, residual_blocks=1, image_size=32)),
        make_images(1, seed=1),
        make_images(1, seed=2),
    )
    for key in ("loss_G/loss", "loss_F/loss"):
        assert metrics[key] == pytest.approx(1, abs=0.01)
    for key in ("loss_X/loss", "loss_Y/loss"):
        assert metrics[key] == pytest.approx(0.5, abs=0.01)
    for name in ("loss_G", "loss_F"):  # an untrained generator makes gray images
        assert metrics[f"{name}/identity"] == pytest.approx(metrics[f"{name}/cycle"] / 2, rel=0.01)
        total = sum(metrics[f"{name}/{part}"] for part in ("loss", "cycle", "identity"))
        assert metrics[f"{name}/total"] == pytest.approx(total)


def test_padding_has_no_effect(make_images):
    x, y = make_images(3, seed=1), make_images(3, seed=2)
    other = make_images(3, seed=9)
    other[0] = x[0]
    one = sgd_gradients(GAN(3, Config.from_settings(**TINY)), x, y, [1, 0, 0])
    same = sgd_gradients(GAN(3, Config.from_settings(**TINY)), other, y, [1, 0, 0])
    for a, b in zip(one, same):
        np.testing.assert_allclose(a, b, atol=1e-6)
    full = sgd_gradients(GAN(3, Config.from_settings(**TINY)), x, y, [1, 1, 1])
    assert max(np.abs(a - b).max() for a, b in zip(one, full)) > 1e-3


def test_pool_shows_old_fakes_to_the_discriminators_only(make_images):
    """Use a pool of one image, in which a swap shows the fake of the previous step."""
    config = Config.from_settings(**{**TINY, "pool_size": 1})
    gan, weight = with_sgd(as_trained(GAN(1, config)), 0.0), np.ones(1, np.float32)
    swaps = [
        bool(StepRandomness(config.optimization.seed, tf.constant(step, tf.int64), 1, 1).uniform(0, 2)[0, 0] < 0.5)
        for step in range(12)
    ]
    assert any(swaps[1:]) and not all(swaps[1:])
    stored = None
    for step, swap in enumerate(swaps):
        x, y = make_images(1, seed=step), make_images(1, seed=100 + step)
        metrics, _, carry = train_step(gan, x, y, tf.constant(weight), step)
        gan.pools["Y"].store(carry[0][0], tf.constant(True))
        fake = gan.networks["G"](to_float(x))
        shown = stored if swap and step else fake
        expected = config.objective.discriminator_loss(gan.networks["D_Y"](to_float(y)), gan.networks["D_Y"](shown))
        assert float(metrics["loss_Y/loss"]) == pytest.approx(float(expected[0]), rel=1e-4)
        generator_losses = config.objective.generator_loss(gan.networks["D_Y"](fake))
        assert float(metrics["loss_G/loss"]) == pytest.approx(float(generator_losses[0]), rel=1e-4)
        stored = fake if swap or not step else stored


@pytest.mark.slow
def test_weight_decay_adds_kernels_to_the_gradients(make_images):
    (gan, plain), (_, decayed) = (sgd_gradients_with({"weight_decay": decay}, make_images) for decay in (0.0, 0.5))
    fresh = weights(as_trained(GAN(2, Config.from_settings(**TINY))))
    assert any(len(w.shape) == 1 for w in fresh)
    for w, one, other in zip(fresh, plain, decayed):
        added = 0.5 * w if len(w.shape) == 4 else 0.0
        np.testing.assert_allclose(other - one, added + np.zeros_like(w), atol=1e-4)
    metrics = eager_step(
        as_trained(GAN(2, Config.from_settings(**{**TINY, "weight_decay": 0.5}))), *[make_images(2)] * 2
    )
    kernels = [w for w in fresh[: len(gan.networks.generator_variables)] if len(w.shape) == 4]
    assert metrics[WEIGHT_DECAY[0]] == pytest.approx(
        0.25 * sum((w.astype(np.float64) ** 2).sum() for w in kernels), rel=1e-4
    )


def test_weight_decay_of_a_padded_batch(make_images):
    gan = as_trained(GAN(3, Config.from_settings(**{**TINY, "weight_decay": 0.1})))
    x, y = make_images(3, seed=1), make_images(3, seed=2)
    means = []
    for weight in ([1.0, 1, 1], [1.0, 0, 0]):
        metrics, _, _ = train_step(gan, x, y, tf.constant(weight))
        means.append([float(metrics[name] / metrics["samples"]) for name in WEIGHT_DECAY])
    assert means[0] == pytest.approx(means[1], rel=1e-5) and min(means[0]) > 0


def test_biases_that_training_leaves_out_have_gradient_0(make_images):
    gan = GAN(1, Config.from_settings(**{**TINY, **FEW_LAYERS, "variant": "paper"}))
    images = make_images(1)
    _, gradients, _ = train_step(gan, images, images, tf.ones([1]))
    variables = gan.networks.generator_variables, gan.networks.discriminator_variables
    for part, of in zip(gradients, variables):
        assert [gradient.shape for gradient in part] == [variable.shape for variable in of]
        zeros = [not tf.reduce_any(gradient != 0) for gradient in part]
        assert (
            0 < sum(zeros) < sum(len(variable.shape) == 1 for variable in of)
        )  # some biases have no normalization behind
