import types

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.images.value_range import to_float
from cyclegan.training import step as step_module
from cyclegan.training.gan import GAN
from cyclegan.training.step import train_step, turns, update
from tests.training.helpers import (
    TINY,
    as_trained,
    eager_step,
    flat,
    sgd_gradients_with,
    weights,
    with_sgd,
)


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
    (fake_y, _), (_, cycle_y) = gan.objective.translate_samples(gan.networks.in_use, to_float(x), to_float(y))
    np.testing.assert_array_equal(fake_y, gan.networks.ema_generators["G"](to_float(x)))
    np.testing.assert_array_equal(
        cycle_y, gan.networks.ema_generators["G"](gan.networks.ema_generators["F"](to_float(y)))
    )
    error = float(step_module.test_step(gan, x, y, tf.ones([2]))["error/MAE(X, F(X))"])
    assert error == pytest.approx(
        float(tf.reduce_mean(tf.abs(to_float(x) - gan.networks.ema_generators["F"](to_float(x))))), rel=1e-5
    )
    before = flat(gan.networks.ema_generators["G"].trainable_variables)
    _, received, carry = train_step(gan, x, y, tf.ones([2]))
    update(gan, received, tf.constant(False), carry)
    np.testing.assert_array_equal(flat(gan.networks.ema_generators["G"].trainable_variables), before)


@pytest.mark.parametrize(
    "options, generators, discriminators",
    [
        ({}, "111111", "111111"),
        ({"discriminator_steps": 3}, "001001", "111111"),
        ({"generator_steps": 2}, "111111", "010101"),
        ({"generator_steps": 3, "discriminator_steps": 2}, "111111", "011011"),
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
        _, received, carry = train_step(gan, x, y, tf.ones([2]), step)
        update(gan, received, tf.constant(True), carry, tf.constant(step))
        moved = [not np.array_equal(a, b) for a, b in zip(before, weights(gan))]
        count = len(gan.networks.generator_variables)
        assert any(moved[:count]) is turn and all(moved[count:])
    assert (
        int(gan.generator_optimizer.iterations.numpy()) == 1
        and int(gan.discriminator_optimizer.iterations.numpy()) == 2
    )


def test_learning_rates_of_both_optimizers(make_images):
    x, y = make_images(2, seed=1), make_images(2, seed=2)
    gan = as_trained(GAN(2, Config.from_settings(**{**TINY, "lr": 0.0125, "lr_discriminator": 0.05})))
    for rates, expected in ((None, (0.0125, 0.05)), (tf.constant([0.25, 0.5]), (0.25, 0.5))):
        seen = []
        gan.generator_optimizer = gan.discriminator_optimizer = types.SimpleNamespace(
            apply=lambda gradients, variables, learning_rate, finite, seen=seen: seen.append(float(learning_rate))
        )
        _, received, carry = train_step(gan, x, y, tf.ones([2]))
        update(gan, received, tf.constant(True), carry, 0, rates)
        assert seen == pytest.approx(expected)


def test_nonfinite_step_changes_no_state(make_images):
    options = {"norm": "batch", "ema": 0.5, "dropout": 0.2, "pool_size": 1, "weight_decay": 0.1, "clip_norm": 1.0}
    gan = as_trained(GAN(1, Config.from_settings(**{**TINY, **options})))
    x, y = make_images(1, seed=1), make_images(1, seed=2)
    eager_step(gan, x, y)

    def state_values():
        parts = {name: part for name, part in gan.state().items() if name != "loss_scale"}
        return [tf.convert_to_tensor(v).numpy() for part in parts.values() for v in part.variables]

    before = state_values()
    assert len(gan.networks.statistics) > 10
    for finite in (False, True):
        _, received, carry = train_step(gan, x, y, tf.ones([1]), 1)
        update(gan, received, tf.constant(finite), carry, tf.constant(1))
        same = [np.array_equal(a, b) for a, b in zip(before, state_values())]
        assert all(same) is not finite
    statistics = [tf.convert_to_tensor(v).numpy() for v in gan.networks.statistics]
    assert not any(np.array_equal(a, b) for a in statistics for b in before if a.shape == b.shape)
