"""Everything of a training run that lives on the devices."""

from __future__ import annotations

from typing import Optional, Union

import tensorflow as tf

from cyclegan.config.config import Config
from cyclegan.training.image_pool import ImagePool
from cyclegan.training.metric_names import WEIGHT_DECAY
from cyclegan.training.network_set import NetworkSet
from cyclegan.training.objectives import OBJECTIVES
from cyclegan.training.optimizers import Adam, LossScale


class GAN:
    """Networks, optimizers, loss scale and image pools of a run; create it in the scope of the strategy.

    The functions of `step` and `update` train it. There are two optimizers, as in the paper and pytorch-CycleGAN-and-pix2pix: Adam
    updates each weight separately, so one optimizer for both generators equals two with the same settings.

    Attributes:
        global_batch_size: Image pairs of a step, over all replicas.
        optimization: Settings of the updates, and the seed.
        uses_loss_scale: Whether the losses are scaled before gradients are taken.
        objective: The losses.
        networks: The generators and discriminators.
        generator_optimizer: Adam of the generators.
        discriminator_optimizer: Adam of the discriminators.
        loss_scale: Factor on the losses, which float16 needs.
        pools: Earlier translations to each domain, "X" and "Y"; empty without pools.
        metric_names: Names of the metrics of "train" and "test".
    """

    def __init__(
        self,
        global_batch_size: int,
        config: Config,
        image_shape: Optional[tuple[int, int]] = None,
        objective: str = "cyclegan",
    ) -> None:
        """Create all variables from the seed.

        Args:
            global_batch_size: Image pairs of a step, over all replicas.
            config: The configuration.
            image_shape: (height, width) of the images in training; by default the size in the configuration.
            objective: Name of the objective, a key of `objectives.OBJECTIVES`.
        """
        self.optimization, data, precision = config.optimization, config.data, config.performance.precision
        tf.keras.utils.set_random_seed(self.optimization.seed)
        self.global_batch_size = global_batch_size
        self.uses_loss_scale = precision == "float16"
        self.objective = OBJECTIVES[objective](config.objective, global_batch_size, data.same_channels, precision)
        channels = {"X": data.channels_x, "Y": data.channels_y}
        self.networks = NetworkSet.make(
            self.objective.adversaries,
            config.networks,
            channels,
            precision,
            second_derivatives=config.objective.has_penalty,
            with_ema=self.optimization.ema > 0,
            recomputes=config.performance.recompute,
        )
        settings = self.optimization.beta_1, self.optimization.beta_2, self.optimization.epsilon
        self.generator_optimizer = Adam(self.networks.generator_variables, *settings)
        self.discriminator_optimizer = Adam(self.networks.discriminator_variables, *settings)
        self.loss_scale = LossScale()  # always, so that a checkpoint fits every precision
        size, shape = config.objective.pool_size, image_shape or data.image_shape
        domains = sorted(pair.domain for pair in self.objective.adversaries)
        self.pools = {
            domain: ImagePool(size, global_batch_size, (*shape, channels[domain])) for domain in domains if size
        }
        weight_decay = WEIGHT_DECAY if self.optimization.weight_decay else ()
        self.metric_names = {
            "train": (*self.objective.loss_names, *self.objective.adversarial.penalty_names, *weight_decay),
            "test": (*self.objective.loss_names, *self.objective.test_names),
        }

    @property
    def generators_in_use(self) -> list[tf.keras.Model]:
        """G and F for validation and plots: with EMA weights, if there are any."""
        return list(self.networks.in_use.generators.values())

    def state(self) -> dict[str, Union[tf.Module, tf.keras.Model]]:
        """Return everything that evolves, by its name in a checkpoint."""
        return {
            **self.networks.generators,
            **self.networks.discriminators,
            "generator_optimizer": self.generator_optimizer,
            "discriminator_optimizer": self.discriminator_optimizer,
            "loss_scale": self.loss_scale,
            **{f"pool_{domain.lower()}": pool for domain, pool in self.pools.items()},
            **{f"{name}_ema": network for name, network in self.networks.ema_generators.items()},
        }

    def flops(self, height: int, width: int) -> float:
        """Return the floating-point operations of a training step for one pair of images, see `Objective.flops`."""
        return self.objective.flops(self.networks, height, width)
