"""Adversarial part of an objective: the losses that need a discriminator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from cyclegan.config.objective import ObjectiveConfig
from cyclegan.methods import losses
from cyclegan.methods.diffaugment import RANDOM_NUMBERS, diffaugment
from cyclegan.methods.randomness import AUGMENTATION, INTERPOLATION, Noise, StepRandomness
from cyclegan.networks.network_set import Adversaries, NetworkSet


class DiscriminatorInput(NamedTuple):
    """Images for the discriminators, a batch for each pair of adversaries.

    Attributes:
        reals: Real images of the domain, float32 [N, H, W, C] in [-1, 1].
        fakes: Translations that the generators learn from.
        shown: Translations that the discriminators learn from; `None` if these are `fakes`.
    """

    reals: Sequence[tf.Tensor]
    fakes: Sequence[tf.Tensor]
    shown: Sequence[tf.Tensor] | None = None


class AdversarialPart:
    """Losses of generators and discriminators that play against each other.

    Attributes:
        adversaries: The generators and the discriminators of their translations.
    """

    def __init__(
        self,
        adversaries: Sequence[Adversaries],
        settings: ObjectiveConfig,
        global_batch_size: int,
        gradient_scale: float = 1.0,
    ) -> None:
        """Keep the settings.

        Args:
            adversaries: The generators and the discriminators of their translations.
            settings: Settings of the objective.
            global_batch_size: Samples on all replicas.
            gradient_scale: Factor on the gradients inside of a penalty, which prevents underflow in a low precision.
        """
        self.adversaries = adversaries
        self._settings = settings
        self._global_batch_size = global_batch_size
        self._gradient_scale = gradient_scale

    @property
    def penalty_names(self) -> tuple[str, ...]:
        """Names of the discriminators' penalties in training; empty if there are none."""
        names = sorted(f"{pair.discriminator_losses}/penalty" for pair in self.adversaries)
        return tuple(names) if self._settings.has_penalty else ()

    def make_noise(self, random: StepRandomness) -> Noise:
        """Return the random numbers that `compute_losses` needs in training."""
        pairs, columns = len(self.adversaries), {}
        if self._settings.augmentations:  # of the real images of each pair of adversaries, then of the fakes
            columns.update(dict.fromkeys(range(AUGMENTATION, AUGMENTATION + 2 * pairs), RANDOM_NUMBERS))
        if self._settings.adversarial == "wgan-gp":
            columns.update(dict.fromkeys(range(INTERPOLATION, INTERPOLATION + pairs), 1))
        return {purpose: random.shard(random.uniform(purpose, count)) for purpose, count in columns.items()}

    def compute_losses(
        self,
        networks: NetworkSet,
        images: DiscriminatorInput,
        weight: tf.Tensor,
        noise: Noise | None = None,
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Return the adversarial losses of the generators, and the losses of the discriminators with their penalties.

        Args:
            networks: The networks.
            images: Images for the discriminators.
            weight: Weights of the samples, float32 [N].
            noise: Random numbers of a training step; `None` in validation, which has neither augmentation nor penalties.
        """
        settings = self._settings
        of_generators, of_discriminators, penalties = {}, {}, {}
        for i, pair in enumerate(self.adversaries):
            discriminator = networks.discriminators[pair.discriminator]
            real, fake, shown = self._seen(images, i, noise)
            training = noise is not None
            real_logits, shown_logits = networks.apply_to_two(discriminator, real, shown, training)
            # Without a pool, both losses share the logits of the fakes.
            fake_logits = shown_logits if shown is fake else discriminator(fake, training=training)
            loss = losses.generator_loss(settings.adversarial, fake_logits)
            of_generators[f"{pair.generator_losses}/loss"] = self._mean(weight, loss)
            loss = losses.discriminator_loss(settings.adversarial, real_logits, shown_logits, settings.label_smoothing)
            of_discriminators[f"{pair.discriminator_losses}/loss"] = self._mean(weight, loss)
            if noise is not None and settings.has_penalty:
                terms = self._penalties(discriminator, real, shown, noise.get(INTERPOLATION + i))
                penalties[f"{pair.discriminator_losses}/penalty"] = sum(self._mean(weight, term) for term in terms)
        return of_generators, {**of_discriminators, **penalties}

    def _seen(self, images: DiscriminatorInput, i: int, noise: Noise | None) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the (real, fake, shown) images of a pair of adversaries, augmented in training."""
        real, fake = images.reals[i], images.fakes[i]
        shown = fake if images.shown is None else images.shown[i]
        parts = self._settings.augmentations
        if noise is None or not parts:
            return real, fake, shown
        of_reals, of_fakes = noise[AUGMENTATION + i], noise[AUGMENTATION + len(self.adversaries) + i]
        augmented = diffaugment(fake, parts, of_fakes)
        return (
            diffaugment(real, parts, of_reals),
            augmented,
            augmented if shown is fake else diffaugment(shown, parts, of_fakes),
        )

    def _penalties(
        self, discriminator: losses.Discriminator, real: tf.Tensor, fake: tf.Tensor, interpolation: tf.Tensor | None
    ) -> list[tf.Tensor]:
        """Return the terms of the penalty on the gradients of a discriminator, [N] each."""
        settings, scale, terms = self._settings, self._gradient_scale, []
        if interpolation is not None:
            penalty = losses.gradient_penalty(discriminator, real, fake, interpolation[:, 0], scale)
            terms.append(0.5 * (settings.lambda_gp * penalty))
        if settings.r1:
            terms.append(0.5 * settings.r1 * losses.squared_gradient_norm(discriminator, real, scale))
        return terms

    def _mean(self, weight: tf.Tensor, per_sample: tf.Tensor) -> tf.Tensor:
        return losses.reduce_mean(weight * per_sample, self._global_batch_size)
