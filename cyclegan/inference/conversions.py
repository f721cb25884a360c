"""Conversions between files, Pillow images, arrays and decoded images, before and after translation."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Optional, Union

import numpy as np
from PIL import Image

from cyclegan.config import Config
from cyclegan.config.data import ValueRange
from cyclegan.config.sections import DIRECTIONS
from cyclegan.errors import MissingPackageError, UserError, describe_missing, printable
from cyclegan.images import geometry, pillow_format, reader
from cyclegan.images.image import Bands, DecodedImage, Header, ImageError, convert
from cyclegan.images.image import check_size as check_pixels
from cyclegan.images.value_range import image_to_levels, image_to_values, mark_missing, restore_nodata, to_depth

Path = Union[str, "os.PathLike[str]"]
Size = tuple[int, int]  # width and height in pixels
Ranges = tuple[Optional[ValueRange], Optional[ValueRange]]  # of the values of the originals, of the translations
TILE = 1536  # default side in pixels of the largest square that is translated at once
MIN_TILE = 512
PRECISIONS = ("float32", "bfloat16", "float16")
COLOR_SPACES = {1: b"GRAY", 3: b"RGB "}  # as ICC profiles name them, by number of channels


def decode(image: Any, channels: int, any_type: bool, nodata: float | None = None) -> DecodedImage:
    """Decode a path or a Pillow image to the values of the file; see `reader.decode_values`."""
    if isinstance(image, Image.Image):
        if channels not in COLOR_SPACES and len(image.getbands()) != channels:
            raise UserError(f"a Pillow image of mode {image.mode}: expected {channels} bands, or an array")
    elif not isinstance(image, (str, os.PathLike)):
        raise UserError(f"{type(image).__name__}: expected a path, a Pillow image or a NumPy array")
    elif not os.path.exists(image):
        raise UserError(f"{printable(image)}: {describe_missing(image, 'file')}; expected an image")
    try:
        if isinstance(image, Image.Image):
            return pillow_format.from_pillow(image, channels, any_type)
        return reader.decode_values(image, channels, any_type, nodata)
    except MissingPackageError:
        raise
    except Exception as error:  # Pillow's decoders raise almost anything on a damaged file
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise UserError(f"{printable(image)} can't be read: {reason}") from error


def to_network(image: DecodedImage, ranges: Ranges, size: Size | None = None) -> DecodedImage:
    """Return an image, resized, with levels instead of the values of its file: of 16 bits if any domain has a range."""
    image = mark_missing(image)
    if any(ranges):
        image = image_to_levels(image, ranges[0])
    return resize(image, size) if size else image


def from_network(
    original: DecodedImage,
    output: np.ndarray,
    value_range: ValueRange | None,
    floats: bool,
    held: ValueRange | None = None,
) -> DecodedImage:
    """Return the translation of an image of `to_network`, with the values of a range if there is one.

    It has the opacity of its original, and its color profile if the color space is the same. For `floats`
    and `held`, see `image_to_values`.
    """
    keeps_profile = original.metadata.profile[16:20] == COLOR_SPACES.get(output.shape[2])
    metadata = original.metadata if keeps_profile else original.metadata._replace(profile=b"")
    made = dataclasses.replace(original, pixels=output, metadata=metadata)
    return image_to_values(made, value_range, floats, held) if value_range else made


def with_own_colors(image: DecodedImage, header: Header, source: reader.Source, any_type: bool) -> DecodedImage:
    """Return an image of a file whose half-transparent pixels have their own colors, not blended with white.

    The colors are exact unless they have been multiplied by the opacity, or come from a palette or a color profile.
    """
    if image.opacity is None:
        return image
    channels, pixels = image.pixels.shape[2], None
    white = (any_type and header.highest) or np.iinfo(image.pixels.dtype).max
    if header.bands in (2, 4):
        bands = reader.decode_values(source, header.bands, any_type).pixels
        blended = convert(Bands(bands, has_opacity=True, highest=white), channels).pixels
        if np.abs(blended.astype(np.int32) - image.pixels).max() <= 1:
            pixels = convert(Bands(bands[..., :-1]), channels).pixels
    if pixels is None:
        weight = np.maximum(image.opacity, 1) / white
        pixels = np.rint(np.clip(white - (white - image.pixels) / weight, 0, white)).astype(image.pixels.dtype)
    return dataclasses.replace(image, pixels=pixels)


def put_values(pixels: np.ndarray, values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Return pixels with other values in some places, rounded and clipped if their type does not hold these."""
    if pixels.dtype.kind != "f":
        limits = np.iinfo(pixels.dtype)
        where = where & ~np.isnan(values)
        values = np.clip(np.rint(np.where(where, values, 0)), limits.min, limits.max)
    return np.where(where, values, pixels).astype(pixels.dtype)


