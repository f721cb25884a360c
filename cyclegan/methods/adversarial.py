"""Adversarial part of an objective: the losses that need a discriminator, with their settings, and their penalties."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Callable, ClassVar, NamedTuple

from cyclegan.config.fields import WARN, flag
from cyclegan.config.sections import ObjectiveConfig
from cyclegan.lazy_tensorflow import tf
from cyclegan.methods.diffaugment import RANDOM_NUMBERS, diffaugment
from cyclegan.methods.losses import mean_per_sample, reduce_mean
from cyclegan.methods.randomness import AUGMENTATION, INTERPOLATION, Noise, StepRandomness

if TYPE_CHECKING:
    from cyclegan.networks.network_set import Adversaries, NetworkSet

Discriminator = Callable[["tf.Tensor"], "tf.Tensor"]


@dataclasses.dataclass(frozen=True)
class _Labeled(ObjectiveConfig):
    label_smoothing: float = flag(0.0, WARN, below=1)
    """the label of real images is 1 minus this (lsgan and bce)"""

    def labeled_loss(self, logits: tf.Tensor, label: float) -> tf.Tensor:
        """Return the loss of logits of images with a label in [0, 1]. [N, H, W, 1] -> [N]."""
        raise NotImplementedError

    def generator_loss(self, fake_logits: tf.Tensor) -> tf.Tensor:
        """Return the loss of fakes with the label of real images."""
        return self.labeled_loss(fake_logits, 1.0)

    def discriminator_loss(self, real_logits: tf.Tensor, fake_logits: tf.Tensor) -> tf.Tensor:
        """Return half the sum of the losses; only the label of real images is smoothed (Salimans et al. 2016, section 3.4)."""
        real = self.labeled_loss(real_logits, 1.0 - self.label_smoothing)
        return 0.5 * (real + self.labeled_loss(fake_logits, 0.0))


@dataclasses.dataclass(frozen=True)
class LSGAN(_Labeled):
    """Squared distance of the logits from the label (Mao et al. 2017)."""

    def labeled_loss(self, logits: tf.Tensor, label: float) -> tf.Tensor:
        """Return (D - label)^2, averaged over the patches. [N, H, W, 1] -> [N]."""
        return mean_per_sample(tf.square(logits - label))


@dataclasses.dataclass(frozen=True)
class BCE(_Labeled):
    """Binary cross-entropy (Goodfellow et al. 2014)."""

    def labeled_loss(self, logits: tf.Tensor, label: float) -> tf.Tensor:
        """Return the cross-entropy, averaged over the patches. [N, H, W, 1] -> [N]."""
        labels = tf.fill(tf.shape(logits), tf.cast(label, logits.dtype))
        return mean_per_sample(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


@dataclasses.dataclass(frozen=True)
class Hinge(ObjectiveConfig):
    """Hinge loss (Lim and Ye 2017)."""

    def generator_loss(self, fake_logits: tf.Tensor) -> tf.Tensor:
        """Return -D(fake), averaged over the patches. [N, H, W, 1] -> [N]."""
        return -mean_per_sample(fake_logits)

    def discriminator_loss(self, real_logits: tf.Tensor, fake_logits: tf.Tensor) -> tf.Tensor:
        """Return half the sum of max(0, 1 - D(real)) and max(0, 1 + D(fake)). [N, H, W, 1] x 2 -> [N]."""
        real, fake = tf.nn.relu(1.0 - real_logits), tf.nn.relu(1.0 + fake_logits)
        return 0.5 * (mean_per_sample(real) + mean_per_sample(fake))


@dataclasses.dataclass(frozen=True)
class WGANGP(ObjectiveConfig):
    """Wasserstein loss with a penalty on the discriminators' gradients (Gulrajani et al. 2017)."""

    penalizes_gradients: ClassVar[bool] = True

    lambda_gp: float = flag(10.0, WARN)
    """weight of the gradient penalty of wgan-gp"""

    def generator_loss(self, fake_logits: tf.Tensor) -> tf.Tensor:
        """Return -D(fake), averaged over the patches. [N, H, W, 1] -> [N]."""
        return -mean_per_sample(fake_logits)

    def discriminator_loss(self, real_logits: tf.Tensor, fake_logits: tf.Tensor) -> tf.Tensor:
        """Return half of D(fake) - D(real). [N, H, W, 1] x 2 -> [N]."""
        return 0.5 * (mean_per_sample(fake_logits) - mean_per_sample(real_logits))


