"""Reading of TIFF files with tifffile: 16 bits of several bands, and more than four bands, which Pillow would cut."""

from __future__ import annotations

import logging
import math
import os
from typing import BinaryIO

import numpy as np
import tifffile
from PIL import ImageFile
from PIL.ExifTags import Base as Tag
from tifffile import COMPRESSION, EXTRASAMPLE, PHOTOMETRIC, SAMPLEFORMAT

from cyclegan.images.color import convert_bands
from cyclegan.images.geometry import known_orientation, upright
from cyclegan.images.image import DecodedImage, Header, check_size

MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # the first bytes of a TIFF or BigTIFF file
COMPRESSIONS = {  # lossless ones, whose decoders stop at the size that the header gives
    COMPRESSION.NONE: "none",
    COMPRESSION.LZW: "LZW",
    COMPRESSION.ADOBE_DEFLATE: "deflate",
    COMPRESSION.DEFLATE: "deflate",
    COMPRESSION.PACKBITS: "packbits",
    COMPRESSION.ZSTD: "zstd",
}
SAMPLE_FORMATS: dict[int, str] = {
    SAMPLEFORMAT.UINT: "unsigned",
    SAMPLEFORMAT.INT: "signed",
    SAMPLEFORMAT.IEEEFP: "floating point",
}
EXPECTED = "expected a flat image of 8 or 16 bits, unsigned"

logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # this reader raises errors itself


class TiffReader:
    """Read the first page of a TIFF file."""

    def __init__(self, file: BinaryIO) -> None:
        length = file.seek(0, os.SEEK_END)
        file.seek(0)
        pages = tifffile.TiffFile(file).pages
        if not pages:
            raise ValueError("truncated: it has no page")
        page = pages[0]
        assert isinstance(page, tifffile.TiffPage)  # the first page is never a `TiffFrame`
        _check_page(page)
        self._page = page
        self._orientation = known_orientation(page.tags.valueof(Tag.Orientation))
        alpha = page.extrasamples[-1] if page.extrasamples else EXTRASAMPLE.UNSPECIFIED
        self._has_opacity, self._premultiplied = alpha != EXTRASAMPLE.UNSPECIFIED, alpha == EXTRASAMPLE.ASSOCALPHA
        height, width, bands = page.imagelength, page.imagewidth, page.samplesperpixel
        self.header = Header(
            *((width, height) if self._orientation >= 5 else (height, width)),
            bands,
            deep=page.dtype == np.uint16,
            colors=bands - self._has_opacity in (1, 3),
            complete=_segments_end_inside(page, length),
            format="TIFF",
        )

    def read(self, channels: int) -> DecodedImage:
        """Decode the page, upright.

        Raises:
            ValueError: The file is truncated.
        """
        if not self.header.complete:  # tifffile would fill the missing part with zeros
            raise ValueError("truncated: it has fewer pixels than its header promises")
        # Bands lie in planes or in pixels, so the first or the last axis has length 1.
        planes = self._page.asarray(squeeze=False, maxworkers=1)[:, 0]
        pixels = np.moveaxis(planes, 0, 2).reshape(*planes.shape[1:3], -1)
        converted = convert_bands(upright(pixels, self._orientation), channels, self._has_opacity, self._premultiplied)
        return DecodedImage(*converted, self._page.tags.valueof(Tag.InterColorProfile, default=b""))


def check_samples(image: ImageFile.ImageFile) -> None:
    """Raise `ValueError` for a TIFF of floats, signed numbers or more than 16 bits, which Pillow would cut."""
    formats, bits = (_values(image, tag) for tag in (Tag.SampleFormat, Tag.BitsPerSample))
    if (formats != SAMPLEFORMAT.UINT).any() or bits.max() > 16:
        raise ValueError(f"{bits.max()} bits ({SAMPLE_FORMATS.get(int(formats.max()), 'other')}): {EXPECTED}")


def is_beyond_pillow(image: ImageFile.ImageFile) -> bool:
    """Return whether a TIFF has several bands of 16 bits, or more than four, which Pillow would cut."""
    bands = _values(image, Tag.SamplesPerPixel).max()
    return bands > 4 or (bands > 1 and _values(image, Tag.BitsPerSample).max() > 8)


def _values(image: ImageFile.ImageFile, tag: int) -> np.ndarray:
    return np.ravel(image.tag_v2.get(tag, 1))  # type: ignore[attr-defined]


def _check_page(page: tifffile.TiffPage) -> None:
    """Raise `ValueError` unless the page is a flat image that this reader decodes as it is."""
    dtype = page.dtype
    check_size(page.imagewidth, page.imagelength)
    if page.is_tiled:
        check_size(page.tilewidth, page.tilelength)
    if (
        dtype is None
        or dtype not in (np.uint8, np.uint16)
        or page.bitspersample != 8 * dtype.itemsize
        or page.imagedepth != 1
    ):
        raise ValueError(f"{page.bitspersample} bits ({dtype}): {EXPECTED}")
    if page.compression not in COMPRESSIONS or page.photometric not in (PHOTOMETRIC.MINISBLACK, PHOTOMETRIC.RGB):
        raise ValueError(
            f"compression {page.compression}, photometric interpretation {page.photometric}: expected 1 or 2 and one of"
            f" {', '.join(sorted(set(COMPRESSIONS.values())))}"
        )
    pixels = page.imagewidth * page.imagelength
    segment = math.prod(page.chunks) * dtype.itemsize  # a strip or tile, decoded beside the image
    result = 8 * pixels if page.samplesperpixel <= 4 else 0  # otherwise the bands are returned as they are
    check_size(page.imagewidth, page.imagelength, page.nbytes + max(segment, result))


def _segments_end_inside(page: tifffile.TiffPage, length: int) -> bool:
    """Return whether the strips or tiles of a page are all there and lie inside a file of this length in bytes."""
    segments = list(zip(page.dataoffsets, page.databytecounts))
    if len(segments) != math.prod(page.chunked) or not all(0 < size <= length - start for start, size in segments):
        return False
    return page.compression != COMPRESSION.NONE or sum(page.databytecounts) >= page.nbytes
