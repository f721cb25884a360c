"""Reading of images with Pillow: JPEG, BMP, WebP, GIF, and the PNG and TIFF files that Pillow decodes without loss."""

from __future__ import annotations

import math
import os
import struct
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageFile
from PIL.ExifTags import Base as Tag

from cyclegan.images.color import convert_bands
from cyclegan.images.geometry import known_orientation, upright
from cyclegan.images.image import DecodedImage, Header, check_size, row_blocks

END_MARKERS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND"}  # compressed pixels never look like them
TAIL_BYTES = 4096  # searched for the end marker, because cameras and programs append data to a file
ALPHA_MODES = ("LA", "PA", "RGBA", "La", "RGBa")  # the A of Pillow's mode LAB is a color

PILLOW_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2}  # of memory per pixel by mode; 4 in all others
USUAL_COMPRESSIONS = (1, 2, 3, 4, 5, 7, 8, 32773, 32946)  # of TIFF, which Pillow always decodes

Image.MAX_IMAGE_PIXELS = None  # `check_size` refuses large images before they are decoded


class PillowReader:
    """Read a file that Pillow has opened."""

    def __init__(self, image: ImageFile.ImageFile, file: BinaryIO) -> None:
        check_size(*image.size, _decoding_bytes(image))
        self._image = image
        tail, length = _read_tail(file)
        self._orientation = _find_orientation(image, tail)
        width, height = image.size if self._orientation < 5 else reversed(image.size)
        end_marker = END_MARKERS.get(image.format or "", b"")
        complete = _is_whole_tiff(image, file, length) if image.format == "TIFF" else end_marker in tail
        bands, name = len(image.getbands()), image.format or ""
        self.header = Header(height, width, bands, _is_deep(image), True, complete, name, image.mode)

    def read(self, channels: int) -> DecodedImage:
        """Decode the first frame, upright."""
        return _from_pillow(self._image, channels, self._orientation)


def from_pillow(image: Image.Image, channels: int = 3, any_type: bool = False) -> DecodedImage:
    """Convert a Pillow image.

    Args:
        image: The image.
        channels: 1 for gray, 3 for RGB; otherwise the number of its bands, which are returned as they are.
        any_type: Whether values other than 0 to 65535 are returned as they are, as floats.

    Raises:
        ValueError: The pixels are floats, and `any_type` is false.
    """
    if any_type and image.mode in ("F", "I"):
        image.load()  # turns a TIFF
        values = np.asarray(image, np.float64)[..., None]
        values = upright(values, known_orientation(image.getexif().get(Tag.Orientation)))
        return DecodedImage(convert_bands(values, channels, has_opacity=False)[0], fractional=image.mode == "F")
    if image.mode == "F":
        raise ValueError("a Pillow image of mode F: expected 8 or 16 bits; convert it, or use an array")
    image.load()  # turns a TIFF
    return _from_pillow(image, channels, known_orientation(image.getexif().get(Tag.Orientation)))


def get_profile(image: Image.Image) -> bytes:
    """Return the ICC profile of a Pillow image, or nothing."""
    return image.info.get("icc_profile") or b""


def _from_pillow(image: Image.Image, channels: int, orientation: int) -> DecodedImage:
    """Convert an image, some rows at a time, and turn it upright."""
    image.load()
    convert = _convert_deep_gray if _is_deep(image) else _convert
    arrays: list[np.ndarray] = []
    for rows in row_blocks((image.height, image.width)):
        block = image.crop((0, rows.start, image.width, rows.stop))
        parts = [part for part in convert(block, channels) if part is not None]
        arrays = arrays or [np.empty((image.height, *part.shape[1:]), part.dtype) for part in parts]
        for array, part in zip(arrays, parts):
            array[rows] = part
    pixels, *opacity = (upright(array, orientation) for array in arrays)
    return DecodedImage(pixels, opacity[0] if opacity else None, get_profile(image))


def _is_deep(image: Image.Image) -> bool:
    return image.mode.startswith("I")


