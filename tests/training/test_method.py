"""The options of the method, in the step that they change: against oracles, and on any number of replicas."""

import functools
import itertools
import types

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.images.value_range import to_float
from cyclegan.networks.activation import LeakyReLU
from cyclegan.training import losses
from cyclegan.training import step as step_module
from cyclegan.training.compiled_steps import compile_train_step
from cyclegan.training.diffaugment import RANDOM_NUMBERS, diffaugment
from cyclegan.training.gan import GAN
from cyclegan.training.metric_names import GRADIENTS, LOSSES, PENALTIES, WEIGHT_DECAY
from cyclegan.training.randomness import StepRandomness
from cyclegan.training.update import turns, update
from tests.training.test_gan import TINIER, TINY, as_trained, eager_step, gradients, weights, with_sgd

ONE = tf.constant([1.0])


def flat(arrays):
    return np.concatenate([np.ravel(tf.convert_to_tensor(array)) for array in arrays])


def of_discriminators(gan, arrays):
    """The part of `weights` or `gradients` that belongs to the discriminators."""
    return flat(arrays[len(gan.networks.generator_variables) :])


def step_of(config, make_images):
    """(gan, what SGD changes in a step with it) for two pairs."""
    gan = as_trained(GAN(2, Config.from_settings(**{**TINY, "pool_size": 0, **config})))
    return gan, gradients(gan, make_images(2, seed=1), make_images(2, seed=2))


FEW_LAYERS = {"residual_blocks": 0, "discriminator_layers": 1}  # which take long to trace
# All options of the method that change a step, in as few runs as possible.
SETS = {
    "batch": {"norm": "batch", "dropout": 0.3, "adversarial": "hinge", "pool_size": 2, "ema": 0.5},
    "wgan-gp": {
        **FEW_LAYERS,
        **{"adversarial": "wgan-gp", "lambda_gp": 2.0, "r1": 0.5, "diffaugment": "color,translation,cutout"},
        **{"pool_size": 2, "ema": 0.5, "clip_norm": 0.3, "weight_decay": 0.01, "discriminator_steps": 2},
    },
    "resize": {
        **{"residual_blocks": 0, "upsample": "resize", "discriminator": "pixel"},
        **{"channels_x": 1, "channels_y": 2, "pool_size": 2},
    },
    "bce": {**FEW_LAYERS, "adversarial": "bce", "label_smoothing": 0.2, "generator_steps": 2, "pool_size": 4},
    "unet": {
        **{"generator": "unet_128", "residual_blocks": None, "image_size": 128, "image_width": 128, "load_size": 128},
        **{
            "discriminator": "pixel",
            "discriminator_layers": 3,
            "init": "xavier",
            "pool_size": 2,
            "lr_schedule": "cosine",
        },
    },
}


@pytest.mark.parametrize(
    "options",
    [pytest.param(SETS[name], marks=pytest.mark.slow if name != "bce" else ()) for name in SETS],
    ids=SETS,
)
def test_the_same_on_one_and_three_replicas(strategies, options):
    """Four steps of a global batch of three; the last one has a single sample."""
    rng = np.random.default_rng(0)
    config = Config.from_settings(**{**TINIER, "filters": 2, **options})
    height, width = config.data.image_shape
    x, y = (
        rng.integers(0, 256, (10, height, width, channels)).astype(np.uint8)
        for channels in (config.data.channels_x, config.data.channels_y)
    )
    outcomes = []
    for replicas in (1, 3):
        strategy = strategies[replicas]
        with strategy.scope():
            gan = with_sgd(as_trained(GAN(3, config)), 0.05)
        step, figures = compile_train_step(strategy, gan), []
        before = weights(gan)
        batches = itertools.islice(UnpairedDataset(x, y, 3, config.data.image_shape, seed=0).distributed(strategy), 4)
        for number, batch in enumerate(batches):
            _, good, taken = step(batch, {}, tf.constant(1), tf.constant(number))
            assert good[0]
            figures += [float(taken[name][0]) for name in gan.metric_names["train"]]
        moved = flat(weights(gan)) - flat(before)
        evolved = [v for name, part in gan.state().items() if "optimizer" not in name for v in part.variables]
        outcomes.append((figures, moved, flat(tf.cast(v, tf.float32) for v in evolved)))
    (one, moved, state), (three, moved_too, state_too) = outcomes
    assert three == pytest.approx(one, rel=1e-3, abs=1e-5)
    assert np.abs(moved).max() > 1e-3 and np.abs(moved - moved_too).max() < 2e-2 * np.abs(moved).max()
    np.testing.assert_allclose(state, state_too, atol=2e-2 * np.abs(moved).max())


