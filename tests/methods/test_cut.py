import itertools

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.images.value_range import to_float
from cyclegan.methods import losses
from cyclegan.methods.cut import PATCH_COUNT, embed, random_positions
from cyclegan.methods.objective import GRADIENTS, SAMPLES
from cyclegan.methods.randomness import FLIP, StepRandomness
from cyclegan.networks.features import compute_features
from cyclegan.training import step as step_module
from cyclegan.training.callbacks import translate_samples
from cyclegan.training.step import GAN, Batch, compile_train_step
from tests.training.helpers import TINY, as_trained, eager_step, state_values

CUT = {**TINY, "objective": "cut"}
NAMES = ("loss_G/loss", "loss_G/nce", "loss_G/nce_identity", "loss_G/total", "loss_Y/loss")


FASTCUT_NAMES = ("loss_G/loss", "loss_G/nce", "loss_G/total", "loss_Y/loss")


def nce_by_hand(gan, images, translated, positions):
    """Return the mean over the samples of the contrastive loss, with NumPy from the features on."""
    features = [compute_features(gan.networks["G"], each, training=True) for each in (translated, images)]
    variables, maps = [v.numpy() for v in gan.networks.heads["G"].trainable_variables], len(features[0])
    terms = []
    for i, (queries, keys) in enumerate(zip(*features)):
        kernel, bias, second, second_bias = (*variables[2 * i :][:2], *variables[2 * (maps + i) :][:2])
        for sample, chosen in enumerate(np.asarray(positions[i])):
            rows = [np.reshape(each[sample], (-1, each.shape[-1]))[chosen] for each in (queries, keys)]
            q, k = (np.maximum(each @ kernel + bias, 0) @ second + second_bias for each in rows)
            q, k = (each / (np.linalg.norm(each, axis=1, keepdims=True) + 1e-7) for each in (q, k))
            logits = (q @ k.T / 0.07).astype(np.float64)
            terms.append(np.mean(np.log(np.exp(logits).sum(axis=1)) - np.diag(logits)))
    return np.mean(terms)


def positions_of(gan, step):
    random = StepRandomness(gan.optimization.seed, tf.constant(step, tf.int64), 2, 2)
    return random_positions(gan.objective.make_noise(random, gan.networks, (32, 32)))


def test_a_step_by_hand(make_images):
    gan, x, y = as_trained(GAN(2, Config.from_settings(**CUT))), make_images(2, seed=1), make_images(2, seed=2)
    positions = positions_of(gan, 0)
    assert [each.shape for each in positions[:4]] == [(2, PATCH_COUNT)] * 2 + [(2, 64)] * 2
    real_x, real_y = to_float(x), to_float(y)
    fake_y, same_y = (gan.networks["G"](each, training=True) for each in (real_x, real_y))
    logits = [gan.networks["D_Y"](each) for each in (real_y, fake_y)]
    expected = {
        "loss_G/loss": float(tf.reduce_mean((logits[1] - 1) ** 2)),
        "loss_G/nce": 0.5 * nce_by_hand(gan, real_x, fake_y, positions),
        "loss_G/nce_identity": 0.5 * nce_by_hand(gan, real_y, same_y, positions),
        "loss_Y/loss": 0.5 * float(tf.reduce_mean((logits[0] - 1) ** 2) + tf.reduce_mean(logits[1] ** 2)),
    }
    expected["loss_G/total"] = sum(expected[name] for name in NAMES[:3])
    before, heads = state_values(gan), [v.numpy() for v in gan.networks.heads["G"].variables]
    metrics = eager_step(gan, x, y)
    assert list(metrics) == [*NAMES, SAMPLES, *GRADIENTS] and gan.metric_names["train"] == NAMES
    for name in NAMES:
        assert metrics[name] == pytest.approx(expected[name], rel=1e-3), name
    assert set(gan.state()) == {"G", "D_Y", "heads", "generator_optimizer", "discriminator_optimizer", "loss_scale"}
    assert not any(np.array_equal(old, new) for old, new in zip(before, state_values(gan)) if old.ndim in (2, 4))
    assert not any(np.array_equal(old, new) for old, new in zip(heads, gan.networks.heads["G"].variables))


