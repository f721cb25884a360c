"""Conversions between the value ranges of images: uint8, uint16, float32 in [-1, 1], and LO:HI of files.

With a range LO:HI, values of files become uint16 levels when they are read, and levels become values when they are
written. All other parts see uint16 images. A level is 1/65535 of HI - LO, so whole numbers in a range of up to 65535
return exactly.
"""

from __future__ import annotations

import dataclasses
import math
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


def is_missing(pixels: np.ndarray, nodata: float | None) -> np.ndarray:
    """Return which pixels of a file, [..., C], have no data: each of their channels is NaN or `nodata`."""
    missing = np.isnan(pixels)
    if nodata is not None:
        with np.errstate(over="ignore"):
            missing |= (pixels == nodata) | (pixels == float(np.float32(nodata)))  # in the precision of some files
    return missing.all(axis=-1)


def to_levels(values: np.ndarray, value_range: ValueRange, nodata: float | None = None) -> np.ndarray:
    """Convert values of a file to uint16: LO becomes 0, HI 65535. Values outside, also infinite ones, are clipped.

    NaN becomes 0, and so do pixels, [..., C], that `is_missing` finds.
    """
    low, high = value_range
    levels = np.empty(values.shape, np.uint16)
    for rows in row_blocks(values.shape):
        with np.errstate(over="ignore"):  # of the lowest float64, which some files have as nodata
            scaled = (values[rows].astype(np.float64) - low) * (HIGHEST / (high - low))
        if values.dtype.kind == "f":
            scaled[np.isnan(scaled)] = 0
        if nodata is not None:
            scaled[is_missing(values[rows], nodata)] = 0
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


def image_to_levels(image: DecodedImage, value_range: ValueRange | None) -> DecodedImage:
    """Return an image with uint16 levels instead of the values of its file; without a range, 8 bits become 16."""
    opacity = None if image.opacity is None else to_depth(image.opacity, np.uint16)
    nodata = image.metadata.nodata
    levels = to_levels(image.pixels, value_range, nodata) if value_range else to_depth(image.pixels, np.uint16)
    return dataclasses.replace(image, pixels=levels, opacity=opacity)


def image_to_values(
    image: DecodedImage, value_range: ValueRange, floats: bool = False, held: ValueRange | None = None
) -> DecodedImage:
    """Return an image with values of a range, of the type `value_type`, instead of levels; float32 has no opacity.

    The type also holds the values `held`.

    With `floats`, the type is float32 if the file may hold fractions, or its value for missing data needs it.
    """
    dtype = value_type(held or value_range)
    if floats and (image.fractional or not holds_nodata(dtype, image.metadata.nodata)):
        dtype = np.float32
    has_opacity = np.issubdtype(dtype, np.unsignedinteger)
    opacity = to_depth(image.opacity, dtype) if image.opacity is not None and has_opacity else None
    return dataclasses.replace(image, pixels=to_values(image.pixels, value_range, dtype), opacity=opacity)


def mark_missing(image: DecodedImage) -> DecodedImage:
    """Return an image, with the values of its file, whose `missing` marks the pixels without data in all channels.

    In a file of floats that names no value for them, it is NaN, also if these pixels have data: others may have none.
    """
    nodata = math.nan if image.metadata.nodata is None and image.fractional else image.metadata.nodata
    if nodata is None:
        return image
    missing = np.empty((*image.pixels.shape[:2], 1), np.uint8)
    for rows in row_blocks(image.pixels.shape):
        block = image.pixels[rows]
        missing[rows, :, 0] = is_missing(block, nodata).astype(np.uint8) + np.isnan(block).all(axis=-1)
    metadata = image.metadata._replace(nodata=nodata)
    return dataclasses.replace(image, missing=missing if missing.any() else None, metadata=metadata)


def holds_nodata(dtype: np.dtype | type, nodata: float | None) -> bool:
    """Return whether a type has a value for missing data."""
    if nodata is None or np.issubdtype(dtype, np.floating):
        return True
    return np.iinfo(dtype).min <= nodata <= np.iinfo(dtype).max and float(nodata).is_integer()


def restore_nodata(image: DecodedImage) -> DecodedImage:
    """Return a translation with values of a file, whose pixels without data have none again, if its type allows it.

    Other pixels that became the value for missing data move by one step, towards 0. Pixels of NaN are NaN again if it
    is a type of floats.
    """
    nodata, dtype = image.metadata.nodata, image.pixels.dtype
    if nodata is None or not holds_nodata(dtype, nodata):
        return dataclasses.replace(image, metadata=image.metadata._replace(nodata=None))
    is_float = np.issubdtype(dtype, np.floating)
    if is_float:  # the lowest float64, for example, is no float32
        nodata = float(np.clip(nodata, np.finfo(dtype).min, np.finfo(dtype).max))
    pixels = image.pixels
    if (equal := is_missing(pixels, nodata)).any() and not math.isnan(nodata):
        towards = float(nodata == 0)
        moved = (
            np.nextafter(dtype.type(nodata), dtype.type(towards)) if is_float else nodata + np.sign(towards - nodata)
        )
        pixels = np.where(equal[..., None], dtype.type(moved), pixels)
    if image.missing is not None:
        values = np.array([0, nodata, math.nan if is_float else nodata], dtype)
        pixels = np.where(image.missing, values[image.missing], pixels)
    return dataclasses.replace(image, pixels=pixels, metadata=image.metadata._replace(nodata=nodata))
