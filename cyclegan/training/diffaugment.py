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
        places, length = _places(images, axis)
        most = tf.floor(length * SHIFT + 0.5)
        source = places - (tf.floor(draw * (2 * most + 1)) - most)[:, None]
        inside = (source >= 0) & (source < length)
        source = tf.cast(tf.clip_by_value(source, 0, length - 1), tf.int64)
        images = tf.gather(images, source, axis=axis, batch_dims=1)
        images *= tf.cast(_beside(inside, axis), images.dtype)
    return images


def _cutout(images, down, right):
    """Cuts out a rectangle of half of each side; its middle is anywhere, so that a part of it may lie outside."""
    cut = True
    for axis, draw in ((1, down), (2, right)):
        places, length = _places(images, axis)
        hole = tf.floor(length * HOLE + 0.5)
        place = places - (tf.floor(draw * (length + 1 - hole % 2)) - hole // 2)[:, None]
        cut &= _beside((place >= 0) & (place < hole), axis)
    return images * tf.cast(~cut, images.dtype)


def _places(images, axis):
    """float32: (0 to the length of an axis [1, length], that length []). Whole numbers of 32 bits would have a GPU wait."""
    length = tf.cast(images.shape[axis] or tf.shape(images)[axis], tf.float32)
    return tf.range(length)[None], length


def _beside(rows, axis):
    """[N, length] -> [N, length, 1, 1] or [N, 1, length, 1], as `axis` is 1 or 2."""
    return rows[:, :, None, None] if axis == 1 else rows[:, None, :, None]