def test_validation_by_hand(make_images):
    gan, x, y = as_trained(GAN(2, Config.from_settings(**CUT, ema=0.5))), make_images(2, seed=1), make_images(2, seed=2)
    network = gan.networks.ema_generators["G"]
    network.set_weights(gan.networks["G"].get_weights())
    metrics = {name: float(value) for name, value in step_module.test_step(gan, Batch(x, y, tf.ones([2]))).items()}
    real_x, real_y = to_float(x), to_float(y)
    fake_y, same_y = network(real_x), network(real_y)
    areas = [38 * 38, 16 * 16, 8 * 8, 8 * 8]
    spaced = [np.linspace(0, area - 1, min(area, 256)).round().astype(int) for area in areas]
    expected = {
        "loss_G/nce": 0.5 * nce_by_hand(gan, real_x, fake_y, [np.stack([each] * 2) for each in spaced]),
        "error/MAE(Y, G(Y))": np.abs(real_y - same_y).mean(),
        "change/MAE(X, G(X))": np.abs(real_x - fake_y).mean(),
        "change/correlation(X, G(X))": np.mean(losses.correlation(real_x, fake_y)),
    }
    assert gan.metric_names["test"] == (*NAMES, *list(expected)[1:])
    assert set(metrics) == {*gan.metric_names["test"], SAMPLES}
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, rel=1e-3), name
    (x_there, there), nothing = translate_samples(gan, [real_x, real_y])
    np.testing.assert_array_equal(x_there, real_x)
    np.testing.assert_array_equal(there, fake_y)
    assert not nothing


def test_a_feature_that_the_heads_map_to_zero_has_a_finite_gradient():
    """The norm of a zero vector has no gradient."""
    heads, features = (lambda values: [0.0 * each for each in values]), tf.ones([1, 4, 4, 2])
    with tf.GradientTape() as tape:
        tape.watch(features)
        (found,) = embed(heads, [features], None)
    assert np.isfinite(tape.gradient(found, features)).all()


@pytest.fixture(scope="module")
def fastcut():
    return as_trained(GAN(4, Config.from_settings(**TINY, objective="fastcut")))


def test_a_step_of_fastcut_by_hand(fastcut, make_images):
    """Mirror whole feature maps back, as the reference does, instead of the positions in them."""
    x, y = make_images(4, seed=1), make_images(4, seed=2)
    noise = fastcut.objective.make_noise(
        StepRandomness(fastcut.optimization.seed, tf.constant(0, tf.int64), 4, 4), fastcut.networks, (32, 32)
    )
    positions, flip = random_positions(noise), noise[FLIP].numpy()[:, None, None, None]
    assert 0 < flip.sum() < 4

    def mirror(images):
        return np.where(flip, images[:, :, ::-1], images)

    fake_y = fastcut.networks["G"](mirror(to_float(x)), training=True)
    queries = [mirror(each.numpy()) for each in compute_features(fastcut.networks["G"], fake_y, training=True)]
    keys = compute_features(fastcut.networks["G"], to_float(x), training=True)
    pairs = zip(*(embed(fastcut.networks.heads["G"], each, positions) for each in (queries, keys)))
    terms = [losses.patch_nce(*pair) for pair in pairs]
    nce, loss = 10 * float(tf.reduce_mean(terms)), float(tf.reduce_mean((fastcut.networks["D_Y"](fake_y) - 1) ** 2))
    metrics = eager_step(fastcut, x, y)
    assert tuple(metrics)[:4] == fastcut.metric_names["train"] == FASTCUT_NAMES
    assert metrics["loss_G/nce"] == pytest.approx(nce, rel=1e-4)
    assert metrics["loss_G/loss"] == pytest.approx(loss, rel=1e-4)
    assert metrics["loss_G/total"] == pytest.approx(nce + loss, rel=1e-4)


def test_validation_mirrors_nothing(fastcut, make_images):
    x, y = make_images(4, seed=1), make_images(4, seed=2)
    metrics = step_module.test_step(fastcut, Batch(x, y, tf.ones([4])))
    assert {*FASTCUT_NAMES, "error/MAE(Y, G(Y))", "change/MAE(X, G(X))"} <= set(metrics)
    change = np.abs(fastcut.networks["G"](to_float(x)) - to_float(x)).mean()
    assert float(metrics["change/MAE(X, G(X))"]) == pytest.approx(change, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("objective, steps, left", [("cut", 80, 0.8), ("fastcut", 240, 0.9)])
def test_training_takes_the_colors_and_finds_the_patches(strategies, make_images, objective, steps, left):
    """Translate smooth images to darker and redder ones."""
    x, y = make_images(8, 16, seed=1), (make_images(8, 16, seed=2) * [0.6, 0.2, 0.2]).astype(np.uint8)
    options = {"filters": 8, "residual_blocks": 1, "discriminator_layers": 1, "image_size": 16, "lr": 4e-3, "seed": 1}
    with strategies[1].scope():
        gan = GAN(4, Config.from_settings(objective=objective, **options))
    step, nce = compile_train_step(strategies[1], gan), []
    batches = UnpairedDataset(x, y, 4, (16, 16), seed=0).distributed(strategies[1])
    for number, batch in enumerate(itertools.islice(batches, steps)):
        nce.append(float(step(batch, {}, tf.constant(1), tf.constant(number))[2]["loss_G/nce"][0]))
    assert np.mean(nce[-10:]) < left * np.mean(nce[:5])
    real = to_float(y)
    apart = [np.abs(np.mean(each - real, (0, 1, 2))).max() for each in (to_float(x), gan.networks["G"](to_float(x)))]
    assert apart[1] < 0.4 * apart[0]
