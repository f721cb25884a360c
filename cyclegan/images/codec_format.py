"""Formats that need more than Pillow: JPEG XL, and JPEG and JPEG 2000 of more than 8 bits, with imagecodecs; HEIC."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import BinaryIO

import imagecodecs
import numpy as np

from cyclegan.errors import MissingPackageError
from cyclegan.images.codestreams import (
    JPEG,
    JPEG_2000,
    JPEG_2000_FILE,
    JPEG_XL,
    JPEG_XL_FILE,
    LOSSLESS_JPEG,
    CodedSize,
    size_of,
)
from cyclegan.images.image import DecodedImage, Header, ImageError, ImageReader, Metadata, check_size, convert_bands
from cyclegan.images.pillow_format import pillow_functions, without_single_axis

DECODERS: dict[str, Callable[[bytes], np.ndarray]] = {
    "jpeg": imagecodecs.jpeg_decode,
    "jpeg2000": imagecodecs.jpeg2k_decode,
    "jpegxl": lambda data: imagecodecs.jpegxl_decode(data, index=0),
}
JPEG_HEADER_BYTES = 1 << 17  # the frame header lies behind EXIF data and a color profile
DECODER_BYTES = 8  # of memory per value beside the image
OPACITY = b"cdef"  # box of JPEG 2000
HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis")  # in the first box of a file
BRANDS_BYTES = 64


class CodecReader:
    """Read an image of unsigned values from its compressed bytes."""

    def __init__(self, name: str, data: bytes) -> None:
        size = _size(name, data)
        check_size(size.width, size.height, size.width * size.height * size.bands * (2 + DECODER_BYTES))
        if size.bits > 16:
            raise ImageError(f"a {name.upper()} file of signed or float values, or more than 16 bits: expected 8 to 16")
        self._data = data
        self._has_opacity = name == "jpegxl" or (name == "jpeg2000" and OPACITY in data)  # if the bands are even
        colored = size.bands in (1, 3) or (size.bands in (2, 4) and self._has_opacity)
        highest = 0 if size.bits in (8, 16) else 2**size.bits - 1
        self.header = Header(
            *(size.height, size.width, size.bands, name),
            deep=size.bits > 8,
            colors=colored,
            complete=False,
            highest=highest,
        )

    def has_more_frames(self, channels: int) -> bool:
        """Return `False`: only the first image of a file is known."""
        return False

    def read(self, channels: int) -> DecodedImage:
        """Decode the image."""
        pixels = np.atleast_3d(DECODERS[self.header.format](self._data))
        has_opacity = self._has_opacity and pixels.shape[2] in (2, 4)
        return DecodedImage(*convert_bands(pixels, channels, has_opacity, highest=self.header.highest))


def open_jpeg(file: BinaryIO) -> ImageReader | None:
    """Return the reader of a JPEG file, `None` for other files."""
    beginning = file.read(JPEG_HEADER_BYTES)
    size = size_of(beginning) if beginning.startswith(JPEG) else None
    if size and (size.bits > 8 or size.kind == LOSSLESS_JPEG):
        return CodecReader("jpeg", _content(file))
    file.seek(0)
    return pillow_functions("jpeg")[0](file)


def open_jpeg_2000(file: BinaryIO) -> ImageReader | None:
    """Return the reader of a JPEG 2000 file, `None` for other files."""
    if not file.read(len(JPEG_2000_FILE)).startswith((JPEG_2000, JPEG_2000_FILE)):
        return None
    data = _content(file)
    size = _size("jpeg2000", data)
    if size.bits > 8 or size.bands > 4:
        return CodecReader("jpeg2000", data)
    check_size(size.width, size.height, size.width * size.height * 4 * DECODER_BYTES)
    file.seek(0)
    return pillow_functions("jpeg2000")[0](file)


def open_jpeg_xl(file: BinaryIO) -> ImageReader | None:
    """Return the reader of a JPEG XL file, `None` for other files."""
    if not file.read(len(JPEG_XL_FILE)).startswith((JPEG_XL, JPEG_XL_FILE)):
        return None
    return CodecReader("jpegxl", _content(file))


def open_heic(file: BinaryIO) -> ImageReader | None:
    """Return the reader of a HEIC file, the photo of a phone; `None` for other files."""
    beginning = file.read(BRANDS_BYTES)
    is_rare = b"mif1" in beginning and b"avif" not in beginning  # an image that pillow-heif may not decode
    if beginning[4:8] != b"ftyp" or not (is_rare or any(brand in beginning for brand in HEIC_BRANDS)):
        return None
    try:
        import pillow_heif
    except ImportError:
        raise MissingPackageError("a HEIC file, which needs the package pillow-heif: pip install pillow-heif") from None
    pillow_heif.register_heif_opener()
    file.seek(0)
    return pillow_functions("heif")[0](file)


def write_jpeg_xl(path: pathlib.Path, bands: np.ndarray, has_opacity: bool, metadata: Metadata) -> None:
    """Write bands [h, w, C], uint8 or uint16, with the quality of the other formats."""
    path.write_bytes(imagecodecs.jpegxl_encode(np.ascontiguousarray(without_single_axis(bands)), level=95))


def _size(name: str, data: bytes) -> CodedSize:
    size = size_of(data)
    if not size or not size.bits:
        raise ImageError(f"a damaged {name.upper()} file: its header cannot be decoded")
    return size


def _content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()
