import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.images.value_range import to_float
from cyclegan.methods.objective import CHANGES, ERRORS, SAMPLES
from cyclegan.training import step as step_module
from cyclegan.training.callbacks import find_silent_failures, translate_samples
from cyclegan.training.optimizers import pack
from cyclegan.training.step import GAN, Batch
from tests.training.helpers import LOSSES, TINIER, TINY, as_trained, eager_step, flat, weights


def test_no_identity_loss_no_identity_pass(make_images):
    gan = GAN(1, Config.from_settings(lambda_identity=0.0, **TINY))
    runs = []
    network = gan.networks["G"]
    gan.networks.generators["G"] = lambda x, training: runs.append(1) or network(x, training=training)
    metrics = eager_step(gan, make_images(1, seed=1), make_images(1, seed=2))
    assert len(runs) == 2  # fake_y and cycle_y
    assert metrics["loss_G/identity"] == metrics["loss_F/identity"] == 0
    assert metrics["loss_G/total"] == pytest.approx(metrics["loss_G/loss"] + metrics["loss_G/cycle"])


def test_errors_and_changes_by_hand(make_images):
    gan = GAN(2, Config.from_settings(**TINY))
    x, y = make_images(2, seed=1), make_images(2, seed=2)
    constant = {"G": 0.5, "F": -0.25}
    for name, value in constant.items():
        gan.networks.generators[name] = lambda images, training, value=value: tf.fill(tf.shape(images), value)
    before = weights(gan)
    metrics = {key: float(value) for key, value in step_module.test_step(gan, Batch(x, y, tf.ones([2]))).items()}
    assert list(metrics) == [*LOSSES, SAMPLES, *ERRORS, *CHANGES]
    real_x, real_y = to_float(x), to_float(y)
    expected = {
        "error/MAE(X, F(G(X)))": np.abs(real_x + 0.25).mean(),
        "error/MAE(Y, G(F(Y)))": np.abs(real_y - 0.5).mean(),
        "error/MAE(X, F(X))": np.abs(real_x + 0.25).mean(),
        "error/MAE(Y, G(Y))": np.abs(real_y - 0.5).mean(),
        "change/MAE(X, G(X))": np.abs(real_x - 0.5).mean(),
        "change/MAE(Y, F(Y))": np.abs(real_y + 0.25).mean(),
        "change/correlation(X, G(X))": 0,  # flat images have no correlation
        "change/correlation(Y, F(Y))": 0,
    }
    for key, value in expected.items():
        assert metrics[key] == pytest.approx(value, rel=1e-5), key
    assert metrics["loss_G/cycle"] == pytest.approx(10 * expected["error/MAE(Y, G(F(Y)))"], rel=1e-5)
    assert metrics["loss_F/identity"] == pytest.approx(5 * expected["error/MAE(X, F(X))"], rel=1e-5)
    assert all(np.array_equal(a, b) for a, b in zip(before, weights(gan)))


def test_the_structural_loss_by_hand(make_images):
    gan = as_trained(GAN(2, Config.from_settings(**{**TINY, "lambda_ssim": 3.0})))
    x, y = make_images(2, seed=1), make_images(2, seed=2)
    real_x, real_y = to_float(x), to_float(y)
    G, F = (gan.networks.generators[name] for name in "GF")
    pairs = {"loss_G/ssim": (real_y, G(F(real_y))), "loss_F/ssim": (real_x, F(G(real_x)))}
    expected = {
        name: 3 * (1 - np.mean(tf.image.ssim((real + 1) / 2, (cycle + 1) / 2, max_val=1.0)))
        for name, (real, cycle) in pairs.items()
    }
    metrics = eager_step(gan, x, y)
    for name, value in expected.items():
        assert value > 0.1 and metrics[name] == pytest.approx(value, rel=1e-4), name


def test_losses_of_pairs_and_their_gradients(make_images):
    """Compare with the errors by hand, and with the gradients of a step without pairs."""
    options = {"dataset": "folder", "paired_names": True, "lambda_paired": 100.0, "pool_size": 0}
    x, y, weight = make_images(3, 16, seed=1), make_images(3, 16, seed=2), tf.constant([1.0, 1.0, 0.0])
    gan = as_trained(GAN(3, Config.from_settings(**{**TINIER, **options})))
    (metrics, both, _), (_, alone, _) = (
        step_module.train_step(gan, Batch(x, y, weight, is_pair=tf.constant(is_pair)))
        for is_pair in ([1.0, 0.0, 1.0], [0.0, 0.0, 0.0])
    )
    assert set(gan.metric_names["train"]) == {*LOSSES, "loss_G/paired", "loss_F/paired"} < set(metrics)
    assert not {"loss_G/paired", "loss_F/paired"} & {*gan.metric_names["test"]}
    pair_x, pair_y = to_float(x[:1]), to_float(y[:1])
    with tf.GradientTape() as tape:
        errors = {"G": pair_y - gan.networks["G"](pair_x), "F": pair_x - gan.networks["F"](pair_y)}
        expected = {name: 100 * tf.reduce_mean(tf.abs(error)) / 3 for name, error in errors.items()}
        loss = tf.add_n(list(expected.values()))
    for name, value in expected.items():
        assert float(metrics[f"loss_{name}/paired"]) == pytest.approx(float(value), rel=1e-5)
        parts = [float(metrics[f"loss_{name}/{part}"]) for part in ("loss", "cycle", "identity", "paired")]
        assert float(metrics[f"loss_{name}/total"]) == pytest.approx(sum(parts), rel=1e-5)
    np.testing.assert_array_equal(flat(both[1]), flat(alone[1]))  # the discriminators
    gradient = flat(pack(tape.gradient(loss, gan.networks.generator_variables)))
    np.testing.assert_allclose(flat(both[0]) - flat(alone[0]), gradient, atol=2e-3 * np.abs(gradient).max())


@pytest.mark.parametrize(
    "network, failures", [(lambda x, training: x, {"G does nothing"}), (lambda x, training: -0.9 * x, {"G inverts"})]
)
def test_silent_failures_show_in_the_metrics(make_images, network, failures):
    gan = GAN(2, Config.from_settings(**TINY))
    gan.networks.generators["G"] = network
    metrics = step_module.test_step(gan, Batch(make_images(2, seed=1), make_images(2, seed=2), tf.ones([2])))
    assert set(find_silent_failures({}, {key: float(value) for key, value in metrics.items()})) == failures


def test_different_channels_have_no_identity_loss():
    config = Config.from_settings(**{**TINY, "channels_x": 1, "channels_y": 4})
    assert config.objective.lambda_identity == 0
    gan = GAN(1, config)
    x, y = (np.random.default_rng(0).integers(0, 256, (1, 32, 32, c)).astype(np.uint8) for c in (1, 4))
    metrics = eager_step(gan, x, y)
    assert metrics["loss_G/identity"] == 0 and np.isfinite([*metrics.values()]).all()
    tested = step_module.test_step(gan, Batch(x, y, tf.ones([1])))
    assert not {"error/MAE(X, F(X))", "change/MAE(X, G(X))"} & set(tested) and {
        "error/MAE(X, F(G(X)))",
        *LOSSES,
    } <= set(tested)
    forward, backward = translate_samples(gan, [to_float(x), to_float(y)])
    assert [part.shape[3] for part in (*forward, *backward)] == [1, 4, 1, 4, 1, 4]