# Adversarial losses by the value of --adversarial.
ADVERSARIAL_LOSSES: dict[str, type[ObjectiveConfig]] = {"lsgan": LSGAN, "bce": BCE, "hinge": Hinge, "wgan-gp": WGANGP}


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

    Args:
        adversaries: The generators and the discriminators of their translations.
        settings: Settings of the objective.
        global_batch_size: Samples on all replicas.
        gradient_scale: Factor on the gradients inside of a penalty, which prevents underflow in a low precision.
    """

    def __init__(
        self,
        adversaries: Sequence[Adversaries],
        settings: ObjectiveConfig,
        global_batch_size: int,
        gradient_scale: float = 1.0,
    ) -> None:
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
        if isinstance(self._settings, WGANGP):
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

        Without noise, as in validation, there are neither augmentations nor penalties. The weights of the samples are [N].
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
            loss = settings.generator_loss(fake_logits)
            of_generators[f"{pair.generator_losses}/loss"] = self._mean(weight, loss)
            loss = settings.discriminator_loss(real_logits, shown_logits)
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
        self, discriminator: Discriminator, real: tf.Tensor, fake: tf.Tensor, interpolation: tf.Tensor | None
    ) -> list[tf.Tensor]:
        """Return the terms of the penalty on the gradients of a discriminator, [N] each."""
        settings, scale, terms = self._settings, self._gradient_scale, []
        if interpolation is not None and isinstance(settings, WGANGP):
            penalty = gradient_penalty(discriminator, real, fake, interpolation[:, 0], scale)
            terms.append(0.5 * (settings.lambda_gp * penalty))
        if settings.r1:
            terms.append(0.5 * settings.r1 * squared_gradient_norm(discriminator, real, scale))
        return terms

    def _mean(self, weight: tf.Tensor, per_sample: tf.Tensor) -> tf.Tensor:
        return reduce_mean(weight * per_sample, self._global_batch_size)


def squared_gradient_norm(discriminator: Discriminator, images: tf.Tensor, scale: float = 1.0) -> tf.Tensor:
    """Return the squared norm of the gradient of a discriminator, averaged over the patches, at each image. [N, H, W, C] -> [N].

    The discriminator must not have batch normalization, so that its logits for a sample do not depend on other samples. `scale`
    multiplies the gradients while they are computed, which prevents underflow in a low precision.
    """
    with tf.GradientTape() as tape:
        tape.watch(images)
        total = scale * tf.reduce_sum(mean_per_sample(discriminator(images)))
    return tf.reduce_sum(tf.square(tape.gradient(total, images) / scale), axis=[1, 2, 3])


def gradient_penalty(
    discriminator: Discriminator, real: tf.Tensor, fake: tf.Tensor, position: tf.Tensor, scale: float = 1.0
) -> tf.Tensor:
    """Return the penalty of WGAN-GP: (|gradient of D| - 1)^2 between real and fake images. [N, H, W, C] x 2 -> [N].

    `position` [N] in [0, 1) is the position between them: 0 is the real image. For `scale`, see `squared_gradient_norm`.
    """
    images = real + position[:, None, None, None] * (fake - real)
    norm = tf.sqrt(squared_gradient_norm(discriminator, images, scale) + 1e-12)  # the root has no gradient at 0
    return tf.square(norm - 1.0)
