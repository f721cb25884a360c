import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution import collectives
from cyclegan.methods.cyclegan import LOSSES
from cyclegan.methods.metric_names import GRADIENTS, SAMPLES
from cyclegan.networks import instance_normalization
from cyclegan.training import step as step_module
from cyclegan.training.gan import GAN
from cyclegan.training.step import compile_train_step
from tests.training.helpers import (
    SETS,
    TINIER,
    as_trained,
    flat,
    per_replica_batches,
    state_values,
    weights,
    with_sgd,
)


@pytest.fixture(scope="module", params=["small", pytest.param("large", marks=pytest.mark.slow)])
def two_steps(request, strategies):
    """Return a function of the number of replicas, see `take_two_steps`; the layers normalize small or large samples."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "large":
            patch.setattr(instance_normalization, "LARGE_SAMPLE", 1)
        yield functools.cache(lambda replicas: take_two_steps(strategies[replicas]))


def take_two_steps(strategy):
    """Return the metrics of two steps with SGD, the weights before and after, and the number of updates.

    The second global batch has a single sample, so two of three replicas have only padding.
    """
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 256, (7, 16, 16, 3)).astype(np.uint8) for _ in "xy")
    pairs = UnpairedDataset(x, y, 6, (16, 16), seed=0)
    with strategy.scope():
        gan = with_sgd(GAN(6, Config.from_settings(**TINIER)), 0.1)
    before = weights(gan)
    step = compile_train_step(strategy, gan)
    metrics, after = [], [before]
    for batch in itertools.islice(pairs.distributed(strategy), 2):
        taken = step(batch, {}, tf.constant(1))[2]
        metrics.append({key: float(value[0]) for key, value in taken.items() if key not in GRADIENTS})
        after.append(weights(gan))
    return metrics, after, int(gan.generator_optimizer.iterations.numpy())


@pytest.mark.sampled
@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("step", [0, 1], ids=["full batch", "one sample"])
def test_losses_and_weights_on_several_replicas(two_steps, replicas, step):
    (one, one_weights, _), (many, many_weights, _) = two_steps(1), two_steps(replicas)
    assert one[step].keys() == many[step].keys() == {*LOSSES, SAMPLES}
    for key in LOSSES:
        assert many[step][key] == pytest.approx(one[step][key], rel=2e-5), key
    moved = max(np.abs(after - before).max() for before, after in zip(one_weights[step], one_weights[step + 1]))
    apart = max(np.abs(a - b).max() for a, b in zip(one_weights[step + 1], many_weights[step + 1]))
    assert moved > 1e-3 and apart < 1e-3 * moved


@pytest.mark.sampled
@pytest.mark.parametrize("replicas", [2, 1, 3])
def test_updates_count_once(two_steps, replicas):
    assert two_steps(replicas)[2] == 2


@pytest.mark.sampled
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name != "bce" else ()) for name in SETS])
def test_all_options_give_the_same_result_on_several_replicas(strategies, name):
    """Take four steps; the last batch has a single sample."""
    options, counts, batch_size = SETS[name], (1, 3), 3
    if name in ("wgan-gp", "cut", "fastcut", "bce"):
        counts, batch_size = (1, 2, 3), 6
    rng = np.random.default_rng(0)
    config = Config.from_settings(**{**TINIER, "filters": 2, **options})
    height, width = config.data.image_shape
    x, y = (
        rng.integers(0, 256, (3 * batch_size + 1, height, width, channels)).astype(np.uint8)
        for channels in (config.data.channels_x, config.data.channels_y)
    )
    outcomes = []
    for strategy in (strategies[count] for count in counts):
        with strategy.scope():
            gan = with_sgd(as_trained(GAN(batch_size, config)), 0.05)
        step, metrics = compile_train_step(strategy, gan), []
        before = weights(gan)
        pairs = UnpairedDataset(x, y, batch_size, config.data.image_shape, seed=0)
        if config.uses_pairs:
            pairs.set_pairs(np.stack([np.arange(8)] * 2, axis=1), config.data.paired_share)
        batches = itertools.islice(pairs.distributed(strategy), 4)
        for number, batch in enumerate(batches):
            _, good, taken = step(batch, {}, tf.constant(1), tf.constant(number))
            assert good[0]
            metrics += [float(taken[name][0]) for name in gan.metric_names["train"]]
        moved = flat(weights(gan)) - flat(before)
        outcomes.append((metrics, moved, flat(tf.cast(v, tf.float32) for v in state_values(gan))))
    (one, moved, state), *others = outcomes
    assert np.abs(moved).max() > 1e-3
    for several, moved_too, state_too in others:
        assert several == pytest.approx(one, rel=1e-3, abs=1e-5)
        assert np.abs(moved - moved_too).max() < 2e-2 * np.abs(moved).max()
        np.testing.assert_allclose(state, state_too, atol=2e-2 * np.abs(moved).max())


@pytest.mark.slow
def test_one_of_three_replicas_returns_a_third(strategies, make_images):
    strategy = strategies[3]
    with strategy.scope():
        gan = GAN(3, Config.from_settings(**TINIER))
    x = strategy.experimental_distribute_values_from_function(lambda _: tf.constant(make_images(1, 16)))
    weight = strategy.experimental_distribute_values_from_function(lambda _: tf.ones([1]))
    per_replica = tf.function(lambda: strategy.run(step_module.test_step, (gan, x, x, weight)))()
    shares = [float(share) for share in strategy.experimental_local_results(per_replica["loss_G/loss"])]
    assert shares == pytest.approx([1 / 3] * 3, abs=0.01)
    reduced = strategy.run(lambda metrics: collectives.reduce_dict(metrics)[0], args=(per_replica,))
    for total in strategy.experimental_local_results(reduced["loss_G/loss"]):
        assert float(total) == pytest.approx(sum(shares))


@pytest.mark.slow
def test_nonfinite_step_updates_no_replica(strategies, make_images):
    strategy = strategies[3]
    with strategy.scope():
        gan = GAN(3, Config.from_settings(**TINIER))
        factor = tf.Variable(1.0)
    similarity = gan.objective._reconstruction_losses

    def with_root(x, y, images, weight):  # the gradient is infinite where the variable is zero
        metrics = similarity(x, y, images, weight)
        metrics["loss_G/cycle"] += tf.sqrt(factor * tf.reduce_sum(images.fake_y**2))
        return metrics

    gan.objective._reconstruction_losses = with_root
    step = compile_train_step(strategy, gan)
    x, y = (make_images(3, 16, seed).astype(np.float32) for seed in (1, 2))

    def run(totals):
        batch = per_replica_batches(strategy, x[None], y[None])
        totals, good, metrics = step(batch, totals, tf.constant(1))
        bad = {name for name, value in metrics.items() if not np.isfinite(float(value[0]))}
        return totals, bool(good[0]), bad

    totals, good, bad = run({"loss_G/cycle": tf.constant(1.0, tf.float64), SAMPLES: tf.constant(2.0, tf.float64)})
    assert good and not bad and float(totals[SAMPLES]) == pytest.approx(5)
    before, counted = state_values(gan), [float(value) for value in totals.values()]

    def nothing_has_changed():
        assert [float(value) for value in totals.values()] == counted
        for old, new in zip(before, state_values(gan)):
            np.testing.assert_array_equal(old, new)

    x[2, 3, 4, 1] = np.nan  # one pixel in the share of the last replica
    totals, good, bad = run(totals)
    assert not good and {"loss_F/cycle", *GRADIENTS} <= bad
    nothing_has_changed()
    x[2, 3, 4, 1] = 0

    weight = gan.networks["D_X"].trainable_variables[0]
    healthy = tf.convert_to_tensor(weight).numpy()
    weight.assign(tf.fill(weight.shape, np.inf))
    totals, good, bad = run(totals)
    assert not good and "loss_X/loss" in bad and "loss_Y/loss" not in bad
    weight.assign(healthy)
    nothing_has_changed()

    factor.assign(0.0)
    totals, good, bad = run(totals)
    assert not good and bad == {"gradients of the generators"}
    nothing_has_changed()

    factor.assign(1.0)
    totals, good, bad = run(totals)
    assert good and not bad and float(totals[SAMPLES]) == pytest.approx(8)
    assert all(np.isfinite(value).all() for value in state_values(gan))
