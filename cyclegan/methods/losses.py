"""Losses per sample, and their mean over the global batch.

Every loss has one value per sample, shape [N]; `reduce_mean` averages once. `adversarial` has the losses of discriminators.
"""

from __future__ import annotations

from cyclegan.lazy_tensorflow import tf

TEMPERATURE = 0.07  # of PatchNCE, Park et al. 2020, equation 3


def mae(real: tf.Tensor, fake: tf.Tensor) -> tf.Tensor:
    """Return the mean absolute error per sample. [N, H, W, C] x 2 -> [N]."""
    return mean_per_sample(tf.abs(real - fake))


def structural_dissimilarity(real: tf.Tensor, fake: tf.Tensor) -> tf.Tensor:
    """Return 1 - SSIM per sample, in [0, 2]; the sides have at least 11 pixels (Wang et al. 2004). [N, H, W, C] x 2 -> [N]."""
    return 1.0 - tf.image.ssim((real + 1.0) / 2.0, (fake + 1.0) / 2.0, max_val=1.0)


def correlation(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Return Pearson's correlation of all values of two images, in [-1, 1]; 0 if an image is flat. [N, H, W, C] x 2 -> [N]."""
    axes = list(range(1, len(a.shape)))
    a, b = (values - tf.reduce_mean(values, axis=axes, keepdims=True) for values in (a, b))
    deviations = tf.sqrt(mean_per_sample(a * a) * mean_per_sample(b * b))
    return tf.math.divide_no_nan(mean_per_sample(a * b), deviations)


def patch_nce(queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Return the cross-entropy of finding the key of each query among all keys of its image, averaged. [N, P, D] x 2 -> [N].

    Query i and key i belong to the same position. The logits are the cosines of queries and keys, divided by the temperature.

    Args:
        queries: Embeddings of patches of the translation, which get gradients.
        keys: Embeddings of patches of the original.
    """
    queries, keys = (tf.math.l2_normalize(each, axis=-1, epsilon=1e-14) for each in (queries, tf.stop_gradient(keys)))
    logits = tf.matmul(queries, keys, transpose_b=True) / TEMPERATURE
    return mean_per_sample(tf.reduce_logsumexp(logits, axis=-1) - tf.linalg.diag_part(logits))


def reduce_mean(per_sample: tf.Tensor, global_batch_size: int) -> tf.Tensor:
    """Return this replica's share of the mean over the global batch: the sum over its samples / global batch size. [N] -> [].

    The sum of the shares over the replicas is the mean.
    """
    return tf.reduce_sum(per_sample) / tf.cast(global_batch_size, per_sample.dtype)


def mean_per_sample(values: tf.Tensor) -> tf.Tensor:
    """Return the mean over all axes but the first. [N, ...] -> [N]."""
    return tf.reduce_mean(values, axis=list(range(1, len(values.shape))))