def resize(image: DecodedImage, size: Size) -> DecodedImage:
    """Return an image in another size, (width, height)."""
    (width, height), (rows, columns) = size, image.pixels.shape[:2]
    opacity, missing = image.opacity, image.missing
    return dataclasses.replace(
        image,
        pixels=geometry.resize(image.pixels, (height, width)),
        opacity=None if opacity is None else geometry.resize(opacity, (height, width)),
        metadata=image.metadata.resized(width / columns, height / rows),
        missing=None if missing is None else geometry.resize(missing, (height, width), is_mask=True),
    )


def check_size(given: Any) -> Size:
    """Return (width, height) of these, or of one number for both; raise `UserError` unless images can have it."""
    size = (given, given) if type(given) is int else given
    if not (isinstance(size, (tuple, list)) and len(size) == 2 and all(isinstance(n, int) and n > 0 for n in size)):
        raise UserError(f"size {given!r}: expected (width, height) in pixels, or a number for both")
    try:
        check_pixels(*size)
    except ImageError as error:
        raise UserError(f"--size {error}") from error
    return size[0], size[1]


def check_tile(tile: int) -> None:
    """Raise `UserError` if tiles are too small."""
    if not isinstance(tile, int) or tile < MIN_TILE:
        raise UserError(f"--tile {tile!r}: expected a whole number of at least {MIN_TILE} pixels")


def check_direction(config: Config, direction: str) -> None:
    """Raise `UserError` if a run has no generator of a direction."""
    if direction not in config.objective.directions:
        wanted = " -> ".join(DIRECTIONS.get(direction, [direction]))
        raise UserError(
            f"--objective {config.objective.objective} has no generator {wanted}; expected"
            f" --direction {' or '.join(config.objective.directions)}"
        )


def to_pillow(original: DecodedImage, output: np.ndarray, ranges: Ranges) -> Image.Image | np.ndarray:
    """Convert the translation of an image of `to_network` to a Pillow image of values.

    If Pillow has no such images, it becomes an array of values [h, w, C], with the opacity as the last channel.
    """
    single = output.shape[2] == 1
    image = from_network(original, output, ranges[1], floats=single)  # Pillow has no floats of several channels
    if ranges[0] and not ranges[1] and not (single and image.opacity is None):  # nor 16 bits of several bands
        opacity = None if image.opacity is None else to_depth(image.opacity, np.uint8)
        image = dataclasses.replace(image, pixels=to_depth(image.pixels, np.uint8), opacity=opacity)
    image = restore_nodata(image)
    channels, transparent = image.pixels.shape[2], image.opacity is not None
    deep = image.pixels.dtype != np.uint8
    pixels = image.pixels if image.opacity is None else np.concatenate([image.pixels, image.opacity], axis=2)
    if channels > 4 or (deep and (channels > 1 or transparent)):
        return pixels
    pixels = pixels.astype(np.int32) if pixels.dtype == np.int16 else pixels
    made = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    if image.metadata.profile:
        made.info["icc_profile"] = image.metadata.profile
    return made


def as_batch(array: np.ndarray, channels: int, size: Size | None) -> np.ndarray:
    """Return an array of one or several images as [N, h, w, channels], resized if `size` is given."""
    images = array[..., None] if array.ndim == 2 and channels == 1 else array
    images = images if images.ndim == 4 else images[None]
    if images.ndim != 4 or images.shape[-1] != channels or 0 in images.shape:
        raise UserError(f"an array of shape {array.shape}: expected [h, w, {channels}] or [N, h, w, {channels}]")
    if images.dtype not in (np.uint8, np.uint16, np.float32):
        raise UserError(f"an array of {array.dtype}: expected uint8 [0, 255], uint16 [0, 65535] or float32 [-1, 1]")
    if images.dtype == np.float32 and not (np.abs(images) <= 1 + 1e-3).all():
        raise UserError(f"an array of values from {images.min()} to {images.max()}: expected float32 in [-1, 1]")
    if size is None:
        return images
    if images.dtype == np.float32:
        raise UserError("size with a float32 array: expected uint8 or uint16, or resize the array first")
    return np.stack([geometry.resize(image, size[::-1]) for image in images])


def like_array(array: np.ndarray, translated: np.ndarray) -> np.ndarray:
    """Return translations [N, h, w, C] with the dimensions of the array that was given to `as_batch`."""
    if array.ndim == 4:
        return translated
    return translated[0, ..., 0] if array.ndim == 2 and translated.shape[-1] == 1 else translated[0]
