"""Decoding of image files: facts from their headers, and their pixels, upright and at full depth."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, Union

import numpy as np

from cyclegan.config.data import ValueRange
from cyclegan.images.formats import LOSSY, UNCOMPRESSED, open_image
from cyclegan.images.image import (
    NO_METADATA,
    Bands,
    DecodedImage,
    Header,
    ImageError,
    ImageReader,
    check_size,
    convert,
    explain,
)
from cyclegan.images.pillow_format import TAIL_BYTES
from cyclegan.images.value_range import to_depth, to_levels
from cyclegan.whole_file import open_regular

PARALLEL_PIXELS = 25_000_000  # larger images are decoded one at a time, to bound the memory
PART_BYTES = 1 << 20  # of a file, read at a time
MAX_OPENED = 64  # files with several images that stay open
MAX_KEPT_BYTES = 2_000_000_000  # of images that their readers keep; the newest file may have more
_large_image_lock = threading.Lock()


class Slice(NamedTuple):
    """One of several images of a file: a page, a slice of a volume, or a frame. Its text is "scan.tif[12]"."""

    path: str
    number: int  # of the image in the file, from 0
    axis: int | None = None  # along which the slices of a volume lie; `None` for the usual one

    def __str__(self) -> str:
        return f"{self.path}[{self.number}]"


Source = Union[str, "os.PathLike[str]", bytes, Slice]  # a path, or the content of a file, or one of its images


class ImageFacts(NamedTuple):
    """Facts about an image from its header."""

    length: int  # of the file, in bytes
    height: int  # of the upright image, in pixels
    width: int
    deep: bool  # whether it has more than 8 bits per band
    end: int  # checksum of the end of a compressed file, otherwise 0: files of one length with the same end are equal
    images: int  # of the file: pages, slices or frames
    partial_of: int  # bands of the file if only some of them are used, otherwise 0


class RowImage(NamedTuple):
    """A large TIFF file whose rows are decoded as they are needed."""

    header: Header
    read: Callable[[slice], DecodedImage]  # decodes rows like `decode_values`


FACTS_DTYPE = np.dtype([*zip(ImageFacts._fields, (np.int64, np.int32, np.int32, bool, np.uint32, np.int32, np.int32))])


def decode(
    source: Source,
    channels: int = 3,
    dtype: np.dtype | type = np.uint8,
    value_range: ValueRange | None = None,
    nodata: float | None = None,
) -> np.ndarray:
    """Decode an image, turned upright by its EXIF orientation.

    Args:
        source: A path, or the content of a file: its first page, slice or frame; or a `Slice`.
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


def decode_with_header(
    source: Source, channels: int = 3, any_type: bool = True, nodata: float | None = None
) -> tuple[Header, DecodedImage]:
    """Decode an image like `decode_values`; return its header, too."""
    with _opened(source) as reader:
        _check_bands(reader, channels, any_type)
        is_large = reader.header.height * reader.header.width > PARALLEL_PIXELS
        with _large_image_lock if is_large else contextlib.nullcontext(), explain(reader.header.format, "pixels"):
            return reader.header, _convert(reader.read(channels), reader.header, channels, any_type, nodata)


def decode_mask(source: Source) -> np.ndarray:
    """Decode a mask, uint8 [h, w, 1]: 0 where the image is black or transparent, otherwise 1.

    Lossy compression blurs the values, so a color is black there if all its channels are below the middle. Raise the
    errors of `decode`.
    """
    with _opened(source) as reader:
        header = reader.header
        _check_bands(reader, 1, any_type=True)
        is_large = header.height * header.width > PARALLEL_PIXELS
        with _large_image_lock if is_large else contextlib.nullcontext(), explain(header.format, "pixels"):
            bands = reader.read(1)
            opacity = convert(bands, 1).opacity
            # Colors of their own, without a blend with white and a profile.
            opaque = dataclasses.replace(bands, has_opacity=False, premultiplied=False, metadata=NO_METADATA)
            colors = convert(opaque, 3).pixels
    lowest = 0
    if (header.lossy or header.format in LOSSY) and colors.dtype.kind == "u":  # floats have no highest level
        lowest = (header.highest or np.iinfo(colors.dtype).max) // 2
    inside = (colors > lowest).any(axis=2, keepdims=True)
    return (inside if opacity is None else inside & (opacity > 0)).astype(np.uint8)


@contextlib.contextmanager
def open_rows(source: Source, channels: int, any_type: bool, nodata: float | None = None) -> Iterator[RowImage | None]:
    """Open a TIFF file of more than `tiff_format.LARGE_PIXELS`, of any size; provide `None` for another file.

    Raise the errors of `decode` that are known from the header.
    """
    with _opened(source) as reader:
        _check_bands(reader, channels, any_type, by_rows=True)

        def read(rows: slice) -> DecodedImage:
            with explain(reader.header.format, "pixels"):
                return _convert(reader.read_rows(channels, rows), reader.header, channels, any_type, nodata)

        yield RowImage(reader.header, read) if reader.has_rows else None


