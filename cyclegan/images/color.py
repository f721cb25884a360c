"""Conversion between gray and RGB, and blending of transparent pixels with white, for 8 and 16 bits."""

from __future__ import annotations

import numpy as np

from cyclegan.images.image import row_blocks

GRAY_WEIGHTS = (19595, 38470, 7471)  # of red, green and blue in 1/65536: Pillow's mode L, ITU-R 601-2


def visible(pixels: np.ndarray) -> np.ndarray:
    """Return the channels of an image [h, w, C] that are shown: the first three, or the first."""
    return pixels[..., : 3 if pixels.shape[2] >= 3 else 1]


def convert_bands(
    image: np.ndarray, channels: int, has_opacity: bool, premultiplied: bool = False
) -> tuple[np.ndarray, np.ndarray | None]:
    """Convert the bands of an image to channels and opacity.

    Args:
        image: uint8 or uint16 [h, w, bands]; or floats, without opacity.
        channels: 1 for gray, 3 for RGB; otherwise the bands are returned as they are.
        has_opacity: Whether the last band is opacity.
        premultiplied: Whether the other bands have been multiplied by the opacity.

    Returns:
        (pixels, opacity): the same type [h, w, channels], and [h, w, 1] or `None`.
    """
    if channels not in (1, 3):
        return image, None
    if not has_opacity and image.shape[2] == channels:
        return image, None
    converted = np.empty((*image.shape[:2], channels), image.dtype)
    for rows in row_blocks(image.shape):
        colors = image[rows]
        if has_opacity:
            colors = _blend_with_white(colors[..., :-1], colors[..., -1:], premultiplied)
        converted[rows] = _convert_colors(colors, channels)
    return converted, image[..., -1:] if has_opacity else None


def _blend_with_white(colors: np.ndarray, opacity: np.ndarray, premultiplied: bool) -> np.ndarray:
    highest = np.iinfo(colors.dtype).max
    weight = opacity / highest
    visible = np.minimum(colors, opacity) if premultiplied else colors * weight
    return np.rint(visible + highest * (1 - weight)).astype(colors.dtype)


def _convert_colors(colors: np.ndarray, channels: int) -> np.ndarray:
    if colors.shape[2] == channels:
        return colors
    if channels == 3:
        return np.repeat(colors, 3, axis=2)
    if np.issubdtype(colors.dtype, np.floating):
        return (colors @ (np.array(GRAY_WEIGHTS) / 0x10000))[..., None].astype(colors.dtype)
    red, green, blue = (
        band * weight for band, weight in zip(np.moveaxis(colors.astype(np.uint32), 2, 0), GRAY_WEIGHTS)
    )
    gray = (red + green + blue + 0x8000) >> 16
    return gray[..., None].astype(colors.dtype)
