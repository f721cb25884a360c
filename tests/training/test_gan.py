import itertools

import numpy as np
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.distribution import hardware
from cyclegan.training.gan import GAN
from tests.training.helpers import TINY, eager_step, weights


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
        on_gpus = GAN(1, Config.from_settings(**TINY))
    on_cpu = GAN(1, Config.from_settings(**{**TINY, "seed": 1}))
    path = tf.train.Checkpoint(**on_gpus.state()).write(str(tmp_path / "state"))
    tf.train.Checkpoint(**on_cpu.state()).read(path).assert_consumed().assert_existing_objects_matched()
    assert all(np.array_equal(a, b) for a, b in zip(weights(on_gpus), weights(on_cpu)))


def test_state_is_complete(make_images):
    gan = GAN(1, Config.from_settings(**TINY))
    saved = tf.train.Checkpoint(**gan.state())
    carry = {id(v) for v in tf.nest.flatten([v.variables for v in gan.state().values() if hasattr(v, "variables")])}
    optimizers = {"generator_optimizer", "discriminator_optimizer", "loss_scale"}
    assert {"G", "F", "D_X", "D_Y", "pool_x", "pool_y", *optimizers} == set(gan.state())
    assert len(carry) >= 3 * len(weights(gan)) and saved.G is gan.networks["G"]
    eager_step(gan, make_images(1, seed=1), make_images(1, seed=2))
    assert int(gan.generator_optimizer.iterations.numpy()) == 1
