"""Everything of a training run that lives on the devices."""

from __future__ import annotations

import tensorflow as tf

from cyclegan.config.config import Config
from cyclegan.methods import OBJECTIVES
from cyclegan.methods.metric_names import WEIGHT_DECAY
from cyclegan.networks.network_set import NetworkSet
from cyclegan.training.image_pool import ImagePool
from cyclegan.training.optimizers import LossScale


class GAN:
    """Networks, optimizers, loss scale and image pools of a run; create it in the scope of the strategy.

    There are two optimizers, as in the paper and pytorch-CycleGAN-and-pix2pix: Adam updates each weight separately, so one
    optimizer for the generators and the heads equals several with the same settings.

    Attributes:
        global_batch_size: Image pairs of a step, over all replicas.
        optimization: Settings of the updates, and the seed.
        image_shape: (height, width) of the images in training.
        uses_loss_scale: Whether the losses are scaled before gradients are taken.
        objective: The losses.
        networks: The generators and discriminators.
        generator_optimizer: Adam of the generators and the heads of their features.
        discriminator_optimizer: Adam of the discriminators.
        loss_scale: Factor on the losses, which float16 needs.
        pools: Earlier translations to each domain, "X" and "Y"; empty without pools.
        metric_names: Names of the metrics of "train" and "test".
    """

    def __init__(self, global_batch_size: int, config: Config, image_shape: tuple[int, int] | None = None) -> None:
        """Create all variables from the seed. `image_shape` is by default the size in the configuration."""
        self.optimization, data, precision = config.optimization, config.data, config.performance.precision
        tf.keras.utils.set_random_seed(self.optimization.seed)
        self.global_batch_size = global_batch_size
        self.uses_loss_scale = precision == "float16"
        self.image_shape = image_shape or data.image_shape
        make_objective = OBJECTIVES[config.objective.objective]
        self.objective = make_objective(config.objective, global_batch_size, data.same_channels, precision)
        channels = {"X": data.channels_x, "Y": data.channels_y}
        self.networks = NetworkSet.make(
            self.objective.adversaries,
            config.networks,
            channels,
            precision,
            second_derivatives=config.objective.has_penalty,
            with_ema=self.optimization.ema > 0,
            recomputes=config.performance.recompute,
            with_heads=self.objective.has_heads,
        )
        self.generator_optimizer = self.optimization.make_optimizer(self.networks.generator_variables)
        self.discriminator_optimizer = self.optimization.make_optimizer(self.networks.discriminator_variables)
        self.loss_scale = LossScale()  # always, so that a checkpoint fits every precision
        size = config.objective.pool_size
        domains = sorted(pair.domain for pair in self.objective.adversaries) if size else ()
        self.pools = {
            domain: ImagePool(size, global_batch_size, (*self.image_shape, channels[domain])) for domain in domains
        }
        weight_decay = WEIGHT_DECAY if self.optimization.weight_decay else ()
        paired = self.objective.paired_names if config.uses_pairs else ()
        self.metric_names = {
            "train": (*self.objective.loss_names, *paired, *self.objective.adversarial.penalty_names, *weight_decay),
            "test": (*self.objective.loss_names, *self.objective.test_names),
        }

    @property
    def generators_in_use(self) -> list[tf.keras.Model]:
        """G and, if there is one, F for validation and plots: with EMA weights, if there are any."""
        return list(self.networks.in_use.generators.values())

    def state(self) -> dict[str, tf.Module | tf.keras.Model]:
        """Return everything that evolves, by its name in a checkpoint."""
        return {
            **self.networks.generators,
            **self.networks.discriminators,
            **({"heads": self.networks.heads} if self.networks.heads else {}),
            "generator_optimizer": self.generator_optimizer.state,
            "discriminator_optimizer": self.discriminator_optimizer.state,
            "loss_scale": self.loss_scale.state,
            **{f"pool_{domain.lower()}": pool for domain, pool in self.pools.items()},
            **{f"{name}_ema": network for name, network in self.networks.ema_generators.items()},
        }

    def flops(self, height: int, width: int) -> float:
        """Return the floating-point operations of a training step for one pair of images, see `Objective.flops`."""
        return self.objective.flops(self.networks, height, width)
