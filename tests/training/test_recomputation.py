"""Training with --recompute gives the same steps and checkpoints as without."""

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config, serialization
from cyclegan.export import keras_file
from cyclegan.inference.restore import restore
from cyclegan.networks import compat
from cyclegan.run.manager import CheckpointManager
from cyclegan.run.train_state import TrainState
from cyclegan.training.gan import GAN
from cyclegan.training.step import compile_train_step, train_step, update
from tests.training.helpers import TINIER, as_trained, per_replica_batches, state_values, weights, with_sgd

OPTIONS = {**TINIER, "residual_blocks": 1, "lambda_identity": 0.0}  # only residual blocks are computed again


@pytest.mark.sampled
@pytest.mark.parametrize("replicas, more", [(1, {}), (2, {"variant": "paper"})], ids=str)
def test_a_step_is_the_same(strategies, replicas, more):
    strategy = strategies[replicas]
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 256, (1, replicas, 16, 16, 3)).astype(np.uint8) for _ in "xy")
    outcomes = []
    for recompute in (False, True):
        config = Config.from_settings(**OPTIONS, **more, recompute=recompute)
        with strategy.scope():
            gan = with_sgd(as_trained(GAN(replicas, config)), 0.1)
        metrics = compile_train_step(strategy, gan)(per_replica_batches(strategy, x, y), {}, tf.constant(1))[2]
        outcomes.append(({name: float(value[0]) for name, value in metrics.items()}, weights(gan)))
    (metrics, after), (metrics_again, after_again) = outcomes
    assert metrics_again == pytest.approx(metrics, rel=1e-5)
    for one, other in zip(after, after_again):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_checkpoint_fits_with_and_without(tmp_path):
    plain, again = (GAN(1, Config.from_settings(**OPTIONS, recompute=bool(seed), seed=seed)) for seed in (0, 1))
    for number, (source, target) in enumerate(((plain, again), (again, plain))):
        path = tf.train.Checkpoint(**source.state()).write(str(tmp_path / str(number)))
        restored = tf.train.Checkpoint(**target.state()).read(path)
        restored.assert_consumed()
        restored.assert_existing_objects_matched()
        for one, other in zip(state_values(source), state_values(target)):
            np.testing.assert_array_equal(one, other)
        for network in ("G", "F"):
            assert [layer.name.rstrip("_0123456789") for layer in source.networks[network].layers] == [
                layer.name.rstrip("_0123456789") for layer in target.networks[network].layers
            ]


def train(gan, *images):
    """Train a step, without a graph."""
    _, gradients, carry = train_step(gan, *images, tf.ones([1]))
    update(gan, gradients, tf.constant(True), carry)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras warns when it saves
@pytest.mark.slow
@pytest.mark.parametrize("recompute", [True, False])
def test_a_run_is_restored_exported_and_continued_with_and_without(tmp_path, recompute):
    first, other = (Config.from_settings(**OPTIONS, recompute=flag) for flag in (recompute, not recompute))
    images = np.random.default_rng(0).integers(0, 256, (2, 1, 16, 16, 3)).astype(np.uint8)
    gan, continued = as_trained(GAN(1, first)), GAN(1, other)
    train(gan, *images)
    serialization.save(tmp_path / "config.json", first, compat.stack(), {})
    CheckpointManager(tmp_path / "checkpoints", gan.state()).save(TrainState(epoch=1, step=1))
    restored = restore(tmp_path)
    x = images[0].astype(np.float32) / 255
    np.testing.assert_array_equal(restored.G(x), gan.networks["G"](x))
    keras_file.write(restored.G, tmp_path / "G.keras", float16=False)
    np.testing.assert_allclose(keras_file.load(tmp_path / "G.keras")(x), restored.G(x), rtol=1e-5, atol=1e-6)
    CheckpointManager(tmp_path / "checkpoints", continued.state()).restore()
    for each in (gan, continued):
        train(with_sgd(each, 0.1), *images[:, :, ::-1])  # Adam would enlarge the rounding of small gradients
    for one, same in zip(weights(gan), weights(continued)):
        np.testing.assert_allclose(one, same, rtol=1e-5, atol=1e-6)
