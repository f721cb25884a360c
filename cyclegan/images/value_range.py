"""Conversions between the value ranges of images: uint8, uint16, float32 in [-1, 1], and LO:HI of files.

With a range LO:HI, values of files become uint16 levels when they are read, and levels become values when they are
written. All other parts see uint16 images. A level is 1/65535 of HI - LO, so whole numbers in a range of up to 65535
return exactly.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np

from cyclegan.config.data import ValueRange
from cyclegan.images.image import DecodedImage, row_blocks

HIGHEST = np.iinfo(np.uint16).max
FULL_RANGE: ValueRange = (0.0, float(HIGHEST))
MIN_STEPS = 64  # whole numbers in a range that are written as such; fewer would be too coarse
ArrayOrTensor = TypeVar("ArrayOrTensor", bound=Any)


def to_float(images: ArrayOrTensor) -> ArrayOrTensor:
    """Convert uint8 or uint16 images, a NumPy array or any TensorFlow tensor, to float32 in [-1, 1]."""
    half = 32767.5 if images.dtype == np.uint16 else 127.5
    # Tensors have no method that casts; TensorFlow's true division of uint8 and uint16 gives float32, exactly.
    levels: Any = images.astype(np.float32) if isinstance(images, np.ndarray) else images / 1
    return levels / half - 1.0


def from_float(images: np.ndarray, dtype: np.dtype | type) -> np.ndarray:
    """Convert float32 images, clipped to [-1, 1], to the nearest levels of uint8 or uint16."""
    if not np.isfinite(images).all():
        raise ValueError(
            "the network's output is not finite (NaN), so its weights are broken; expected finite values: use an older"
            " checkpoint"
        )
    highest = np.iinfo(dtype).max
    return np.rint(np.clip((images + 1) * (highest / 2), 0, highest)).astype(dtype)


def to_depth(image: np.ndarray, dtype: np.dtype | type) -> np.ndarray:
    """Convert an image between uint8 and uint16; 255 corresponds to 65535."""
    if image.dtype == dtype:
        return image
    if dtype == np.uint16:
        return image * np.uint16(257)
    levels = np.empty(image.shape, np.uint8)
    for rows in row_blocks(image.shape):
        levels[rows] = np.rint(image[rows] / 257)
    return levels


def check_numbers(values: np.ndarray) -> np.ndarray:
    """Return values of a file; raise `ValueError` if some are not numbers."""
    if np.isnan(values).any():
        raise ValueError("some values are not numbers (NaN): expected numbers")
    return values


def to_levels(values: np.ndarray, value_range: ValueRange) -> np.ndarray:
    """Convert values of a file to uint16: LO becomes 0, HI 65535. Values outside, also infinite ones, are clipped."""
    low, high = value_range
    levels = np.empty(values.shape, np.uint16)
    for rows in row_blocks(values.shape):
        scaled = (check_numbers(values[rows]).astype(np.float64) - low) * (HIGHEST / (high - low))
        levels[rows] = np.rint(np.clip(scaled, 0, HIGHEST))
    return levels


def to_values(levels: np.ndarray, value_range: ValueRange, dtype: np.dtype | type) -> np.ndarray:
    """Convert uint16 levels to values of a file, the inverse of `to_levels`; whole numbers are rounded."""
    low, high = value_range
    values = np.empty(levels.shape, dtype)
    for rows in row_blocks(levels.shape):
        block = low + levels[rows] * ((high - low) / HIGHEST)
        values[rows] = np.rint(block) if np.issubdtype(dtype, np.integer) else block
    return values


def value_type(value_range: ValueRange, fractional: bool = False) -> type:
    """Return the type of the values of a range: uint8, uint16 or int16 if whole numbers fit into it, else float32."""
    low, high = value_range
    if not fractional and high - low >= MIN_STEPS:
        for dtype in (np.uint8, np.uint16, np.int16):
            if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
                return dtype
    return np.float32


def image_to_levels(image: DecodedImage, value_range: ValueRange) -> DecodedImage:
    """Return an image with uint16 levels instead of the values of its file; see `to_levels`."""
    opacity = None if image.opacity is None else to_depth(image.opacity, np.uint16)
    return dataclasses.replace(image, pixels=to_levels(image.pixels, value_range), opacity=opacity)


def image_to_values(image: DecodedImage, value_range: ValueRange, fractional: bool = False) -> DecodedImage:
    """Return an image with values of a range, of the type `value_type`, instead of levels; floats have no opacity."""
    dtype = value_type(value_range, fractional)
    has_opacity = np.issubdtype(dtype, np.unsignedinteger)
    opacity = to_depth(image.opacity, dtype) if image.opacity is not None and has_opacity else None
    return dataclasses.replace(image, pixels=to_values(image.pixels, value_range, dtype), opacity=opacity)


def deepen(image: DecodedImage) -> DecodedImage:
    """Return an image of 8 or 16 bits with 16 bits."""
    return image_to_levels(image, (0, np.iinfo(image.pixels.dtype).max))
