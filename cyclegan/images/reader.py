"""Decoding of image files: facts from their headers, and their pixels, upright and at full depth."""

from __future__ import annotations

import contextlib
import io
import os
import threading
import zlib
from typing import BinaryIO, NamedTuple, Union

import numpy as np
import tifffile
from PIL import Image, UnidentifiedImageError

from cyclegan.images import tiff_reader
from cyclegan.images.image import DecodedImage, Header, ImageReader
from cyclegan.images.pillow_reader import TAIL_BYTES, PillowReader
from cyclegan.images.png_reader import PngReader
from cyclegan.images.tiff_reader import TiffReader
from cyclegan.images.value_range import to_depth

FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF")  # by content, not by name; no EPS, which is a program
ANIMATED_FORMATS = ("PNG", "WEBP", "GIF")  # formats with several frames; a JPEG has previews at most
UNCOMPRESSED = ("BMP", "TIFF")  # many files of these formats end alike
PARALLEL_PIXELS = 25_000_000  # larger images are decoded one at a time, to bound the memory
Source = Union[str, "os.PathLike[str]", bytes]  # a path, or the content of a file
_large_image_lock = threading.Lock()


class ImageFacts(NamedTuple):
    """Facts about an image from its header.

    Attributes:
        length: Length of the file in bytes.
        height: Height of the upright image in pixels.
        width: Width of the upright image in pixels.
        deep: Whether the image has more than 8 bits per band.
        end: Checksum of the end of the file; 0 if the file may be uncompressed. Compressed files of one length with the same end
            are equal.
    """

    length: int
    height: int
    width: int
    deep: bool
    end: int


FACTS_DTYPE = np.dtype(
    [("length", np.int64), ("height", np.int32), ("width", np.int32), ("deep", bool), ("end", np.uint32)]
)


def decode(source: Source, channels: int = 3, dtype: np.dtype | type = np.uint8) -> np.ndarray:
    """Decode the first frame of an image, turned upright by its EXIF orientation.

    Args:
        source: A path, or the content of a file.
        channels: 1 for gray, 3 for RGB, both with transparent pixels blended with white. Any other number must equal the number
            of bands of the file, which are returned as they are.
        dtype: `np.uint8` or `np.uint16`; pixels of the other depth are scaled by 257.

    Returns:
        dtype [height, width, channels].

    Raises:
        ValueError: The header names a size that `check_size` refuses, or other bands. Nothing is decoded.
        OSError and errors of the libraries: The file is not an image, or is damaged.
    """
    return to_depth(decode_whole(source, channels).pixels, dtype)


def decode_whole(source: Source, channels: int = 3) -> DecodedImage:
    """Decode an image like `decode`, but at its own depth, and with its opacity and its ICC profile.

    Opacity is one of the bands unless `channels` is 1 or 3.
    """
    return decode_with_header(source, channels)[1]


def decode_with_header(source: Source, channels: int = 3) -> tuple[Header, DecodedImage]:
    """Decode an image like `decode_whole`; return its header, too."""
    with _open(source) as file:
        reader = _open_reader(file, channels)
        is_large = reader.header.height * reader.header.width > PARALLEL_PIXELS
        with _large_image_lock if is_large else contextlib.nullcontext():
            return reader.header, reader.read(channels)


def check(source: Source, channels: int = 3) -> ImageFacts:
    """Check an image by its header and its end marker, which takes almost no time.

    Only an image without an end marker near the end of the file is decoded, because valid files may have other data behind it.

    Raises:
        The errors of `decode`.
    """
    with _open(source) as file:
        header = _open_reader(file, channels).header
        length = file.seek(0, os.SEEK_END)
        file.seek(max(0, length - TAIL_BYTES))
        end = 0 if header.format in UNCOMPRESSED else zlib.crc32(file.read())
    if not header.complete:
        decode(source, channels)
    return ImageFacts(length, header.height, header.width, header.deep, end)


def has_more_frames(path: str | os.PathLike[str]) -> bool:
    """Return whether a file has frames or pages besides the first one; only the first one is decoded."""
    try:
        with open(path, "rb") as file:
            if _is_tiff(file):
                return len(tifffile.TiffFile(file).pages) > 1
            with Image.open(file, formats=ANIMATED_FORMATS) as image:
                return image.is_animated
    except Exception:  # the libraries raise almost anything for a damaged file
        return False


def _open(source: Source) -> BinaryIO:
    return io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")


def _open_reader(file: BinaryIO, channels: int) -> ImageReader:
    """Return the reader of a file, after checking that it has the bands for `channels`."""
    reader = _choose_reader(file)
    header = reader.header
    if channels in (1, 3) and not header.colors:
        raise ValueError(f"bands: {header.bands}; expected gray or RGB pixels, or another --channels_x or --channels_y")
    if channels not in (1, 3) and header.bands != channels:
        raise ValueError(f"bands: {header.bands}; expected {channels} (--channels_x, --channels_y)")
    return reader


def _choose_reader(file: BinaryIO) -> ImageReader:
    try:
        image = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        if _is_tiff(file):  # of many bands, which Pillow does not know
            return TiffReader(file)
        raise
    if image.format == "PNG":
        return PngReader(image, file)
    if image.format == "TIFF":
        tiff_reader.check_samples(image)
        if tiff_reader.is_beyond_pillow(image):
            return TiffReader(file)
    return PillowReader(image, file)


def _is_tiff(file: BinaryIO) -> bool:
    file.seek(0)
    magic = file.read(4)
    file.seek(0)
    return magic in tiff_reader.MAGIC
