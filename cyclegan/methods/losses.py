"""Losses per sample, and their mean over the global batch.

Every loss has one value per sample, shape [N]; `reduce_mean` averages once. The formulas follow Zhu et al. 2017, section 3.
LSGAN is Mao et al. 2017 with the targets 1 for real and 0 for fake; hinge is Lim and Ye 2017; WGAN-GP is Gulrajani et al. 2017;
R1 is Mescheder et al. 2018; PatchNCE is Park et al. 2020, equation 3.
"""

from __future__ import annotations

from typing import Callable

import tensorflow as tf

Discriminator = Callable[[tf.Tensor], tf.Tensor]
TEMPERATURE = 0.07  # of PatchNCE


def mae(real: tf.Tensor, fake: tf.Tensor) -> tf.Tensor:
    """Return the mean absolute error per sample. [N, H, W, C] x 2 -> [N]."""
    return _mean_per_sample(tf.abs(real - fake))


def structural_dissimilarity(real: tf.Tensor, fake: tf.Tensor) -> tf.Tensor:
    """Return 1 - SSIM per sample, in [0, 2]; the sides have at least 11 pixels (Wang et al. 2004). [N, H, W, C] x 2 -> [N]."""
    return 1.0 - tf.image.ssim((real + 1.0) / 2.0, (fake + 1.0) / 2.0, max_val=1.0)


def correlation(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Return Pearson's correlation of all values of two images, in [-1, 1]; 0 if an image is flat. [N, H, W, C] x 2 -> [N]."""
    axes = list(range(1, len(a.shape)))
    a, b = (values - tf.reduce_mean(values, axis=axes, keepdims=True) for values in (a, b))
    deviations = tf.sqrt(_mean_per_sample(a * a) * _mean_per_sample(b * b))
    return tf.math.divide_no_nan(_mean_per_sample(a * b), deviations)


def lsgan(logits: tf.Tensor, target: float) -> tf.Tensor:
    """Return (D - target)^2, averaged over the patches. [N, H, W, 1] -> [N]; `target` is in [0, 1]."""
    return _mean_per_sample(tf.square(logits - target))


def bce(logits: tf.Tensor, target: float) -> tf.Tensor:
    """Return the binary cross-entropy, averaged over the patches. [N, H, W, 1] -> [N]; `target` is in [0, 1]."""
    labels = tf.fill(tf.shape(logits), tf.cast(target, logits.dtype))
    return _mean_per_sample(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


LABELED = {"lsgan": lsgan, "bce": bce}


def generator_loss(adversarial: str, fake_logits: tf.Tensor) -> tf.Tensor:
    """Return the loss of a generator, which is small if its fakes look real. [N, H, W, 1] -> [N].

    It is -D for hinge and wgan-gp.

    Args:
        adversarial: "lsgan", "bce", "hinge" or "wgan-gp".
        fake_logits: Logits of the fakes.
    """
    if adversarial in LABELED:
        return LABELED[adversarial](fake_logits, 1.0)
    return -_mean_per_sample(fake_logits)


def discriminator_loss(
    adversarial: str, real_logits: tf.Tensor, fake_logits: tf.Tensor, smoothing: float = 0.0
) -> tf.Tensor:
    """Return half the sum of the losses on real and on fake images. [N, H, W, 1] x 2 -> [N].

    The terms of hinge are max(0, 1 - D(real)) and max(0, 1 + D(fake)); the terms of wgan-gp are -D(real) and D(fake). The half
    slows the discriminators down relative to the generators (Zhu et al. 2017, section 4).

    Args:
        adversarial: "lsgan", "bce", "hinge" or "wgan-gp".
        real_logits: Logits of the real images.
        fake_logits: Logits of the fakes.
        smoothing: The label of real images is 1 - smoothing (Salimans et al. 2016, section 3.4, one-sided); lsgan and bce only.
    """
    if adversarial in LABELED:
        loss = LABELED[adversarial]
        return 0.5 * (loss(real_logits, 1.0 - smoothing) + loss(fake_logits, 0.0))
    if adversarial == "hinge":
        real, fake = tf.nn.relu(1.0 - real_logits), tf.nn.relu(1.0 + fake_logits)
        return 0.5 * (_mean_per_sample(real) + _mean_per_sample(fake))
    return 0.5 * (_mean_per_sample(fake_logits) - _mean_per_sample(real_logits))


def squared_gradient_norm(discriminator: Discriminator, images: tf.Tensor, scale: float = 1.0) -> tf.Tensor:
    """Return the squared norm of the gradient of a discriminator, averaged over the patches, at each image. [N, H, W, C] -> [N].

    The discriminator must not have batch normalization, so that its logits for a sample do not depend on other samples.

    Args:
        discriminator: The discriminator.
        images: The images.
        scale: Factor on the gradients while they are computed, which prevents underflow in a low precision.
    """
    with tf.GradientTape() as tape:
        tape.watch(images)
        total = scale * tf.reduce_sum(_mean_per_sample(discriminator(images)))
    return tf.reduce_sum(tf.square(tape.gradient(total, images) / scale), axis=[1, 2, 3])


def gradient_penalty(
    discriminator: Discriminator, real: tf.Tensor, fake: tf.Tensor, position: tf.Tensor, scale: float = 1.0
) -> tf.Tensor:
    """Return the penalty of WGAN-GP: (|gradient of D| - 1)^2 between real and fake images. [N, H, W, C] x 2 -> [N].

    Args:
        discriminator: The discriminator.
        real: Real images.
        fake: Fakes.
        position: Position between them, [N] in [0, 1): 0 is the real image.
        scale: See `squared_gradient_norm`.
    """
    images = real + position[:, None, None, None] * (fake - real)
    norm = tf.sqrt(squared_gradient_norm(discriminator, images, scale) + 1e-12)  # the root has no gradient at 0
    return tf.square(norm - 1.0)


def patch_nce(queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Return the cross-entropy of finding the key of each query among all keys of its image, averaged. [N, P, D] x 2 -> [N].

    Query i and key i belong to the same position. The logits are the cosines of queries and keys, divided by the temperature.

    Args:
        queries: Embeddings of patches of the translation, which get gradients.
        keys: Embeddings of patches of the original.
    """
    queries, keys = (tf.math.l2_normalize(each, axis=-1, epsilon=1e-14) for each in (queries, tf.stop_gradient(keys)))
    logits = tf.matmul(queries, keys, transpose_b=True) / TEMPERATURE
    return _mean_per_sample(tf.reduce_logsumexp(logits, axis=-1) - tf.linalg.diag_part(logits))


def reduce_mean(per_sample: tf.Tensor, global_batch_size: int) -> tf.Tensor:
    """Return this replica's share of the mean over the global batch: the sum over its samples / global batch size. [N] -> [].

    The sum of the shares over the replicas is the mean.
    """
    return tf.reduce_sum(per_sample) / tf.cast(global_batch_size, per_sample.dtype)


def _mean_per_sample(values: tf.Tensor) -> tf.Tensor:
    """Return the mean over all axes but the first. [N, ...] -> [N]."""
    return tf.reduce_mean(values, axis=list(range(1, len(values.shape))))