def test_the_pool_shows_discriminators_old_fakes_and_generators_new_ones(make_images):
    """A pool of one: where it swaps, what the discriminators learn is of the step before, bit for bit."""
    config = Config.from_settings(**{**TINY, "pool_size": 1})
    gan, rest = with_sgd(as_trained(GAN(1, config)), 0.0), np.ones(1, np.float32)
    swaps = [
        bool(StepRandomness(config.optimization.seed, tf.constant(step, tf.int64), 1, 1).uniform(0, 2)[0, 0] < 0.5)
        for step in range(12)
    ]
    assert any(swaps[1:]) and not all(swaps[1:])
    stored = None
    for step, swap in enumerate(swaps):
        x, y = make_images(1, seed=step), make_images(1, seed=100 + step)
        figures, _, kept = step_module.train_step(gan, x, y, tf.constant(rest), step)
        gan.pools["Y"].store(kept[0][0], tf.constant(True))
        fake = gan.networks.generators["G"](to_float(x))
        shown = stored if swap and step else fake
        expected = losses.discriminator_loss(
            "lsgan", gan.networks.discriminators["D_Y"](to_float(y)), gan.networks.discriminators["D_Y"](shown)
        )
        assert float(figures["loss_Y/loss"]) == pytest.approx(float(expected[0]), rel=1e-4)
        deceived = losses.generator_loss("lsgan", gan.networks.discriminators["D_Y"](fake))
        assert float(figures["loss_G/loss"]) == pytest.approx(float(deceived[0]), rel=1e-4)
        stored = fake if swap or not step else stored


def test_penalties_are_those_of_gradients_by_finite_differences(make_images):
    """In float64 by hand: a discriminator that is a quadratic form, whose gradient is known."""
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


@pytest.mark.parametrize("options", [{"adversarial": "wgan-gp", "lambda_gp": 3.0}, {"r1": 0.7}], ids=["wgan-gp", "r1"])
def test_discriminators_descend_their_penalties(make_images, options, monkeypatch):
    """Their gradients against differences of the value along a direction; with slopes that have no steps, as LeakyReLU's."""
    monkeypatch.setattr(LeakyReLU, "call", lambda self, x: tf.tanh(x))
    x, y = make_images(2, seed=1), make_images(2, seed=2)
    gan = as_trained(GAN(2, Config.from_settings(**{**TINY, "pool_size": 0, **options})))
    variables = gan.networks.discriminator_variables

    def total():
        figures, (_, received), _ = step_module.train_step(gan, x, y, tf.ones([2]))
        names = ("loss_X/loss", "loss_Y/loss", *PENALTIES)
        assert float(figures[PENALTIES[0]]) > 0
        return sum(np.float64(figures[name]) for name in names), received

    direction, norm = tf.clip_by_global_norm(total()[1], 3e-3)  # along itself, and a little astray
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


@pytest.mark.parametrize("adversarial", ["hinge", "wgan-gp"])
def test_losses_without_labels_by_hand(adversarial):
    real, fake = (tf.reshape(tf.constant(values), [2, 1, 2, 1]) for values in ([0.5, 3.0, -1, -1], [0.0, -2.0, 2, 0]))
    hinge = [0.5 * (0.25 + 0.5), 0.5 * (2 + 2)]
    wasserstein = [0.5 * (-1 - 1.75), 0.5 * (1 + 1)]
    got = losses.discriminator_loss(adversarial, real, fake)
    np.testing.assert_allclose(got, hinge if adversarial == "hinge" else wasserstein)
    np.testing.assert_allclose(losses.generator_loss(adversarial, fake), [1, -1])


def test_smoothed_labels_by_hand():
    ones, zeros = tf.ones([1, 1, 1, 1]), tf.zeros([1, 1, 1, 1])
    assert losses.discriminator_loss("lsgan", ones, zeros, 0.25).numpy() == pytest.approx(0.5 * 0.25**2)
    expected = 0.5 * (0.75 * np.log(1 + np.exp(-1)) + 0.25 * np.log(1 + np.exp(1)) + np.log(2))
    assert losses.discriminator_loss("bce", ones, zeros, 0.25).numpy() == pytest.approx(expected, rel=1e-6)