def _convert(image: Image.Image, channels: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return (pixels, opacity) of an image of at most 8 bits."""
    opacity = None
    if channels in (1, 3):
        if image.mode in ALPHA_MODES or "transparency" in image.info:
            image = image.convert("RGBA")
            opacity = np.asarray(image.getchannel("A"))[..., None]
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        image = image.convert("RGB")
        image = image.convert("L") if channels == 1 else image
    return np.asarray(image).reshape(image.height, image.width, channels), opacity


def _convert_deep_gray(image: Image.Image, channels: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return (pixels, opacity) of an image of one band of more than 8 bits; values above 16 bits are clipped."""
    opacity = None
    gray = np.clip(np.asarray(image), 0, 65535).astype(np.uint16)[..., None]
    transparent = image.info.get("transparency")
    if transparent is not None:
        opacity = np.where(gray == transparent, np.uint16(0), np.uint16(65535))
        gray[gray == transparent] = 65535  # white shows through
    return convert_bands(gray, channels, has_opacity=False)[0], opacity


def _read_tail(file: BinaryIO) -> tuple[bytes, int]:
    """Return the last bytes of a file and its length in bytes; the position of the file is kept."""
    position = file.tell()  # Pillow has read the header, whose thumbnail may have an end marker of its own
    length = file.seek(0, os.SEEK_END)
    file.seek(max(position, length - TAIL_BYTES))
    tail = file.read()
    file.seek(position)
    return tail, length


def _find_orientation(image: ImageFile.ImageFile, tail: bytes) -> int:
    """Return the EXIF orientation, 1 to 8, that Pillow has not applied to `size` yet."""
    if image.format == "TIFF":
        image.info.pop("xmp", None)  # by an orientation in XMP alone, Pillow would turn the pixels, but not `size`
        return 1  # Pillow has turned `size` and will turn the pixels
    # For a PNG, `getexif` decodes the pixels to find a chunk behind them; the method of the base class does not.
    after_pixels = image.format == "PNG" and b"eXIf" in tail
    exif = image.getexif() if after_pixels else Image.Image.getexif(image)
    return known_orientation(exif.get(Tag.Orientation))


def _is_whole_tiff(image: ImageFile.ImageFile, file: BinaryIO, length: int) -> bool:
    """Return whether the tags, and the strips or tiles, of a TIFF lie inside a file of this length in bytes.

    A TIFF of an unusual compression counts as damaged, because Pillow's library may have been built without it.
    """
    tags = image.tag_v2  # type: ignore[attr-defined]
    if tags.next == _first_page(file) or tags.get(Tag.Compression, 1) not in USUAL_COMPRESSIONS:
        return False
    offsets, counts = (tags.get(strips) or tags.get(tiles) or () for strips, tiles in ((273, 324), (279, 325)))
    return 0 < len(offsets) == len(counts) and max(map(sum, zip(offsets, counts))) <= length


def _first_page(file: BinaryIO) -> int:
    """Return the offset of the first page of a TIFF, where Pillow's `next` stays if it cannot read all tags of the page."""
    position = file.tell()
    file.seek(0)
    head = file.read(16)
    file.seek(position)
    big, order = 43 in head[2:4], "<" if head[:1] == b"I" else ">"
    return struct.unpack_from(order + ("Q" if big else "I"), head, 8 if big else 4)[0]


def _decoding_bytes(image: ImageFile.ImageFile) -> int:
    """Return the bytes of memory that decoding takes: Pillow's image, and then the decoder's buffers or the result."""
    bands, tile = len(image.getbands()), 0
    if image.format == "TIFF":
        sides = [image.tag_v2.get(tag, 0) for tag in (Tag.TileWidth, Tag.TileLength)]  # type: ignore[attr-defined]
        tile = 4 * math.prod(sides)
    coefficients = 2 * bands
    buffers = {"JPEG": coefficients, "MPO": coefficients, "WEBP": 14, "GIF": 6}.get(image.format or "", 0)
    result = 8 if _is_deep(image) else 4
    return image.width * image.height * (PILLOW_BYTES.get(image.mode, 4) + max(buffers, result)) + tile
