"""Generators and discriminators that train together."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from cyclegan.config.sections import NetworkConfig
from cyclegan.networks import compat
from cyclegan.networks.discriminators import make_discriminator
from cyclegan.networks.features import call_with_recomputation, compute_features, make_heads
from cyclegan.networks.generators import make_generator


class Adversaries(NamedTuple):
    """A generator and the discriminator of the domain that it translates to."""

    generator: str  # "G" or "F"
    domain: str  # "X" or "Y"

    @property
    def discriminator(self) -> str:
        """Name of the discriminator."""
        return f"D_{self.domain}"

    @property
    def generator_losses(self) -> str:
        """Prefix of the generator's losses."""
        return f"loss_{self.generator}"

    @property
    def discriminator_losses(self) -> str:
        """Prefix of the discriminator's losses."""
        return f"loss_{self.domain}"


@dataclasses.dataclass
class NetworkSet:
    """The networks of an objective, by name, and EMA copies of the generators.

    Attributes:
        ema_generators: Generators with the EMA weights, by the name of the generator in training; empty without EMA.
        joins_inputs: Whether two inputs of a network may form one batch.
        recomputes: Whether the backward pass computes residual blocks again.
        heads: Networks that embed the features of G; `None` if the objective has none.
        generator_variables: Trained variables of the generators and of the heads.
        discriminator_variables: Trained variables of the discriminators.
        statistics: Moving statistics of batch normalizations, which forward passes change.
    """

    generators: dict[str, tf.keras.Model]
    discriminators: dict[str, tf.keras.Model]
    ema_generators: dict[str, tf.keras.Model]
    joins_inputs: bool
    recomputes: bool = False
    heads: tf.keras.Model | None = None

    def __post_init__(self) -> None:
        """Collect the variables."""
        generators, discriminators = list(self.generators.values()), list(self.discriminators.values())
        heads = [self.heads] if self.heads else []
        self.generator_variables = [each for network in generators + heads for each in network.trainable_variables]
        self.discriminator_variables = [each for network in discriminators for each in network.trainable_variables]
        self.statistics = [each for network in generators + discriminators for each in network.non_trainable_variables]

    def __getitem__(self, name: str) -> tf.keras.Model:
        """Return the network in training of this name."""
        return {**self.generators, **self.discriminators}[name]

    @classmethod
    def make(
        cls,
        adversaries: Sequence[Adversaries],
        settings: NetworkConfig,
        channels: Mapping[str, int],
        precision: str,
        second_derivatives: bool,
        with_ema: bool,
        recomputes: bool = False,
        with_heads: bool = False,
    ) -> NetworkSet:
        """Return new networks; call it in the scope of the strategy.

        Args:
            adversaries: The generators and the discriminators of their translations.
            settings: Architecture of the networks.
            channels: Channels of the images of each domain, "X" and "Y".
            precision: Type to compute in. Variables, normalization statistics and the generators' tanh are float32 in any case.
            second_derivatives: Whether a loss contains gradients of the discriminators.
            with_ema: Whether the generators have EMA copies.
            recomputes: See `NetworkSet`.
            with_heads: Whether to make heads.
        """

        def make_generators(suffix: str = "") -> dict[str, tf.keras.Model]:
            ends = {name: (channels["Y" if domain == "X" else "X"], channels[domain]) for name, domain in adversaries}
            return {name: make_generator(settings, *ends[name], name + suffix) for name in ends}

        with compat.precision_policy("float32" if precision == "auto" else precision):
            generators = make_generators()
            discriminators = {
                name: make_discriminator(settings, channels[domain], second_derivatives, name)
                for domain, name in sorted((each.domain, each.discriminator) for each in adversaries)
            }
            ema_generators = make_generators("_ema") if with_ema else {}
            heads = make_heads(generators["G"], settings.init, "heads") if with_heads else None
        networks = cls(generators, discriminators, ema_generators, settings.norm != "batch", recomputes, heads)
        networks.reset_ema()
        return networks

    @property
    def in_use(self) -> NetworkSet:
        """The networks for validation and inference: with the EMA generators, if there are any."""
        networks = copy.copy(self)
        networks.generators = {**self.generators, **self.ema_generators}
        return networks

    def reset_ema(self) -> None:
        """Set the EMA weights to the present weights of the generators."""
        for name, network in self.ema_generators.items():
            network.set_weights(self.generators[name].get_weights())

    def parameter_counts(self) -> tuple[int, int, int]:
        """Return the number of parameters of a generator, of a discriminator, and of the heads."""
        generator, discriminator = (
            next(iter(networks.values())) for networks in (self.generators, self.discriminators)
        )
        return generator.count_params(), discriminator.count_params(), self.heads.count_params() if self.heads else 0

    def apply(self, network: tf.keras.Model, x: tf.Tensor, training: bool) -> tf.Tensor:
        """Return network(x)."""
        return call_with_recomputation(network, x) if training and self.recomputes else network(x, training=training)

    def apply_to_two(
        self, network: tf.keras.Model, a: tf.Tensor, b: tf.Tensor, training: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return (network(a), network(b)), computed as one batch, in fewer operations, if the normalization allows it."""
        if not self.joins_inputs:
            return self.apply(network, a, training), self.apply(network, b, training)
        first, second = tf.split(self.apply(network, tf.concat([a, b], axis=0), training), 2)
        return first, second

    def compute_features(
        self, network: tf.keras.Model, images: Sequence[tf.Tensor], training: bool, to_output: bool = False
    ) -> list[list[tf.Tensor]]:
        """Return `features.compute_features` for each of several batches, computed as one batch if the normalization allows it."""
        recomputes = training and self.recomputes
        if not self.joins_inputs:
            return [compute_features(network, each, training, recomputes, to_output) for each in images]
        joined = compute_features(network, tf.concat(images, axis=0), training, recomputes, to_output)
        return [list(parts) for parts in zip(*(tf.split(each, len(images)) for each in joined))]