def test_discriminators_see_reals_and_fakes_changed_and_generators_learn_through_it(make_images):
    x, y = make_images(2, seed=1), make_images(2, seed=2)
    gan = as_trained(GAN(2, Config.from_settings(**{**TINY, "pool_size": 0, "diffaugment": "translation,color"})))
    figures, _, _ = step_module.train_step(gan, x, y, tf.ones([2]), 7)
    draws = [StepRandomness(0, tf.constant(7, tf.int64), 2, 2).uniform(2 + kind, RANDOM_NUMBERS) for kind in range(4)]
    seen = [
        diffaugment(images, ("color", "translation"), d)
        for images, d in zip((to_float(y), gan.networks.generators["G"](to_float(x))), draws[::2])
    ]
    expected = losses.discriminator_loss("lsgan", *(gan.networks.discriminators["D_Y"](images) for images in seen))
    assert float(figures["loss_Y/loss"]) == pytest.approx(float(tf.reduce_mean(expected)), rel=1e-4)
    gan = as_trained(GAN(2, Config.from_settings(**{**TINY, "pool_size": 0})))
    plain, _, _ = step_module.train_step(gan, x, y, tf.ones([2]), 7)
    assert float(figures["loss_Y/loss"]) != pytest.approx(float(plain["loss_Y/loss"]), rel=1e-3)
    assert float(figures["loss_G/cycle"]) == pytest.approx(float(plain["loss_G/cycle"]), rel=1e-5)


def test_random_numbers_are_of_the_seed_the_step_and_their_purpose():
    draws = {}
    for seed, step, purpose in itertools.product((0, 1, 2**32 - 1), (0, 1, 10**6), range(9)):
        random = StepRandomness(seed, tf.constant(step, tf.int64), 2, 2)
        draws[random.uniform(purpose, 2).numpy().tobytes()] = (seed, step, purpose)
        again = random.uniform(purpose, 2).numpy().tobytes()
        assert draws[again] == (seed, step, purpose)
    assert len(draws) == 3 * 3 * 9


def test_weight_decay_adds_the_kernels_to_the_gradients(make_images):
    (gan, plain), (_, decayed) = (step_of({"weight_decay": decay}, make_images) for decay in (0.0, 0.5))
    fresh = weights(as_trained(GAN(2, Config.from_settings(**TINY))))
    assert any(len(w.shape) == 1 for w in fresh)
    for w, one, other in zip(fresh, plain, decayed):
        added = 0.5 * w if len(w.shape) == 4 else 0.0
        np.testing.assert_allclose(other - one, added + np.zeros_like(w), atol=1e-4)
    figures = eager_step(
        as_trained(GAN(2, Config.from_settings(**{**TINY, "weight_decay": 0.5}))), *[make_images(2)] * 2
    )
    kernels = [w for w in fresh[: len(gan.networks.generator_variables)] if len(w.shape) == 4]
    assert figures[WEIGHT_DECAY[0]] == pytest.approx(
        0.25 * sum((w.astype(np.float64) ** 2).sum() for w in kernels), rel=1e-4
    )


def test_gradients_are_clipped_together(make_images):
    (gan, plain), (_, clipped) = (step_of({"clip_norm": norm}, make_images) for norm in (0.0, 0.01))
    count = len(gan.networks.generator_variables)
    for part in (slice(0, count), slice(count, None)):
        whole, small = flat(plain[part]), flat(clipped[part])
        assert np.linalg.norm(whole) > 0.02 and np.linalg.norm(small) == pytest.approx(0.01, rel=1e-2)
        np.testing.assert_allclose(small, whole * 0.01 / np.linalg.norm(whole), atol=1e-5)
    unchanged = step_of({"clip_norm": 1e6}, make_images)[1]
    np.testing.assert_allclose(flat(unchanged), flat(plain), atol=1e-6)


def test_running_means_of_the_generators_follow_and_are_what_is_used(make_images):
    gan = with_sgd(as_trained(GAN(2, Config.from_settings(**{**TINY, "ema": 0.75}))), 0.5)
    gan.networks.reset_ema()
    x, y = make_images(2, seed=1), make_images(2, seed=2)
    expected = flat(gan.networks.generators["G"].trainable_variables)
    for _ in range(3):
        eager_step(gan, x, y)
        expected = 0.75 * expected + 0.25 * flat(gan.networks.generators["G"].trainable_variables)
    assert np.abs(expected - flat(gan.networks.generators["G"].trainable_variables)).max() > 1e-3
    np.testing.assert_allclose(flat(gan.networks.ema_generators["G"].trainable_variables), expected, atol=1e-6)
    fake_y, _, _, cycle_y = gan.cycle(to_float(x), to_float(y))
    np.testing.assert_array_equal(fake_y, gan.networks.ema_generators["G"](to_float(x)))
    np.testing.assert_array_equal(
        cycle_y, gan.networks.ema_generators["G"](gan.networks.ema_generators["F"](to_float(y)))
    )
    error = float(step_module.test_step(gan, x, y, tf.ones([2]))[0]["error/MAE(X, F(X))"])
    assert error == pytest.approx(
        float(tf.reduce_mean(tf.abs(to_float(x) - gan.networks.ema_generators["F"](to_float(x))))), rel=1e-5
    )
    before = flat(gan.networks.ema_generators["G"].trainable_variables)
    _, received, kept = step_module.train_step(gan, x, y, tf.ones([2]))
    update(gan, received, tf.constant(False), kept)
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
def test_turns(options, generators, discriminators):
    optimization = Config.from_settings(**options).optimization
    taken = [turns(optimization, tf.constant(step, tf.int64)) for step in range(6)]
    assert ["".join(str(int(turn)) for turn in part) for part in zip(*taken)] == [generators, discriminators]


