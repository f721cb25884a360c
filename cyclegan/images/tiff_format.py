"""TIFF with tifffile: also 16 bits of several bands, and more than four bands, which Pillow would cut."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import pathlib
import struct
from typing import Any, BinaryIO

import numpy as np
import tifffile
from PIL import ImageFile, TiffImagePlugin
from PIL.ExifTags import Base as Tag
from tifffile import COMPRESSION, EXTRASAMPLE, PHOTOMETRIC, SAMPLEFORMAT

from cyclegan.images.geometry import known_orientation, upright
from cyclegan.images.image import DecodedImage, Header, ImageReader, check_size, convert_bands
from cyclegan.images.pillow_format import PillowReader, without_single_axis

MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # the first bytes of a TIFF or BigTIFF file
# Lossless compressions, whose decoders stop at the size that the header gives.
COMPRESSIONS = [COMPRESSION[name] for name in ("NONE", "LZW", "ADOBE_DEFLATE", "DEFLATE", "PACKBITS", "ZSTD")]
USUAL_COMPRESSIONS = (1, 2, 3, 4, 5, 7, 8, 32773, 32946)  # which every Pillow decodes
LEVEL_TYPES = ("uint8", "uint16")
OTHER_TYPES = ("int8", "int16", "int32", "uint32", "float16", "float32", "float64")  # need a value range


def open_image(file: BinaryIO) -> ImageReader | None:
    """Return the reader of a TIFF file, `None` for other files."""
    if file.read(4) not in MAGIC:
        return None
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # the readers raise errors themselves
    file.seek(0)
    try:
        image = TiffImagePlugin.TiffImageFile(file)
    except (SyntaxError, KeyError, ValueError, struct.error):  # of many bands, which Pillow does not know
        return TiffReader(file)
    if _is_beyond_pillow(image):
        return TiffReader(file)
    image.info.pop("xmp", None)  # by an orientation in XMP alone, Pillow would turn the pixels, but not `size`
    tile_pixels = int(_values(image, Tag.TileWidth).max() * _values(image, Tag.TileLength).max())
    reader = PillowReader(image, file, "tiff", more_bytes=4 * tile_pixels)
    reader.header = dataclasses.replace(reader.header, complete=_is_complete(image, file))
    return reader


class TiffReader:
    """Read the first page of a TIFF file."""

    def __init__(self, file: BinaryIO) -> None:
        file.seek(0)
        pages = tifffile.TiffFile(file).pages
        if not pages:
            raise ValueError("truncated: it has no page")
        page = pages[0]
        assert isinstance(page, tifffile.TiffPage)  # the first page is never a `TiffFrame`
        _check_page(page)
        self._page, self._more = page, len(pages) > 1
        self._orientation = known_orientation(page.tags.valueof(Tag.Orientation))
        alpha = page.extrasamples[-1] if page.extrasamples else EXTRASAMPLE.UNSPECIFIED
        self._is_other = f"{page.dtype}" not in LEVEL_TYPES
        self._has_opacity = alpha != EXTRASAMPLE.UNSPECIFIED and not self._is_other
        self._premultiplied = alpha == EXTRASAMPLE.ASSOCALPHA
        height, width, bands = page.imagelength, page.imagewidth, page.samplesperpixel
        self.header = Header(
            *((width, height) if self._orientation >= 5 else (height, width)),
            bands,
            "tiff",
            deep=page.dtype != np.uint8,
            colors=bands - self._has_opacity in (1, 3),
            complete=_has_segments(page, file),
            other_values=f"{page.bitspersample} bits ({page.dtype})" if self._is_other else "",
        )

    def has_more_frames(self) -> bool:
        """Return whether the file has other pages."""
        return self._more

    def read(self, channels: int) -> DecodedImage:
        """Decode the page, upright."""
        if not self.header.complete:  # tifffile would fill the missing part with zeros
            raise ValueError("truncated: it has fewer pixels than its header promises")
        # Bands lie in planes or in pixels, so the first or the last axis has length 1.
        planes = self._page.asarray(squeeze=False, maxworkers=1)[:, 0]
        if self._is_other:
            planes = planes.astype(np.float32 if planes.dtype.itemsize <= 2 else np.float64)
        if self._page.photometric == PHOTOMETRIC.MINISWHITE and not self._is_other:
            planes = planes.dtype.type(2**self._page.bitspersample - 1) - planes
        pixels = np.moveaxis(planes, 0, 2).reshape(*planes.shape[1:3], -1)
        converted = convert_bands(upright(pixels, self._orientation), channels, self._has_opacity, self._premultiplied)
        profile = self._page.tags.valueof(Tag.InterColorProfile, default=b"")
        return DecodedImage(*converted, profile, fractional="float" in self.header.other_values)


def _is_beyond_pillow(image: ImageFile.ImageFile) -> bool:
    """Return whether Pillow would change a TIFF of many or deep bands, white as 0, signed numbers or floats."""
    bands, bits = (_values(image, tag).max() for tag in (Tag.SamplesPerPixel, Tag.BitsPerSample))
    is_other = (_values(image, Tag.SampleFormat) != SAMPLEFORMAT.UINT).any() or bits > 16
    is_inverted = _values(image, Tag.PhotometricInterpretation).max() == PHOTOMETRIC.MINISWHITE
    return is_other or bands > 4 or (bits > 8 and (bands > 1 or is_inverted))


def _values(image: ImageFile.ImageFile, tag: int) -> np.ndarray:
    return np.ravel(image.tag_v2.get(tag, 1))  # type: ignore[attr-defined]


def _check_page(page: tifffile.TiffPage) -> None:
    """Raise `ValueError` unless the page is a flat image that this reader decodes as it is."""
    check_size(page.imagewidth, page.imagelength)
    if page.is_tiled:
        check_size(page.tilewidth, page.tilelength)
    dtype, is_levels = page.dtype, f"{page.dtype}" in LEVEL_TYPES
    if (
        dtype is None
        or not (is_levels or f"{dtype}" in OTHER_TYPES)
        or page.bitspersample != 8 * dtype.itemsize
        or page.imagedepth != 1
    ):
        types = ", ".join(OTHER_TYPES)
        raise ValueError(f"{page.bitspersample} bits ({dtype}): expected a flat image of 8 or 16 bits, or of {types}")
    photometrics = (PHOTOMETRIC.MINISBLACK, PHOTOMETRIC.RGB, *[PHOTOMETRIC.MINISWHITE] * is_levels)
    if page.compression not in COMPRESSIONS or page.photometric not in photometrics:
        raise ValueError(
            f"compression {page.compression}, photometric interpretation {page.photometric}: expected 1 or 2 and one of"
            f" {', '.join(known.name for known in COMPRESSIONS)}"
        )
    pixels = page.imagewidth * page.imagelength
    segment = math.prod(page.chunks) * dtype.itemsize  # a strip or tile, decoded beside the image
    bytes_each = 2 if is_levels else 8  # of the image as uint16, or of intermediate floats
    result = bytes_each * pixels * max(page.samplesperpixel, 4)
    check_size(page.imagewidth, page.imagelength, page.nbytes + max(segment, result))


def _is_complete(image: ImageFile.ImageFile, file: BinaryIO) -> bool:
    """Return whether a file of Pillow seems to be complete, and has a compression that Pillow surely decodes."""
    file.seek(0)
    try:
        page: Any = tifffile.TiffFile(file).pages[0]
        # Pillow's `next` stays at the first page if a tag of it cannot be read.
        is_read = image.tag_v2.next != page.offset  # type: ignore[attr-defined]
        return is_read and page.compression in USUAL_COMPRESSIONS and _has_segments(page, file)
    except Exception:  # tifffile raises almost anything; decoding will show whether the file is damaged
        return False


def _has_segments(page: tifffile.TiffPage, file: BinaryIO) -> bool:
    """Return whether the strips or tiles of a page are all there and lie inside the file."""
    length = file.seek(0, os.SEEK_END)
    segments = list(zip(page.dataoffsets, page.databytecounts))
    if len(segments) != math.prod(page.chunked) or not all(0 < size <= length - start for start, size in segments):
        return False
    return page.compression != COMPRESSION.NONE or sum(page.databytecounts) >= page.size * page.bitspersample // 8


def write(path: pathlib.Path, bands: np.ndarray, has_opacity: bool, profile: bytes) -> None:
    """Write all TIFF files with tifffile, because Pillow has no 16-bit RGB and no more than four bands."""
    channels = bands.shape[2] - has_opacity
    is_rgb = channels == 3
    tifffile.imwrite(
        path,
        without_single_axis(bands),
        photometric="rgb" if is_rgb else "minisblack",
        planarconfig="contig" if bands.shape[2] > 1 else None,
        extrasamples=["unassalpha"] * has_opacity + ["unspecified"] * (channels - (3 if is_rgb else 1)),
        compression="adobe_deflate",
        iccprofile=profile or None,
        metadata=None,
    )
