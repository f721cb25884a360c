"""Per-sample losses and their mean over the global batch.

Every loss returns one value per sample, shape [N]; `reduce_mean` averages once. The formulas are those of Zhu et al.
2017, section 3; LSGAN is Mao et al. 2017 with the targets 1 for real and 0 for fake; hinge is Lim and Ye 2017; WGAN-GP is
Gulrajani et al. 2017; R1 is Mescheder et al. 2018.
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
    """(D - target)^2, averaged over the patches. [N, H, W, 1] -> [N]; `target` is in [0, 1]."""
    return _per_sample(tf.square(logits - target))


def bce(logits, target):
    """Binary cross-entropy from logits, averaged over the patches. [N, H, W, 1] -> [N]; `target` is in [0, 1]."""
    labels = tf.fill(tf.shape(logits), tf.cast(target, logits.dtype))
    return _per_sample(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


LABELED = {"lsgan": lsgan, "bce": bce}


def generator_loss(adversarial, fake_logits):
    """How far the discriminator is from taking the fakes for real; hinge and wgan-gp: -D. [N, H, W, 1] -> [N].

    `adversarial` is "lsgan", "bce", "hinge" or "wgan-gp".
    """
    if adversarial in LABELED:
        return LABELED[adversarial](fake_logits, 1.0)
    return -_per_sample(fake_logits)


def discriminator_loss(adversarial, real_logits, fake_logits, smoothing=0.0):
    """Half the sum of the losses on real and on fake pictures. [N, H, W, 1] x 2 -> [N].

    hinge: max(0, 1 - D(real)) and max(0, 1 + D(fake)); wgan-gp: -D(real) and D(fake), see `slopes` for its penalty. The
    half slows the discriminators down relative to the generators (Zhu et al. 2017, section 4).

    Args:
        smoothing: the label of real pictures is 1 - smoothing (Salimans et al. 2016, section 3.4, one-sided); lsgan and bce only.
    """
    if adversarial in LABELED:
        loss = LABELED[adversarial]
        return 0.5 * (loss(real_logits, 1.0 - smoothing) + loss(fake_logits, 0.0))
    if adversarial == "hinge":
        return 0.5 * (_per_sample(tf.nn.relu(1.0 - real_logits)) + _per_sample(tf.nn.relu(1.0 + fake_logits)))
    return 0.5 * (_per_sample(fake_logits) - _per_sample(real_logits))


def slopes(discriminator, images, amplified=1.0):
    """The squared norm of the gradient of a discriminator, averaged over the patches, at each picture. [N, H, W, C] -> [N].

    Right only for discriminators that judge every sample by itself, so not with batch normalization. Gradients are computed times
    `amplified`, for precisions that have no numbers as small.
    """
    with tf.GradientTape() as tape:
        tape.watch(images)
        total = amplified * tf.reduce_sum(_per_sample(discriminator(images)))
    return tf.reduce_sum(tf.square(tape.gradient(total, images) / amplified), axis=[1, 2, 3])


def gradient_penalty(discriminator, real, fake, part, amplified=1.0):
    """WGAN-GP: (|gradient of D| - 1)^2 at real + part x (fake - real). [N, H, W, C] x 2 -> [N]; `part` is [N], in [0, 1)."""
    images = real + part[:, None, None, None] * (fake - real)
    # The root of 0 has no slope.
    return tf.square(tf.sqrt(slopes(discriminator, images, amplified) + 1e-12) - 1.0)


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
