"""Decoded images, and the interface of the readers that decode them."""

from __future__ import annotations

import dataclasses
from typing import Optional, Protocol

import numpy as np

MAX_PIXELS = 180_000_000  # 0.7 GB decoded, above any camera's; more is a mistake or an attack


@dataclasses.dataclass(frozen=True)
class DecodedImage:
    """An image at its own depth, as `reader.decode_whole` reads and `writer.write` writes it.

    Attributes:
        pixels: uint8 or uint16 [h, w, C]. Transparent pixels are blended with white.
        opacity: The same type [h, w, 1], or `None` if the image is opaque.
        profile: ICC profile, or empty.
    """

    pixels: np.ndarray
    opacity: Optional[np.ndarray] = None
    profile: bytes = b""


@dataclasses.dataclass(frozen=True)
class Header:
    """Facts about an image that are known before it is decoded.

    Attributes:
        height: Height of the upright image in pixels.
        width: Width of the upright image in pixels.
        bands: Number of bands of a pixel.
        deep: Whether bands have more than 8 bits.
        colors: Whether pixels are gray or RGB, or can be converted to them.
        complete: Whether the file seems to be complete.
    """

    height: int
    width: int
    bands: int
    deep: bool
    colors: bool
    complete: bool


class ImageReader(Protocol):
    """Reader of one open file."""

    header: Header

    def read(self, channels: int) -> DecodedImage:
        """Decode the first frame, upright.

        Args:
            channels: 1 for gray, 3 for RGB; otherwise the number of bands of the file, which are returned as they are.
        """


def check_pixel_count(width: int, height: int, bands: int = 1) -> None:
    """Raise `ValueError` if an image of this size has more than `MAX_PIXELS` pixels (of four bands)."""
    if width * height * max(1, bands / 4) > MAX_PIXELS:
        of_bands = f" of {bands} bands" if bands > 4 else ""
        raise ValueError(f"{width} x {height} pixels{of_bands}: expected at most {MAX_PIXELS // 1_000_000} million")
