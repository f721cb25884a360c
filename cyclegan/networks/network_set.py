"""Generators and discriminators that train together."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence

import tensorflow as tf

from cyclegan.config import Config
from cyclegan.networks import compat
from cyclegan.networks.discriminators import make_discriminator
from cyclegan.networks.features import call_with_recomputation, compute_features, feature_layers, make_heads
from cyclegan.networks.generators import make_generator


class NetworkSet:
    """The networks of a configuration by name, with EMA copies of the generators; create it in the strategy's scope.

    Attributes:
        generators: "G" and, with two directions, "F".
        discriminators: "D_Y" and, with two directions, "D_X".
        ema_generators: Generators with the EMA weights, by the name of the generator in training; empty without EMA.
        heads: Networks that embed the features of a generator, by its name; empty if none are compared.
        generator_variables: Trained variables of the generators and of the heads.
        discriminator_variables: Trained variables of the discriminators.
        statistics: Moving statistics of batch normalizations, which forward passes change.
    """

    def __init__(self, config: Config) -> None:
        settings, objective = config.networks, config.objective
        channels = {"X": config.data.channels_x, "Y": config.data.channels_y}
        domains = sorted(pair.domain for pair in objective.adversaries)
        self._joins_inputs = settings.norm != "batch"  # whether two inputs of a network may form one batch
        self._recomputes = config.performance.recompute

        def make_generators(suffix: str = "") -> dict[str, tf.keras.Model]:
            return {
                pair.generator: make_generator(
                    settings, channels[pair.source], channels[pair.domain], pair.generator + suffix
                )
                for pair in objective.adversaries
            }

        with compat.precision_policy(config.performance.precision):
            self.generators = make_generators()
            self.discriminators = {
                f"D_{domain}": make_discriminator(settings, channels[domain], objective.has_penalty, f"D_{domain}")
                for domain in domains
            }
            self.ema_generators = make_generators("_ema") if config.optimization.ema else {}
            embedded = self.generators if objective.compares_features else {}
            for layer in itertools.chain.from_iterable(map(feature_layers, embedded.values())):
                layer.trains_bias = True  # a feature contains the bias, which the normalization behind it cancels
            self.heads = {
                name: make_heads(each, settings.init, f"heads_{name}", objective.compares_images)
                for name, each in embedded.items()
            }
        generators, discriminators = list(self.generators.values()), list(self.discriminators.values())
        trained = [*generators, *self.heads.values()]
        self.generator_variables = [each for network in trained for each in network.trainable_variables]
        self.discriminator_variables = [each for network in discriminators for each in network.trainable_variables]
        self.statistics = [each for network in generators + discriminators for each in network.non_trainable_variables]
        self.reset_ema()

    def __getitem__(self, name: str) -> tf.keras.Model:
        """Return the network in training of this name."""
        return {**self.generators, **self.discriminators}[name]

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
        """Return the number of parameters of a generator, of a discriminator, and of all heads."""
        generator, discriminator = (next(iter(each.values())) for each in (self.generators, self.discriminators))
        heads = sum(each.count_params() for each in self.heads.values())
        return generator.count_params(), discriminator.count_params(), heads

    def apply(self, network: tf.keras.Model, x: tf.Tensor, training: bool) -> tf.Tensor:
        """Return network(x)."""
        return call_with_recomputation(network, x) if training and self._recomputes else network(x, training=training)

    def apply_to_two(
        self, network: tf.keras.Model, a: tf.Tensor, b: tf.Tensor, training: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return (network(a), network(b)), computed as one batch if the normalization allows it."""
        if not self._joins_inputs:
            return self.apply(network, a, training), self.apply(network, b, training)
        first, second = tf.split(self.apply(network, tf.concat([a, b], axis=0), training), 2)
        return first, second

    def compute_features(
        self, network: tf.keras.Model, images: Sequence[tf.Tensor], training: bool, to_output: bool = False
    ) -> list[list[tf.Tensor]]:
        """Return `features.compute_features` for several batches, computed as one if the normalization allows it."""
        recomputes = training and self._recomputes
        if not self._joins_inputs:
            return [compute_features(network, each, training, recomputes, to_output) for each in images]
        joined = compute_features(network, tf.concat(images, axis=0), training, recomputes, to_output)
        return [list(parts) for parts in zip(*(tf.split(each, len(images)) for each in joined))]