def test_networks_whose_turn_it_is_not_stay_as_they_are(make_images):
    gan = as_trained(GAN(2, Config.from_settings(**{**TINY, "discriminator_steps": 2})))
    x, y = make_images(2, seed=1), make_images(2, seed=2)
    for step, turn in ((0, False), (1, True)):
        before = weights(gan)
        _, received, kept = step_module.train_step(gan, x, y, tf.ones([2]), step)
        update(gan, received, tf.constant(True), kept, tf.constant(step))
        moved = [not np.array_equal(a, b) for a, b in zip(before, weights(gan))]
        count = len(gan.networks.generator_variables)
        assert any(moved[:count]) is turn and all(moved[count:])
    assert (
        int(gan.generator_optimizer.iterations.numpy()) == 1
        and int(gan.discriminator_optimizer.iterations.numpy()) == 2
    )


def test_both_kinds_of_networks_have_their_own_learning_rate(make_images):
    x, y = make_images(2, seed=1), make_images(2, seed=2)
    gan = as_trained(GAN(2, Config.from_settings(**{**TINY, "lr": 0.0125, "lr_discriminator": 0.05})))
    for rates, expected in ((None, (0.0125, 0.05)), (tf.constant([0.25, 0.5]), (0.25, 0.5))):
        seen = []
        gan.generator_optimizer = gan.discriminator_optimizer = types.SimpleNamespace(
            apply=lambda gradients, variables, rate, good, seen=seen: seen.append(float(rate))
        )
        _, received, kept = step_module.train_step(gan, x, y, tf.ones([2]))
        update(gan, received, tf.constant(True), kept, 0, rates)
        assert seen == pytest.approx(expected)


def test_images_of_other_channels_are_translated_without_an_identity_loss():
    config = Config.from_settings(**{**TINY, "channels_x": 1, "channels_y": 4})
    assert config.objective.lambda_identity == 0
    gan = GAN(1, config)
    x, y = (np.random.default_rng(0).integers(0, 256, (1, 32, 32, c)).astype(np.uint8) for c in (1, 4))
    figures = eager_step(gan, x, y)
    assert figures["loss_G/identity"] == 0 and np.isfinite([*figures.values()]).all()
    tested = step_module.test_step(gan, x, y, tf.ones([1]))[0]
    assert not {"error/MAE(X, F(X))", "change/MAE(X, G(X))"} & set(tested) and {
        "error/MAE(X, F(G(X)))",
        *LOSSES,
    } <= set(tested)
    assert [part.shape[3] for part in gan.cycle(to_float(x), to_float(y))] == [4, 1, 1, 4]


def test_a_bad_step_changes_neither_statistics_nor_means_nor_pools(make_images):
    options = {"norm": "batch", "ema": 0.5, "dropout": 0.2, "pool_size": 1, "weight_decay": 0.1, "clip_norm": 1.0}
    gan = as_trained(GAN(1, Config.from_settings(**{**TINY, **options})))
    x, y = make_images(1, seed=1), make_images(1, seed=2)
    eager_step(gan, x, y)

    def everything():
        parts = {name: part for name, part in gan.state().items() if name != "loss_scale"}
        return [tf.convert_to_tensor(v).numpy() for part in parts.values() for v in part.variables]

    before = everything()
    assert len(gan.networks.statistics) > 10
    for good in (False, True):
        _, received, kept = step_module.train_step(gan, x, y, tf.ones([1]), 1)
        update(gan, received, tf.constant(good), kept, tf.constant(1))
        same = [np.array_equal(a, b) for a, b in zip(before, everything())]
        assert all(same) is not good
    statistics = [tf.convert_to_tensor(v).numpy() for v in gan.networks.statistics]
    assert not any(np.array_equal(a, b) for a in statistics for b in before if a.shape == b.shape)


