import itertools

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.distribution import hardware
from cyclegan.images.value_range import to_float
from cyclegan.methods.randomness import StepRandomness
from cyclegan.training import step as step_module
from cyclegan.training.callbacks import translate_samples
from cyclegan.training.optimizers import pack, unpack, zero_unless
from cyclegan.training.step import GAN, Batch, train_step, turns, update
from tests.training.helpers import (
    FEW_LAYERS,
    TINY,
    as_trained,
    eager_step,
    flat,
    sgd_gradients,
    sgd_gradients_with,
    state_values,
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
    G, F, D_X, D_Y = (gan.networks[name] for name in ("G", "F", "D_X", "D_Y"))

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
        metrics, _, carry = train_step(gan, Batch(x, y, tf.constant(weight)), step)
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
    (_, plain), (_, decayed) = (sgd_gradients_with({"weight_decay": decay}, make_images) for decay in (0.0, 0.5))
    fresh = weights(as_trained(GAN(2, Config.from_settings(**TINY))))
    assert any(len(w.shape) == 1 for w in fresh)
    for w, one, other in zip(fresh, plain, decayed):
        added = 0.5 * w if len(w.shape) == 4 else 0.0
        np.testing.assert_allclose(other - one, added + np.zeros_like(w), atol=1e-4)


def test_biases_that_training_leaves_out_have_gradient_0(make_images):
    gan = GAN(1, Config.from_settings(**{**TINY, **FEW_LAYERS, "variant": "paper"}))
    images = make_images(1)
    _, gradients, _ = train_step(gan, Batch(images, images, tf.ones([1])))
    variables = gan.networks.generator_variables, gan.networks.discriminator_variables
    for part, of in zip(gradients, variables):
        assert [gradient.shape for gradient in part] == [variable.shape for variable in of]
        zeros = [not tf.reduce_any(gradient != 0) for gradient in part]
        # Some biases have no normalization behind.
        assert 0 < sum(zeros) < sum(len(variable.shape) == 1 for variable in of)


def test_gradients_are_clipped_by_their_global_norm(make_images):
    (gan, plain), (_, clipped) = (sgd_gradients_with({"clip_norm": norm}, make_images) for norm in (0.0, 0.01))
    count = len(gan.networks.generator_variables)
    for part in (slice(0, count), slice(count, None)):
        whole, small = flat(plain[part]), flat(clipped[part])
        assert np.linalg.norm(whole) > 0.02 and np.linalg.norm(small) == pytest.approx(0.01, rel=1e-2)
        np.testing.assert_allclose(small, whole * 0.01 / np.linalg.norm(whole), atol=1e-5)
    unchanged = sgd_gradients_with({"clip_norm": 1e6}, make_images)[1]
    np.testing.assert_allclose(flat(unchanged), flat(plain), atol=1e-6)


def test_ema_weights_follow_and_are_in_use(make_images):
    gan = with_sgd(as_trained(GAN(2, Config.from_settings(**{**TINY, "ema": 0.75}))), 0.5)
    gan.networks.reset_ema()
    x, y = make_images(2, seed=1), make_images(2, seed=2)
    expected = flat(gan.networks["G"].trainable_variables)
    for _ in range(3):
        eager_step(gan, x, y)
        expected = 0.75 * expected + 0.25 * flat(gan.networks["G"].trainable_variables)
    assert np.abs(expected - flat(gan.networks["G"].trainable_variables)).max() > 1e-3
    np.testing.assert_allclose(flat(gan.networks.ema_generators["G"].trainable_variables), expected, atol=1e-6)
    (_, fake_y, _), (_, _, cycle_y) = translate_samples(gan, [to_float(x), to_float(y)])
    np.testing.assert_array_equal(fake_y, gan.networks.ema_generators["G"](to_float(x)))
    np.testing.assert_array_equal(
        cycle_y, gan.networks.ema_generators["G"](gan.networks.ema_generators["F"](to_float(y)))
    )
    error = float(step_module.test_step(gan, Batch(x, y, tf.ones([2])))["error/MAE(X, F(X))"])
    assert error == pytest.approx(
        float(tf.reduce_mean(tf.abs(to_float(x) - gan.networks.ema_generators["F"](to_float(x))))), rel=1e-5
    )


@pytest.mark.parametrize(
    "options, generators, discriminators",
    [
        ({}, "111111", "111111"),
        ({"discriminator_steps": 3}, "001001", "111111"),
        ({"generator_steps": 2}, "111111", "010101"),
        ({"generator_steps": 3, "discriminator_steps": 2}, "111111", "011011"),
        ({"discriminator_steps": 2, "discriminator_warmup": 3}, "000101", "111111"),
    ],
)
def test_turns_take_the_last_steps_of_each_round(options, generators, discriminators):
    optimization = Config.from_settings(**options).optimization
    taken = [turns(optimization, tf.constant(step, tf.int64)) for step in range(6)]
    assert ["".join(str(int(turn)) for turn in part) for part in zip(*taken)] == [generators, discriminators]


def test_networks_update_only_on_their_turn(make_images):
    gan = as_trained(GAN(2, Config.from_settings(**{**TINY, "discriminator_steps": 2})))
    x, y = make_images(2, seed=1), make_images(2, seed=2)
    for step, turn in ((0, False), (1, True)):
        before = weights(gan)
        _, received, carry = train_step(gan, Batch(x, y, tf.ones([2])), step)
        update(gan, received, tf.constant(True), carry, tf.constant(step))
        moved = [not np.array_equal(a, b) for a, b in zip(before, weights(gan))]
        count = len(gan.networks.generator_variables)
        assert any(moved[:count]) is turn and all(moved[count:])
    optimizers = gan.generator_optimizer, gan.discriminator_optimizer
    assert [int(optimizer.iterations.numpy()) for optimizer in optimizers] == [1, 2]


def test_nonfinite_step_changes_no_state(make_images):
    options = {"norm": "batch", "ema": 0.5, "dropout": 0.2, "pool_size": 1, "weight_decay": 0.1, "clip_norm": 1.0}
    gan = as_trained(GAN(1, Config.from_settings(**{**TINY, **options})))
    x, y = make_images(1, seed=1), make_images(1, seed=2)
    eager_step(gan, x, y)

    before = state_values(gan)
    assert len(gan.networks.statistics) > 10
    for finite in (False, True):
        _, received, carry = train_step(gan, Batch(x, y, tf.ones([1])), 1)
        update(gan, received, tf.constant(finite), carry, tf.constant(1))
        same = [np.array_equal(a, b) for a, b in zip(before, state_values(gan))]
        assert all(same) is not finite
    statistics = [tf.convert_to_tensor(v).numpy() for v in gan.networks.statistics]
    assert not any(np.array_equal(a, b) for a in statistics for b in before if a.shape == b.shape)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_gradients_are_packed_masked_and_unpacked(on_gpu, monkeypatch):
    monkeypatch.setattr(hardware, "has_accelerator", lambda: on_gpu)
    variables = [tf.Variable(tf.zeros(shape)) for shape in ([2, 3], [4])]
    gradients = [tf.reshape(tf.range(6.0), [2, 3]), tf.constant([1.0, np.inf, np.nan, 2.0])]
    packed = pack(gradients)
    assert len(packed) == (1 if on_gpu else 2)
    for finite in (True, False):
        found = unpack(zero_unless(tf.constant(finite), packed), variables)
        for one, expected in zip(found, gradients):
            np.testing.assert_array_equal(one, expected if finite else tf.zeros_like(expected))


def test_initial_weights_depend_on_the_seed():
    one, same, other = (weights(GAN(1, Config.from_settings(seed=seed, **TINY))) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, same))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other))
    distinct = [w for w in one if w.std() > 0]
    assert not any(np.array_equal(a, b) for a, b in itertools.combinations(distinct, 2))


def test_checkpoint_of_gpus_restores_on_a_cpu(tmp_path, monkeypatch):
    """Restore into layers that may have other classes, see `make_instance_normalization`."""
    with monkeypatch.context() as patch:
        patch.setattr(hardware, "has_accelerator", lambda: True)
        on_gpus = GAN(1, Config.from_settings(**TINY, pool_size=0))
    on_cpu = GAN(1, Config.from_settings(**{**TINY, "pool_size": 0, "seed": 1}))
    path = tf.train.Checkpoint(**on_gpus.state()).write(str(tmp_path / "state"))
    tf.train.Checkpoint(**on_cpu.state()).read(path).assert_consumed().assert_existing_objects_matched()
    assert all(np.array_equal(a, b) for a, b in zip(weights(on_gpus), weights(on_cpu)))
