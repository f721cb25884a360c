"""Per-sample losses and their mean over the global batch.

Every loss returns one value per sample, shape [N]; `reduce_mean` averages once. The formulas are those of Zhu et al.
2017, section 3; LSGAN is Mao et al. 2017 with the targets 1 for real and 0 for fake.
"""

import tensorflow as tf


def _per_sample(values):
    """The mean over all axes but the first. [N, ...] -> [N]."""
    return tf.reduce_mean(values, axis=list(range(1, len(values.shape))))


def mae(real, fake):
    """Mean absolute error per sample. [N, H, W, C] x 2 -> [N]."""
    return _per_sample(tf.abs(real - fake))


def correlation(a, b):
    """Pearson's correlation of all values of two pictures, in [-1, 1]; 0 if one of them is flat. [N, H, W, C] x 2 -> [N]."""
    axes = list(range(1, len(a.shape)))
    a, b = (values - tf.reduce_mean(values, axis=axes, keepdims=True) for values in (a, b))
    return tf.math.divide_no_nan(_per_sample(a * b), tf.sqrt(_per_sample(a * a) * _per_sample(b * b)))


def lsgan(logits, target):
    """(D - target)^2, averaged over the patches. [N, H, W, 1] -> [N]; `target` is 0.0 or 1.0."""
    return _per_sample(tf.square(logits - target))


def bce(logits, target):
    """Binary cross-entropy from logits, averaged over the patches. [N, H, W, 1] -> [N]; `target` is 0.0 or 1.0."""
    labels = tf.fill(tf.shape(logits), tf.cast(target, logits.dtype))
    return _per_sample(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


ADVERSARIAL = {"lsgan": lsgan, "bce": bce}


def generator_loss(adversarial, fake_logits):
    """How far the discriminator is from taking the fakes for real. [N, H, W, 1] -> [N]."""
    return ADVERSARIAL[adversarial](fake_logits, 1.0)


def discriminator_loss(adversarial, real_logits, fake_logits):
    """Half the sum of the losses on real and on fake pictures. [N, H, W, 1] x 2 -> [N].

    The half slows the discriminators down relative to the generators (Zhu et al. 2017, section 4).
    """
    loss = ADVERSARIAL[adversarial]
    return 0.5 * (loss(real_logits, 1.0) + loss(fake_logits, 0.0))


def cycle_loss(real, cycled, weight):
    """weight x |real - cycled|, averaged over the picture. [N, H, W, C] x 2 -> [N]."""
    return weight * mae(real, cycled)


def identity_loss(real, same, weight):
    """weight x |real - same|, averaged over the picture. [N, H, W, C] x 2 -> [N]."""
    return weight * mae(real, same)


def reduce_mean(per_sample, global_batch_size):
    """A replica's share of the mean over the global batch: the sum over its samples / global batch size. [N] -> [].

    Summed over the replicas this is the mean, on any number of them.
    """
    return tf.reduce_sum(per_sample) / tf.cast(global_batch_size, per_sample.dtype)
