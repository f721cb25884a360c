"""Random changes to what discriminators see, through which gradients flow: DiffAugment (Zhao et al. 2020)."""

import tensorflow as tf

DRAWS = 7  # random numbers that a picture takes
SHIFT = 1 / 8  # of a side, by which a picture is moved at most
HOLE = 1 / 2  # of a side, which a hole has


def diffaugment(images, parts, draws):
    """Pictures changed at random, each by its own draws.

    Args:
        images: float32 [N, H, W, C] in [-1, 1].
        parts: any of "color", "translation" and "cutout"; done in this order.
        draws: float32 [N, 7], uniform in [0, 1).

    Returns:
        float32 [N, H, W, C]; colors may leave [-1, 1]. What is moved in, or cut out, is 0, a medium gray.
    """
    columns = tf.unstack(draws, DRAWS, axis=1)
    for name, change, count in (("color", _color, 3), ("translation", _translation, 2), ("cutout", _cutout, 2)):
        mine, columns = columns[:count], columns[count:]
        if name in parts:
            images = change(images, *mine)
    return images


def _color(images, brightness, saturation, contrast):
    """Adds -0.5 to 0.5; then moves colors from their gray by 0 to 2, and values from the picture's mean by 0.5 to 1.5 times."""
    brightness, saturation, contrast = (draw[:, None, None, None] for draw in (brightness, saturation, contrast))
    images += brightness - 0.5
    gray = tf.reduce_mean(images, axis=3, keepdims=True)
    images = gray + (images - gray) * 2.0 * saturation
    mean = tf.reduce_mean(images, axis=[1, 2, 3], keepdims=True)
    return mean + (images - mean) * (contrast + 0.5)


def _translation(images, down, right):
    """Moves pictures by up to an eighth of each side, either way."""
    for axis, draw in ((1, down), (2, right)):
        length = images.shape[axis] or tf.shape(images)[axis]
        most = tf.cast(tf.cast(length, tf.float32) * SHIFT + 0.5, tf.int32)
        shift = tf.cast(tf.floor(draw * tf.cast(2 * most + 1, tf.float32)), tf.int32) - most
        source = tf.range(length)[None] - shift[:, None]
        inside = (source >= 0) & (source < length)
        images = tf.gather(images, tf.clip_by_value(source, 0, length - 1), axis=axis, batch_dims=1)
        shape = [-1, length, 1, 1] if axis == 1 else [-1, 1, length, 1]
        images *= tf.reshape(tf.cast(inside, images.dtype), shape)
    return images


def _cutout(images, down, right):
    """Cuts out a rectangle of half of each side; its middle is anywhere, so that a part of it may lie outside."""
    inside = []
    for axis, draw in ((1, down), (2, right)):
        length = images.shape[axis] or tf.shape(images)[axis]
        hole = tf.cast(tf.cast(length, tf.float32) * HOLE + 0.5, tf.int32)
        start = tf.cast(tf.floor(draw * tf.cast(length + 1 - hole % 2, tf.float32)), tf.int32) - hole // 2
        place = tf.range(length)[None] - start[:, None]
        inside.append((place >= 0) & (place < hole))
    hole = inside[0][:, :, None, None] & inside[1][:, None, :, None]
    return images * tf.cast(~hole, images.dtype)
