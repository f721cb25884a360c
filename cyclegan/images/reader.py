"""Decoding of image files: facts from their headers, and their pixels, upright and at full depth."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, Union

import numpy as np

from cyclegan.config.data import ValueRange
from cyclegan.images import tiff_format
from cyclegan.images.formats import FORMATS, explain, open_image
from cyclegan.images.image import DecodedImage, Header, ImageError, ImageReader, check_size, row_blocks
from cyclegan.images.pillow_format import TAIL_BYTES
from cyclegan.images.value_range import to_depth, to_levels
from cyclegan.whole_file import open_regular

PARALLEL_PIXELS = 25_000_000  # larger images are decoded one at a time, to bound the memory
Source = Union[str, "os.PathLike[str]", bytes]  # a path, or the content of a file
_large_image_lock = threading.Lock()


class ImageFacts(NamedTuple):
    """Facts about an image from its header."""

    length: int  # of the file, in bytes
    height: int  # of the upright image, in pixels
    width: int
    deep: bool  # whether it has more than 8 bits per band
    end: int  # checksum of the end of a compressed file, otherwise 0: files of one length with the same end are equal


class RowImage(NamedTuple):
    """A large TIFF file whose rows are decoded as they are needed."""

    header: Header
    read: Callable[[slice], DecodedImage]  # decodes rows like `decode_values`
    has_more_frames: bool


FACTS_DTYPE = np.dtype([*zip(ImageFacts._fields, (np.int64, np.int32, np.int32, bool, np.uint32))])


def decode(
    source: Source,
    channels: int = 3,
    dtype: np.dtype | type = np.uint8,
    value_range: ValueRange | None = None,
    nodata: float | None = None,
) -> np.ndarray:
    """Decode the first frame of an image, turned upright by its EXIF orientation.

    Args:
        source: A path, or the content of a file.
        channels: 1 for gray, 3 for RGB, both with transparent pixels blended with white. Any other number must equal
            the number of bands of the file, which are returned as they are.
        dtype: `np.uint8` or `np.uint16`, of the result [height, width, channels]; the other depth is scaled by 257.
        value_range: Values of the file that become the lowest and the highest level.
        nodata: Value of pixels without data, if the file names none; with a value range, they get the lowest level.

    Raises:
        ImageError: The file is not an image, or is damaged, or has a size that `check_size` refuses, or other bands, or
            values that need a range.
        MissingPackageError: An optional package is needed.
        OSError: The file cannot be read.
    """
    image = decode_values(source, channels, value_range is not None, nodata)
    levels = to_levels(image.pixels, value_range, image.metadata.nodata) if value_range else image.pixels
    return to_depth(levels, dtype)


def decode_values(
    source: Source, channels: int = 3, any_type: bool = True, nodata: float | None = None
) -> DecodedImage:
    """Decode an image like `decode`, with the values of the file, its opacity and its metadata.

    The values may be of any type unless `any_type` is false. Opacity is one of the bands unless `channels` is 1 or 3.
    """
    return decode_with_header(source, channels, any_type, nodata)[1]


def decode_mask(source: Source) -> np.ndarray:
    """Decode a mask, uint8 [h, w, 1]: 0 where the image is black or transparent, otherwise 1.

    In a JPEG, which blurs the values, gray below 128 counts as black. Raise the errors of `decode`.
    """
    header, image = decode_with_header(source, 1, any_type=True)
    inside = image.pixels > (127 if header.format == "jpeg" else 0)
    return (inside if image.opacity is None else inside & (image.opacity > 0)).astype(np.uint8)


def decode_with_header(
    source: Source, channels: int, any_type: bool, nodata: float | None = None
) -> tuple[Header, DecodedImage]:
    """Decode an image like `decode_values`; return its header, too."""
    with _open(source) as file:
        reader = _open_reader(file, channels, any_type)
        is_large = reader.header.height * reader.header.width > PARALLEL_PIXELS
        with _large_image_lock if is_large else contextlib.nullcontext(), explain(reader.header.format, "pixels"):
            image = reader.read(channels)
    return reader.header, _complete(image, 0 if any_type else reader.header.highest, nodata)


@contextlib.contextmanager
def open_rows(source: Source, channels: int, any_type: bool, nodata: float | None = None) -> Iterator[RowImage | None]:
    """Open a TIFF file of more than `tiff_format.LARGE_PIXELS`; provide `None` for another file.

    It may be of any size. Raises the errors of `decode`.
    """
    with _open(source) as file:
        reader = _open_reader(file, channels, any_type, by_rows=True)

        def read(rows: slice) -> DecodedImage:
            assert isinstance(reader, tiff_format.TiffReader)
            with explain("tiff", "pixels"):
                return _complete(reader.read(channels, rows), 0 if any_type else reader.header.highest, nodata)

        yield RowImage(reader.header, read, reader.has_more_frames(channels)) if _reads_rows(reader) else None


def _reads_rows(reader: ImageReader) -> bool:
    return isinstance(reader, tiff_format.TiffReader) and reader.by_rows


def _complete(image: DecodedImage, highest: int, nodata: float | None) -> DecodedImage:
    """Return an image that knows `nodata`, and whose highest level, unless it is 0, becomes the maximum of the type."""
    if nodata is not None and image.metadata.nodata is None:
        image = dataclasses.replace(image, metadata=image.metadata._replace(nodata=nodata))
    if highest:
        opacity = None if image.opacity is None else _stretch(image.opacity, highest)
        image = dataclasses.replace(image, pixels=_stretch(image.pixels, highest), opacity=opacity)
    return image


def _stretch(pixels: np.ndarray, highest: int) -> np.ndarray:
    """Return the pixels, scaled so that the highest level becomes the maximum of their type."""
    stretched = np.empty_like(pixels)
    for rows in row_blocks(pixels.shape):
        stretched[rows] = np.rint(pixels[rows].clip(0, highest) * (np.iinfo(pixels.dtype).max / highest))
    return stretched


def check(source: Source, channels: int = 3, has_range: bool = False, by_rows: bool = False) -> ImageFacts:
    """Check an image by its header and its end; raise the errors of `decode`.

    The image is decoded only if it has no end marker near the end of the file, because valid files may have other data
    behind it. With `has_range`, values may be of any type, and the depth is 16 bits. `by_rows` accepts files of
    `open_rows`.
    """
    with _open(source) as file:
        reader = _open_reader(file, channels, has_range, by_rows)
        header = reader.header
        length = file.seek(0, os.SEEK_END)
        file.seek(max(0, length - TAIL_BYTES))
        end = zlib.crc32(file.read()) if FORMATS[header.format].compressed else 0
    if not header.complete and not _reads_rows(reader):
        decode_values(source, channels, has_range)
    return ImageFacts(length, header.height, header.width, header.deep or has_range, end)


def has_more_frames(path: str | os.PathLike[str], channels: int = 3) -> bool:
    """Return whether a file has frames or pages besides the first one; only the first one is decoded."""
    try:
        with open(path, "rb") as file:
            return open_image(file).has_more_frames(channels)
    except Exception:  # the libraries raise almost anything for a damaged file
        return False


def _open(source: Source) -> BinaryIO:
    return io.BytesIO(source) if isinstance(source, bytes) else open_regular(source)


def _open_reader(file: BinaryIO, channels: int, any_type: bool, by_rows: bool = False) -> ImageReader:
    """Return the reader of a file; check that it has the bands for `channels`, and values of a type that is allowed."""
    with explain("tiff", "header"):
        reader = (tiff_format.open_rows(file) if by_rows else None) or open_image(file)
    header = reader.header
    if channels in (1, 3) and not header.colors:
        raise ImageError(
            f"bands: {header.bands}; expected gray or RGB pixels, or another --channels_x or --channels_y in training"
        )
    if channels not in (1, 3) and header.bands != channels:
        raise ImageError(f"bands: {header.bands}; expected {channels} (--channels_x, --channels_y in training)")
    if header.other_values and not any_type:
        raise ImageError(
            f"{header.other_values}: expected a flat image of 8 or 16 bits, unsigned; others need"
            " --value_range_x or --value_range_y in training"
        )
    if (
        any_type and not header.other_values and not _reads_rows(reader)
    ):  # other values take more memory to decode than to convert
        # Memory of all bands, of the chosen bands, and of the result and its opacity as uint16.
        pixel_bytes = (1 + header.deep) * (header.bands + channels) + 2 * (channels + 1)
        check_size(header.width, header.height, header.height * header.width * pixel_bytes)
    return reader
