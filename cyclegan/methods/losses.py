"""Losses per sample, their mean over the global batch, the adversarial losses with their settings and penalties.

Every loss has one value per sample, shape [N]; `reduce_mean` averages once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, ClassVar

from cyclegan.config.fields import WARN, flag
from cyclegan.config.sections import ObjectiveConfig
from cyclegan.lazy_tensorflow import tf
from cyclegan.methods.diffaugment import diffaugment
from cyclegan.methods.randomness import AUGMENTATION, INTERPOLATION, Noise

if TYPE_CHECKING:
    from cyclegan.networks.network_set import NetworkSet

TEMPERATURE = 0.07  # of PatchNCE, Park et al. 2020, equation 3

Discriminator = Callable[["tf.Tensor"], "tf.Tensor"]


def mae(real: tf.Tensor, fake: tf.Tensor) -> tf.Tensor:
    """Return the mean absolute error per sample. [N, H, W, C] x 2 -> [N]."""
    return mean_per_sample(tf.abs(real - fake))


def structural_dissimilarity(real: tf.Tensor, fake: tf.Tensor) -> tf.Tensor:
    """Return 1 - SSIM (Wang et al. 2004), in [0, 2]; sides have at least 11 pixels. [N, H, W, C] x 2 -> [N]."""
    return 1.0 - tf.image.ssim((real + 1.0) / 2.0, (fake + 1.0) / 2.0, max_val=1.0)


def correlation(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Return Pearson's correlation of the values of two images, 0 if an image is flat. [N, H, W, C] x 2 -> [N]."""
    axes = list(range(1, len(a.shape)))
    a, b = (values - tf.reduce_mean(values, axis=axes, keepdims=True) for values in (a, b))
    deviations = tf.sqrt(mean_per_sample(a * a) * mean_per_sample(b * b))
    return tf.math.divide_no_nan(mean_per_sample(a * b), deviations)


def compose(mask: tf.Tensor | None, output: tf.Tensor, original: tf.Tensor) -> tf.Tensor:
    """Return the output inside a mask, bool [N, H, W, 1], and the original outside; without a mask, the output."""
    return output if mask is None else tf.where(mask, output, original)


# Embeddings of patches, unit vectors [N, P, D]: queries of the translation, which get gradients, and keys of the
# original, which get none. Query i and key i belong to the same position.


