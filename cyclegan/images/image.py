"""Decoded images, sequences of images, and the interface of the readers that decode them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

MAX_PIXELS = 180_000_000  # above any camera's; more is a mistake or an attack
MAX_BYTES = 2_000_000_000  # of memory while an image is decoded
ShapeOfImages = tuple[int, Any, Any, int]  # (N, h, w, C); h and w are `None` if they differ between the images
BLOCK_VALUES = 500_000  # converted at a time, so that intermediate results take little memory


@dataclasses.dataclass(frozen=True)
class DecodedImage:
    """An image at its own depth, as `reader.decode_whole` reads and `writer.write` writes it.

    Attributes:
        pixels: uint8 or uint16 [h, w, C]; or values of a value range, which may have other types. Transparent pixels are blended
            with white.
        opacity: uint8 or uint16 [h, w, 1], or `None` if the image is opaque.
        profile: ICC profile, or empty.
        fractional: Whether the file may hold values between whole numbers.
    """

    pixels: np.ndarray
    opacity: np.ndarray | None = None
    profile: bytes = b""
    fractional: bool = False


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
        format: Name of the format, by content: "JPEG", "PNG" and so on.
        mode: Pillow's name of the bands, such as "RGB"; empty if another library reads the file.
        other_values: Type of the values if they are not unsigned ones of 8 or 16 bits, so that they need a value range.
    """

    height: int
    width: int
    bands: int
    deep: bool
    colors: bool
    complete: bool
    format: str
    mode: str = ""
    other_values: str = ""


class ImageReader(Protocol):
    """Reader of one open file."""

    header: Header

    def read(self, channels: int) -> DecodedImage:
        """Decode the first frame, upright, with the values of the file.

        Args:
            channels: 1 for gray, 3 for RGB; otherwise the number of bands of the file, which are returned as they are.
        """

    def has_more_frames(self) -> bool:
        """Return whether the file has frames or pages besides the first one."""


class ImageArray(Protocol):
    """Images that are read one at a time; arrays [N, h, w, C] are such sequences, too.

    A sequence that reads files may have an attribute `failure`: the text of its first error, or `None`.
    """

    @property
    def shape(self) -> tuple[Any, ...]:  # an array has any number of axes
        """(N, h, w, C); h and w are `None` if they differ between the images."""

    @property
    def dtype(self) -> np.dtype:
        """Type of the pixels."""

    def __len__(self) -> int:
        """Return the number of images."""

    def __getitem__(self, index: int, /) -> np.ndarray:
        """Return an image: [h, w, C]."""


def check_size(width: int, height: int, memory: int = 0) -> None:
    """Check the size of an image before it is decoded.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        memory: Bytes of memory that decoding takes.

    Raises:
        ValueError: The image is empty, or has more than `MAX_PIXELS` pixels, or decoding takes more than `MAX_BYTES`.
    """
    if min(width, height) < 1:
        raise ValueError(f"{width} x {height} pixels: expected at least 1")
    if width * height > MAX_PIXELS:
        raise ValueError(f"{width} x {height} pixels: expected at most {MAX_PIXELS // 1_000_000} million")
    if memory > MAX_BYTES:
        raise ValueError(
            f"{width} x {height} pixels, which take {memory / 1e9:.3g} GB of memory to decode: expected at most"
            f" {MAX_BYTES / 1e9:g} GB"
        )


def row_blocks(shape: Sequence[int]) -> Iterator[slice]:
    """Yield slices of the rows of an array of this shape, of about `BLOCK_VALUES` values each."""
    rows = max(1, BLOCK_VALUES // max(1, math.prod(shape[1:])))
    for top in range(0, shape[0], rows):
        yield slice(top, min(top + rows, shape[0]))
