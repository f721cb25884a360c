"""DiffAugment (Zhao et al. 2020): differentiable random changes of the discriminators' input."""

from __future__ import annotations

from collections.abc import Collection

from cyclegan.lazy_tensorflow import tf

RANDOM_NUMBERS = 7  # per image
MAX_SHIFT = 1 / 8  # of a side
HOLE_SIZE = 1 / 2  # of a side


def diffaugment(images: tf.Tensor, parts: Collection[str], random: tf.Tensor) -> tf.Tensor:
    """Return images that are changed at random, each by its own random numbers.

    Args:
        images: float32 [N, H, W, C] in [-1, 1].
        parts: Any of "color", "translation" and "cutout"; they are applied in this order.
        random: float32 [N, 7], uniform in [0, 1).

    Returns:
        float32 [N, H, W, C]; colors may leave [-1, 1]. Pixels moved in or cut out are 0, a medium gray.
    """
    columns = tf.unstack(random, RANDOM_NUMBERS, axis=1)
    for name, change, count in (("color", _color, 3), ("translation", _translation, 2), ("cutout", _cutout, 2)):
        own, columns = columns[:count], columns[count:]
        if name in parts:
            images = change(images, *own)
    return images


def _color(images: tf.Tensor, brightness: tf.Tensor, saturation: tf.Tensor, contrast: tf.Tensor) -> tf.Tensor:
    """Add -0.5 to 0.5, scale the distance to gray by 0 to 2, and the distance to the image's mean by 0.5 to 1.5."""
    brightness, saturation, contrast = (each[:, None, None, None] for each in (brightness, saturation, contrast))
    images += brightness - 0.5
    gray = tf.reduce_mean(images, axis=3, keepdims=True)
    images = gray + (images - gray) * 2.0 * saturation
    mean = tf.reduce_mean(images, axis=[1, 2, 3], keepdims=True)
    return mean + (images - mean) * (contrast + 0.5)


def _translation(images: tf.Tensor, down: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Move images by up to an eighth of each side, in both directions."""
    for axis, random in ((1, down), (2, right)):
        indices, length = _indices(images, axis)
        most = tf.floor(length * MAX_SHIFT + 0.5)
        source = indices - (tf.floor(random * (2 * most + 1)) - most)[:, None]
        inside = (source >= 0) & (source < length)
        source = tf.cast(tf.clip_by_value(source, 0, length - 1), tf.int64)
        images = tf.gather(images, source, axis=axis, batch_dims=1)
        images *= tf.cast(_along(inside, axis), images.dtype)
    return images


def _cutout(images: tf.Tensor, down: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Cut out a rectangle of half of each side; its center is anywhere, so a part of it may lie outside."""
    cut: bool | tf.Tensor = True
    for axis, random in ((1, down), (2, right)):
        indices, length = _indices(images, axis)
        hole = tf.floor(length * HOLE_SIZE + 0.5)
        offset = indices - (tf.floor(random * (length + 1 - hole % 2)) - hole // 2)[:, None]
        cut &= _along((offset >= 0) & (offset < hole), axis)
    return images * tf.cast(~cut, images.dtype)


def _indices(images: tf.Tensor, axis: int) -> tuple[tf.Tensor, float]:
    """Return the indices along an axis, [1, length], and its length; no int32, because a GPU would wait for int32."""
    length = float(images.shape[axis])
    return tf.range(length)[None], length


def _along(rows: tf.Tensor, axis: int) -> tf.Tensor:
    """Reshape [N, length] to [N, length, 1, 1] for axis 1, and to [N, 1, length, 1] for axis 2."""
    return rows[:, :, None, None] if axis == 1 else rows[:, None, :, None]