def patch_nce(queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Return the mean cross-entropy of finding the key of each query among all keys of its image. [N, P, D] x 2 -> [N].

    The logits are the cosines, divided by the temperature.
    """
    logits = _cosines(queries, tf.stop_gradient(keys)) / TEMPERATURE
    return mean_per_sample(tf.reduce_logsumexp(logits, axis=-1) - tf.linalg.diag_part(logits))


def hard_nce(queries: tf.Tensor, keys: tf.Tensor, gamma: tf.Tensor | float) -> tf.Tensor:
    """Return the decoupled contrastive loss with hard negatives (Jung et al. 2022). [N, P, D] x 2 -> [N].

    The other keys alone are the denominator. The cosine of query i and key j has the weight
    softmax_j(key_i . key_j / gamma), j other than i, relative to the largest weight of i: keys that resemble key i
    count more. The published code minimizes exp(v - stop_gradient(v)) for this loss v, which has the same gradients.
    """
    keys = tf.stop_gradient(keys)
    cosines, alike = _cosines(queries, keys), _without_diagonal(_cosines(keys, keys))
    weights = tf.exp((alike - tf.reduce_max(alike, axis=-1, keepdims=True)) / gamma)
    logits = (weights * cosines - tf.linalg.diag_part(cosines)[..., None]) / TEMPERATURE
    return mean_per_sample(tf.reduce_logsumexp(_without_diagonal(logits), axis=-1))


def relation_divergence(queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Return how differently the patches of both images resemble each other (Jung et al. 2022). [N, P, D] x 2 -> [N].

    It is the Jensen-Shannon divergence of the softmax of each row of cosines among queries and among keys, summed.
    """
    p, q = (tf.nn.softmax(_cosines(each, each)) for each in (queries, tf.stop_gradient(keys)))
    middle = (p + q) / 2.0
    return 0.5 * tf.reduce_sum(p * tf.math.log(p / middle) + q * tf.math.log(q / middle), axis=[1, 2])


def _cosines(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.matmul(a, b, transpose_b=True)


def _without_diagonal(values: tf.Tensor) -> tf.Tensor:
    """Set the diagonals of square matrices to -1e9, so that they do not count in the softmax or maximum of a row."""
    return tf.linalg.set_diag(values, tf.fill(tf.shape(values)[:-1], tf.constant(-1e9, values.dtype)))


def reduce_mean(per_sample: tf.Tensor, global_batch_size: int) -> tf.Tensor:
    """Return this replica's share of the mean over the global batch: its sum / global batch size. [N] -> []."""
    return tf.reduce_sum(per_sample) / tf.cast(global_batch_size, per_sample.dtype)


def mean_per_sample(values: tf.Tensor) -> tf.Tensor:
    """Return the mean over all axes but the first. [N, ...] -> [N]."""
    return tf.reduce_mean(values, axis=list(range(1, len(values.shape))))


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
        """Return half the sum of the losses; only real labels are smoothed (Salimans et al. 2016, section 3.4)."""
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


def squared_gradient_norm(discriminator: Discriminator, images: tf.Tensor, scale: float = 1.0) -> tf.Tensor:
    """Return the squared norm of the gradient at each image of a discriminator's mean logit. [N, H, W, C] -> [N].

    The discriminator must not have batch normalization, so that its logits for a sample do not depend on other samples.
    `scale` multiplies the gradients while they are computed, which prevents underflow in a low precision.
    """
    with tf.GradientTape() as tape:
        tape.watch(images)
        total = scale * tf.reduce_sum(mean_per_sample(discriminator(images)))
    return tf.reduce_sum(tf.square(tape.gradient(total, images) / scale), axis=[1, 2, 3])


def gradient_penalty(
    discriminator: Discriminator, real: tf.Tensor, fake: tf.Tensor, position: tf.Tensor, scale: float = 1.0
) -> tf.Tensor:
    """Return the penalty of WGAN-GP: (|gradient of D| - 1)^2 between real and fake images. [N, H, W, C] x 2 -> [N].

    `position` [N] in [0, 1) is the position between them: 0 is the real image. For `scale`, see
    `squared_gradient_norm`.
    """
    images = real + position[:, None, None, None] * (fake - real)
    norm = tf.sqrt(squared_gradient_norm(discriminator, images, scale) + 1e-12)  # the root has no gradient at 0
    return tf.square(norm - 1.0)


def adversarial_losses(
    settings: Any,
    networks: NetworkSet,
    reals: Sequence[tf.Tensor],
    fakes: Sequence[tf.Tensor],
    noise: Noise | None = None,
    shown: Sequence[tf.Tensor] | None = None,
    penalty_scale: float = 1.0,
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Return the adversarial losses of the generators, and the losses of the discriminators with their penalties.

    Without noise, as in validation, there are neither augmentations nor penalties. The discriminators learn from the
    translations `shown`, by default from the fakes themselves. For `penalty_scale`, see `squared_gradient_norm`.
    """
    pairs, share, training = settings.adversaries, settings.adversarial_weight, noise is not None
    of_generators, of_discriminators = {}, {}

    def augment(images: tf.Tensor, number: int) -> tf.Tensor:
        random = (noise or {}).get(AUGMENTATION + number)
        return images if random is None else diffaugment(images, settings.augmentations, random)

    for i, pair in enumerate(pairs):
        discriminator = networks.discriminators[f"D_{pair.domain}"]
        real, fake = augment(reals[i], i), augment(fakes[i], len(pairs) + i)
        seen = augment(shown[i], len(pairs) + i) if shown else fake
        real_logits, seen_logits = networks.apply_to_two(discriminator, real, seen, training)
        # Without a pool, both losses share the logits of the fakes.
        fake_logits = discriminator(fake, training=training) if shown else seen_logits
        loss = settings.generator_loss(fake_logits)
        of_generators[f"loss_{pair.generator}/loss"] = loss if share == 1.0 else share * loss
        of_discriminators[f"loss_{pair.domain}/loss"] = settings.discriminator_loss(real_logits, seen_logits)
        if noise is not None and settings.has_penalty:
            penalty = _penalty(settings, discriminator, real, seen, noise.get(INTERPOLATION + i), penalty_scale)
            of_discriminators[f"loss_{pair.domain}/penalty"] = penalty
    return of_generators, of_discriminators


def _penalty(
    settings: Any,
    discriminator: Discriminator,
    real: tf.Tensor,
    fake: tf.Tensor,
    position: tf.Tensor | None,
    scale: float,
) -> tf.Tensor:
    """Return the gradient penalty, [N]; `position` [N, 1] is only for WGAN-GP."""
    terms = []
    if position is not None:
        terms.append(0.5 * settings.lambda_gp * gradient_penalty(discriminator, real, fake, position[:, 0], scale))
    if settings.r1:
        terms.append(0.5 * settings.r1 * squared_gradient_norm(discriminator, real, scale))
    return tf.add_n(terms)


def paired_losses(
    settings: Any,
    reals: Sequence[tf.Tensor],
    fakes: Sequence[tf.Tensor],
    is_pair: tf.Tensor | None,
    masks: Sequence[Any],
) -> dict[str, tf.Tensor]:
    """Return the mean absolute error of each generator, 0 where the images are not a pair. [N] each.

    `is_pair` [N] is 1 for a pair, else 0; without it, there are no such losses.
    """
    if is_pair is None:
        return {}
    factor = settings.lambda_paired * is_pair
    reals = [compose(*each) for each in zip(masks, reals, fakes)]  # no error outside of the masks
    pairs = zip(settings.adversaries, reals, fakes)
    return {f"loss_{pair.generator}/paired": factor * mae(real, fake) for pair, real, fake in pairs}
