"""Folders of runs, as the tests that restore them need them."""

import tensorflow as tf

from cyclegan.config import Config, serialization
from cyclegan.networks import compat
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.train_state import TrainState
from cyclegan.training.step import GAN

TINY = {
    "image_size": 32,
    "load_size": 32,
    "filters": 4,
    "residual_blocks": 1,
    "discriminator_layers": 1,
    "precision": "float32",
    "channels_y": 2,
    "pool_size": 2,
}
UNET = {"generator": "unet_128", "residual_blocks": None, "image_size": 128, "load_size": 128}


def make_run(folder, strategy, **changes):
    """Make a run with two checkpoints, the second with the variables of a `GAN`; return (`GAN`, configuration)."""
    config = Config.from_settings(output_dir=str(folder), **{**TINY, **changes})
    folder.mkdir()
    serialization.save(folder / "config.json", config, compat.stack(), {})
    with strategy.scope():
        gan = GAN(strategy.num_replicas_in_sync, config)
        checkpoints = CheckpointManager(folder / "checkpoints", gan.state())
        checkpoints.save(TrainState(epoch=1))
        for network in (*gan.networks.generators.values(), *gan.networks.ema_generators.values()):
            for number, variable in enumerate(network.variables):
                variable.assign_add(tf.fill(variable.shape, 0.01 * (number % 3 + 1)))
        if config.optimization.ema:
            weight = gan.networks.generators["G"].variables[0]
            weight.assign_add(tf.ones(weight.shape))  # the generators in use have the EMA weights
        checkpoints.save(TrainState(epoch=2, step=7))
    return gan, config
