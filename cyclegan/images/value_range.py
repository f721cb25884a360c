"""Conversions between the value ranges of images: uint8 [0, 255], uint16 [0, 65535] and float32 [-1, 1]."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from cyclegan.images.image import row_blocks

ArrayOrTensor = TypeVar("ArrayOrTensor", bound=Any)


def to_float(images: ArrayOrTensor) -> ArrayOrTensor:
    """Convert uint8 or uint16 images to float32 in [-1, 1].

    Args:
        images: uint8 or uint16, of any shape: a NumPy array, or a TensorFlow tensor, eager or symbolic.

    Returns:
        float32 of the same shape: an array for an array, a tensor for a tensor.
    """
    half = 32767.5 if images.dtype == np.uint16 else 127.5
    # Tensors have no method that casts; TensorFlow's true division of uint8 and uint16 gives float32, exactly.
    levels: Any = images.astype(np.float32) if isinstance(images, np.ndarray) else images / 1
    return levels / half - 1.0


def from_float(images: np.ndarray, dtype: np.dtype | type) -> np.ndarray:
    """Convert float32 images in [-1, 1] to the nearest levels of uint8 or uint16.

    Args:
        images: float32, of any shape. Values outside [-1, 1] are clipped.
        dtype: `np.uint8` or `np.uint16`.

    Raises:
        ValueError: Some values are not finite.
    """
    if not np.isfinite(images).all():
        raise ValueError(
            "the network's output is not finite (NaN), so its weights are broken; expected finite values: use an older"
            " checkpoint"
        )
    highest = np.iinfo(dtype).max
    return np.rint(np.clip((images + 1) * (highest / 2), 0, highest)).astype(dtype)


def to_depth(image: np.ndarray, dtype: np.dtype | type) -> np.ndarray:
    """Convert an image between uint8 and uint16; 255 corresponds to 65535.

    Args:
        image: uint8 or uint16, of any shape.
        dtype: `np.uint8` or `np.uint16`.
    """
    if image.dtype == dtype:
        return image
    if dtype == np.uint16:
        return image * np.uint16(257)
    levels = np.empty(image.shape, np.uint8)
    for rows in row_blocks(image.shape):
        levels[rows] = np.rint(image[rows] / 257)
    return levels