def test_penalties_in_float16_are_those_in_float32(make_images):
    """Their slopes are too small for float16 unless they are amplified."""
    outcomes = []
    for precision in ("float32", "float16"):
        gan = as_trained(
            GAN(2, Config.from_settings(**{**TINY, "precision": precision, "adversarial": "wgan-gp", "pool_size": 0}))
        )
        for network in (
            gan.networks.discriminators["D_X"],
            gan.networks.discriminators["D_Y"],
        ):  # as deep in training as a new network of full size
            network.trainable_variables[0].assign(network.trainable_variables[0] * 1e-4)
        figures, _, _ = step_module.train_step(gan, make_images(2, seed=1), make_images(2, seed=2), tf.ones([2]))
        outcomes.append([5 - float(figures[name]) for name in PENALTIES])  # 5 where there is no slope at all
    assert outcomes[1] == pytest.approx(outcomes[0], rel=5e-2)


def test_the_mean_of_the_weight_decay_is_that_of_full_batches(make_images):
    gan = as_trained(GAN(3, Config.from_settings(**{**TINY, "weight_decay": 0.1})))
    x, y = make_images(3, seed=1), make_images(3, seed=2)
    means = []
    for weight in ([1.0, 1, 1], [1.0, 0, 0]):
        figures, _, _ = step_module.train_step(gan, x, y, tf.constant(weight))
        means.append([float(figures[name] / figures["samples"]) for name in WEIGHT_DECAY])
    assert means[0] == pytest.approx(means[1], rel=1e-5) and min(means[0]) > 0


def test_nothing_is_judged_twice_without_a_pool(make_images, monkeypatch):
    """Compiled with XLA or not, which tells tensors from their names."""
    for options, runs in (({"pool_size": 0}, 1), ({"pool_size": 3}, 2)):
        gan, seen = GAN(1, Config.from_settings(**{**TINY, **FEW_LAYERS, **options})), []
        network = gan.networks.discriminators["D_Y"]
        gan.networks.discriminators["D_Y"] = lambda x, training, seen=seen, network=network: seen.append(1) or network(
            x, training=training
        )
        monkeypatch.setattr(step_module, "_compiled", lambda gan, function: tf.function(function, autograph=False))
        step = tf.function(lambda x, y, gan=gan: step_module.train_step(gan, x, y, tf.ones([1]))[0], autograph=False)
        step(make_images(1, seed=1), make_images(1, seed=2))
        assert len(seen) == runs


ALL_AT_ONCE = {**SETS["wgan-gp"], "dropout": 0.3, "pool_size": 0}
COMPILED = {
    "with a pool": {"pool_size": 2},
    "without a pool": {"pool_size": 0},
    "without identity": {"pool_size": 0, "lambda_identity": 0.0, "adversarial": "bce"},
    "all at once": ALL_AT_ONCE,
    "batch": {"norm": "batch", "pool_size": 0},
    "bfloat16": {"precision": "bfloat16", "pool_size": 0},
    "float16": {"precision": "float16"},
}


@pytest.mark.parametrize(
    "name, xla",
    [
        *((name, False) for name in COMPILED),
        *(pytest.param(name, True, marks=pytest.mark.slow) for name in ("without a pool", "all at once", "bfloat16")),
    ],
)
def test_what_a_replica_computes_is_the_same_where_its_parts_are_compiled(make_images, name, xla, monkeypatch):
    """As functions by themselves, as `--xla on` has them; and by XLA, which rounds otherwise."""
    outcomes = []
    for in_functions in (False, True):
        gan = as_trained(GAN(2, Config.from_settings(**{**TINY, **FEW_LAYERS, **COMPILED[name]})))
        if in_functions:
            compiled = functools.partial(tf.function, autograph=False, jit_compile=xla)
            monkeypatch.setattr(step_module, "_compiled", lambda gan, function, compiled=compiled: compiled(function))
        pictures = make_images(2, seed=1), make_images(2, seed=2)
        figures, parts, _ = step_module.train_step(gan, *pictures, tf.ones([2]), tf.constant(1))
        norms = [float(figures.pop(norm)) for norm in GRADIENTS]
        figures = {key: float(value) for key, value in figures.items()}
        outcomes.append((figures, norms, [np.concatenate([g.numpy().ravel() for g in part]) for part in parts]))
    (figures, norms, parts), (others, other_norms, other_parts) = outcomes
    bound = 1e-4 if gan.config.performance.precision == "float32" else 3e-2
    assert others == pytest.approx(figures, rel=bound, abs=1e-6) and other_norms == pytest.approx(norms, rel=bound)
    for part, other in zip(parts, other_parts):
        assert 0 < np.linalg.norm(part) and np.linalg.norm(other - part) < bound * np.linalg.norm(part)