def _convert(bands: Bands, header: Header, channels: int, any_type: bool, nodata: float | None) -> DecodedImage:
    """Return an image that knows `nodata`; unless values may be of `any_type`, white becomes the highest level."""
    image = convert(bands, channels, stretch=not any_type)
    metadata = image.metadata._replace(
        nodata=nodata if image.metadata.nodata is None else image.metadata.nodata,
        last_is_opacity=header.opacity and channels == header.bands in (2, 4),
        channel_pages=header.channel_pages if channels == header.bands else 1,
    )
    return dataclasses.replace(image, metadata=metadata)


def check(source: Source, channels: int = 3, has_range: bool = False, by_rows: bool = False) -> ImageFacts:
    """Check an image by its header and its end; raise the errors of `decode`.

    The image is decoded only if it has no end marker near the end of the file, because valid files may have other data
    behind it. With `has_range`, values may be of any type, and the depth is 16 bits. `by_rows` accepts files of
    `open_rows`.
    """
    with _opened(source) as reader:
        header, images = reader.header, 1
        if not isinstance(source, Slice):
            with contextlib.suppress(ImageError):  # pages behind the first one, which are not used, may be damaged
                images = _count(reader, channels)
        _check_bands(reader, channels, has_range, by_rows)
    content = source.path if isinstance(source, Slice) else source
    with io.BytesIO(content) if isinstance(content, bytes) else open_regular(content) as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(0, length - TAIL_BYTES))
        end = 0 if header.format in UNCOMPRESSED else zlib.crc32(file.read())
    if end and isinstance(source, Slice):
        end = zlib.crc32(b"%d" % source.number, end)
    if not header.complete and not (by_rows and reader.has_rows):
        decode_values(source, channels, has_range)
    deep = header.deep or has_range
    return ImageFacts(length, header.height, header.width, deep, end, images, header.partial_of(channels))


def checksum(source: Source) -> int:
    """Return a checksum of all bytes of the file of an image; raise `OSError` if it cannot be read."""
    content, result = source.path if isinstance(source, Slice) else source, 0
    with io.BytesIO(content) if isinstance(content, bytes) else open_regular(content) as file:
        while part := file.read(PART_BYTES):
            result = zlib.crc32(part, result)
    return result


def count(path: str | os.PathLike[str], channels: int = 3, axis: int | None = None) -> int:
    """Return the number of images of a file: pages, slices along an axis, or frames; raise the errors of `decode`."""
    with _opened(path) as reader:
        return _count(reader.along(axis), channels)


def _count(reader: ImageReader, channels: int) -> int:
    with explain(reader.header.format, "pages"):
        return reader.count(channels)


class _OpenedFile:
    """A file with several images that stays open, for one thread at a time."""

    def __init__(self, path: str, axis: int | None) -> None:
        file = open_regular(path)
        weakref.finalize(self, file.close)  # when no thread uses it
        self.lock = threading.Lock()
        self.reader = open_image(file).along(axis)


_opened_files: dict[tuple, _OpenedFile] = {}  # by path, axis, time and length; the newest are the last
_opened_files_lock = threading.Lock()


@contextlib.contextmanager
def _opened(source: Source) -> Iterator[ImageReader]:
    """Provide the reader of an image. Files of `Slice`s stay open, because the next slice may be of the same file."""
    if not isinstance(source, Slice):
        with io.BytesIO(source) if isinstance(source, bytes) else open_regular(source) as file:
            yield open_image(file)
        return
    state = os.stat(source.path)
    key = (source.path, source.axis, state.st_mtime_ns, state.st_size)
    with _opened_files_lock:
        opened = _opened_files.pop(key, None) or _OpenedFile(source.path, source.axis)
        _opened_files[key] = opened
        while len(_opened_files) > 1 and (
            len(_opened_files) > MAX_OPENED
            or sum(each.reader.nbytes for each in _opened_files.values()) > MAX_KEPT_BYTES
        ):
            del _opened_files[next(iter(_opened_files))]
    with opened.lock:
        with explain(opened.reader.header.format, "pages"):
            reader = opened.reader.at(source.number)
        yield reader


def close_files() -> None:
    """Close the files of `Slice`s, and free the images that their readers keep, unless a thread uses them."""
    with _opened_files_lock:
        _opened_files.clear()


def _check_bands(reader: ImageReader, channels: int, any_type: bool, by_rows: bool = False) -> None:
    """Check that an image has the bands for `channels`, and values of a type that is allowed."""
    header, reads_rows = reader.header, by_rows and reader.has_rows
    with explain(header.format, "header"):
        if not reads_rows:
            reader.check_memory()
        if channels in (1, 3) and not header.colors:
            raise ImageError(
                f"bands: {header.bands}; expected gray or RGB pixels, or another --channels_x or --channels_y in"
                f" training{', or --slice_axis for a volume' if reader.has_axes else ''}"
            )
        if channels not in (1, 3) and header.bands != channels:
            raise ImageError(f"bands: {header.bands}; expected {channels} (--channels_x, --channels_y in training)")
        if header.other_values and not any_type:
            raise ImageError(
                f"{header.other_values}: expected a flat image of 8 or 16 bits, unsigned; others need"
                " --value_range_x or --value_range_y in training"
            )
        # Other values take more memory to decode than to convert.
        if any_type and not header.other_values and not reads_rows:
            # Memory of all bands, of the chosen bands, and of the result and its opacity as uint16.
            pixel_bytes = (1 + header.deep) * (header.bands + channels) + 2 * (channels + 1)
            check_size(header.width, header.height, header.height * header.width * pixel_bytes)
