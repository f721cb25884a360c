"""Training with --recompute gives the same steps and checkpoints as without."""

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.training.compiled_steps import compile_train_step
from cyclegan.training.gan import GAN
from tests.training.helpers import TINIER, as_trained, per_replica_batches, state_values, weights, with_sgd


@pytest.mark.sampled
@pytest.mark.parametrize("replicas", [2, 1])
@pytest.mark.parametrize("more", [{}, {"variant": "paper", "discriminator_layers": 1, "lambda_identity": 0.0}], ids=str)
def test_a_step_is_the_same(strategies, replicas, more):
    strategy = strategies[replicas]
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 256, (1, replicas, 16, 16, 3)).astype(np.uint8) for _ in "xy")
    outcomes = []
    for recompute in (False, True):
        config = Config.from_settings(**{**TINIER, "residual_blocks": 2, "recompute": recompute, **more})
        with strategy.scope():
            gan = with_sgd(as_trained(GAN(replicas, config)), 0.1)
        metrics = compile_train_step(strategy, gan)(per_replica_batches(strategy, x, y), {}, tf.constant(1))[2]
        outcomes.append(({name: float(value[0]) for name, value in metrics.items()}, weights(gan)))
    (metrics, after), (metrics_again, after_again) = outcomes
    assert metrics_again == pytest.approx(metrics, rel=1e-5)
    for one, other in zip(after, after_again):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_fits_with_and_without(tmp_path):
    plain, again = (GAN(1, Config.from_settings(**TINIER, recompute=recompute, seed=recompute)) for recompute in (0, 1))
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
