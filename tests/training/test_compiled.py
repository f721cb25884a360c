"""Compiled steps: several in a call, on several replicas, with XLA, and with --recompute."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config, serialization
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.export.exporter import make_portable
from cyclegan.inference.model import Model
from cyclegan.methods.objective import GRADIENTS, LOSS_SCALE
from cyclegan.networks import compat, normalization
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.train_state import TrainState
from cyclegan.training.step import GAN, Batch, compile_train_step, train_step, update
from tests.training.helpers import (
    LOSSES,
    SETS,
    TINIER,
    as_trained,
    assign_state,
    flat,
    per_replica_batches,
    state_values,
    weights,
    with_sgd,
)


class Float16Run:
    """Hold a float16 GAN on two replicas and its compiled step, which can start over."""

    def __init__(self, strategy):
        self.strategy = strategy
        with strategy.scope():
            self.gan = GAN(2, Config.from_settings(**{**TINIER, "filters": 2, "precision": "float16"}))
        self.step = compile_train_step(strategy, self.gan)
        self.start = state_values(self.gan)

    def restart(self):
        assign_state(self.gan, self.start)

    def train(self, x, y, steps, totals=None):
        """Call the compiled step; return (totals, finite, metrics) as arrays."""
        totals = totals or dict.fromkeys(LOSSES, tf.constant(0.0, tf.float64))
        totals, good, metrics = self.step(per_replica_batches(self.strategy, x, y), totals, tf.constant(steps))
        return totals, good.numpy(), {key: value.numpy() for key, value in metrics.items()}


@pytest.fixture(scope="module")
def float16_run_made(strategies):
    return Float16Run(strategies[2])


@pytest.fixture
def float16_run(float16_run_made):
    float16_run_made.restart()
    return float16_run_made


@pytest.fixture
def six_pairs(make_images):
    """Return float32 images (x, y) for three steps on two replicas."""
    return tuple(make_images(6, 16, seed).astype(np.float32).reshape(3, 2, 16, 16, 3) for seed in (1, 2))


@pytest.mark.sampled
@pytest.mark.parametrize("bad", [None, 0, 1, 2])
def test_steps_in_one_call_match_single_calls(float16_run, six_pairs, bad):
    x, y = six_pairs
    if bad is not None:
        x[bad, 1, 3, 4, 1] = np.nan  # in the share of the second replica
    together, outcomes, history = float16_run.train(x, y, 3)
    weights_together = state_values(float16_run.gan)
    float16_run.restart()
    totals = None
    for number in range(3):
        before, counted = weights(float16_run.gan), dict(totals) if totals else {}
        totals, good, metrics = float16_run.train(np.roll(x, -number, axis=0), np.roll(y, -number, axis=0), 1, totals)
        assert good.tolist() == [number != bad] == [outcomes[number]]
        for key, value in metrics.items():
            np.testing.assert_array_equal(value, history[key][number : number + 1], err_msg=key)
        changed = any(not np.array_equal(a, b) for a, b in zip(before, weights(float16_run.gan)))
        assert changed == (number != bad)
        if counted:
            assert all(float(totals[key]) != float(counted[key]) for key in totals) == (number != bad)
    assert {key: float(value) for key, value in totals.items()} == {
        key: float(value) for key, value in together.items()
    }
    for one, other in zip(weights_together, state_values(float16_run.gan)):
        np.testing.assert_array_equal(one, other)


def test_fewer_steps_than_batches(float16_run, six_pairs):
    """Call the same compiled function with any number of steps."""
    x, y = six_pairs
    for steps in (3, 2, 1):
        float16_run.restart()
        _, good, metrics = float16_run.train(x, y, steps)
        assert len(good) == steps and {len(value) for value in metrics.values()} == {steps}
        assert int(float16_run.gan.generator_optimizer.iterations.numpy()) == steps
    assert float16_run.step.experimental_get_tracing_count() == 1


def test_overflow_only_halves_the_loss_scale(float16_run, six_pairs):
    scale = float16_run.gan.loss_scale.scale
    assert float(scale.numpy()) == 2.0**15
    _, good, metrics = float16_run.train(*six_pairs, 1)
    assert good.all() and metrics[LOSS_SCALE] == [2.0**15]  # summed over the replicas
    scale.assign(1e30)
    before = weights(float16_run.gan) + [v.numpy() for v in float16_run.gan.generator_optimizer.state.variables]
    _, good, metrics = float16_run.train(*six_pairs, 1)
    assert not good.any() and all(np.isfinite(metrics[name]) for name in LOSSES)
    assert not np.isfinite(metrics[GRADIENTS[0]]) and float(scale.numpy()) == pytest.approx(5e29)
    after = weights(float16_run.gan) + [v.numpy() for v in float16_run.gan.generator_optimizer.state.variables]
    assert all(np.array_equal(a, b) for a, b in zip(before, after))
    for _ in range(40):
        _, good, _ = float16_run.train(*six_pairs, 3)
        if good.all():
            break
    assert good.all() and 1 < float(scale.numpy()) < 1e9
    assert not all(np.array_equal(a, b) for a, b in zip(before, weights(float16_run.gan)))


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
    count = len(gan.metric_names["train"])
    assert np.abs(moved).max() > 1e-3
    for several, moved_too, state_too in others:
        assert several[:count] == pytest.approx(one[:count], rel=2e-5, abs=1e-6)  # of the first step
        assert several == pytest.approx(one, rel=1e-3, abs=1e-5)
        assert np.abs(moved - moved_too).max() < 2e-2 * np.abs(moved).max()
        np.testing.assert_allclose(state, state_too, atol=2e-2 * np.abs(moved).max())


COMPILED = {
    "a pool": {"pool_size": 2},
    "all at once": {**SETS["wgan-gp"], "pool_size": 2, "diffaugment": "color,cutout", "ema": 0.9, "clip_norm": 1.0},
    "no pool, no identity": {"pool_size": 0, "lambda_identity": 0.0, "adversarial": "bce", "weight_decay": 0.1},
    "cut": {"objective": "cut", "nce": "hdce", "antialias": True},
    "dclgan": {"objective": "dclgan"},
    "bfloat16": {"precision": "bfloat16", "antialias": True},
    "float16": {"precision": "float16"},
}


@pytest.mark.slow
@pytest.mark.parametrize("replicas, name", [(1, "a pool"), (2, "a pool"), *((1, name) for name in list(COMPILED)[1:])])
def test_the_compiled_program_equals_the_plain_step_but_for_rounding(
    strategies, make_images, replicas, name, monkeypatch
):
    monkeypatch.setattr(normalization, "LARGE_SAMPLE", 1)  # as for images of a usual size
    strategy = strategies[replicas]
    batch = per_replica_batches(
        strategy, *(make_images(2 * replicas, 16, seed).reshape(2, replicas, 16, 16, 3) for seed in (1, 2))
    )
    rates = tf.constant([[0.1, 0.1, 0.0], [0.1, 0.1, 0.5]])
    arguments, outcomes = (batch, {}, tf.constant(2), tf.constant(0), rates), []
    for xla in (False, True):
        with strategy.scope():
            gan = with_sgd(as_trained(GAN(replicas, Config.from_settings(**{**TINIER, **COMPILED[name]}))), 0.1)
        gan.loss_scale.scale.assign(1024.0)  # the first one would make the first step overflow
        before = weights(gan)
        step = compile_train_step(strategy, gan, xla)
        _, good, metrics = step(*arguments)
        assert good.numpy().all()
        graph = step.get_concrete_function(*arguments).graph.as_graph_def()
        compiled = [part for part in graph.library.function if part.attr["_XlaMustCompile"].b]
        assert len(compiled) == (0 if not xla else 1 if replicas == 1 else 2 * replicas)
        outcomes.append(({key: value.numpy() for key, value in metrics.items()}, before, weights(gan)))
    (plain, before, after), (compiled, _, after_compiled) = outcomes
    # Contrastive losses divide unit vectors by a temperature, which enlarges the rounding of their gradients.
    bound = 5e-2 if "precision" in COMPILED[name] else 1e-2 if "objective" in COMPILED[name] else 1e-3
    for key, values in plain.items():
        np.testing.assert_allclose(compiled[key], values, rtol=bound, atol=1e-6, err_msg=key)
    moved = np.sqrt(sum(np.square(a - b).sum() for a, b in zip(before, after)))
    apart = np.sqrt(sum(np.square(a - b).sum() for a, b in zip(after, after_compiled)))
    assert moved > 1e-2 and apart < bound * moved


RECOMPUTED = {**TINIER, "residual_blocks": 1, "lambda_identity": 0.0}  # only residual blocks are computed again


def train(gan, *images):
    """Train a step, without a graph."""
    _, gradients, carry = train_step(gan, Batch(*images, tf.ones([1])))
    update(gan, gradients, tf.constant(True), carry)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras warns when it saves
@pytest.mark.slow
@pytest.mark.parametrize("recompute", [True, False])
def test_a_run_is_restored_exported_and_continued_with_and_without_recomputation(tmp_path, recompute):
    first, other = (Config.from_settings(**RECOMPUTED, recompute=flag) for flag in (recompute, not recompute))
    images = np.random.default_rng(0).integers(0, 256, (2, 1, 16, 16, 3)).astype(np.uint8)
    gan, continued = as_trained(GAN(1, first)), GAN(1, other)
    train(gan, *images)
    serialization.save(tmp_path / "config.json", first, compat.stack(), {})
    CheckpointManager(tmp_path / "checkpoints", gan.state()).save(TrainState(epoch=1, step=1))
    G = Model(tmp_path).generator("x2y")
    x = images[0].astype(np.float32) / 255
    np.testing.assert_array_equal(G(x), gan.networks["G"](x))
    np.testing.assert_allclose(make_portable(G)(x), G(x), rtol=1e-5, atol=1e-6)
    CheckpointManager(tmp_path / "checkpoints", continued.state()).restore()
    for each in (gan, continued):
        train(with_sgd(each, 0.1), *images[:, :, ::-1])  # Adam would enlarge the rounding of small gradients
    for one, same in zip(weights(gan), weights(continued)):
        np.testing.assert_allclose(one, same, rtol=1e-5, atol=1e-6)
