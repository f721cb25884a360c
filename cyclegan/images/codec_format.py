"""Formats that need more than Pillow: JPEG XL, and JPEG and JPEG 2000 of more than 8 bits, with imagecodecs; HEIC."""

from __future__ import annotations

import io
import pathlib
import struct
from collections.abc import Callable
from typing import BinaryIO, NamedTuple

import imagecodecs
import numpy as np

from cyclegan.errors import MissingPackageError
from cyclegan.images.image import Bands, Header, ImageError, ImageReader, Metadata, check_size
from cyclegan.images.pillow_format import open_image, without_single_axis

JPEG, JPEG_2000, JPEG_XL = b"\xff\xd8\xff", b"\xff\x4f\xff\x51", b"\xff\x0a"
JPEG_XL_FILE, JPEG_2000_FILE = b"\0\0\0\x0cJXL \r\n\x87\n", b"\0\0\0\x0cjP  \r\n\x87\n"
LOSSLESS_JPEG, JPEG_LS = 0xC3, 0xF7  # second bytes of their frame headers
CONTENTS, JPEG_XL_PART = (b"jp2c", b"jxlc"), b"jxlp"  # boxes
JPEG_XL_HEADER_BYTES = 40  # that hold the size
# Second bytes of the markers that begin a frame header in JPEG and JPEG-LS.
FRAME_HEADERS = {bytes([kind]) for kind in (*range(0xC0, 0xD0), 0xF7) if kind not in (0xC4, 0xC8, 0xCC)}
# Widths as multiples of the height, by JPEG XL's number of a ratio.
RATIOS = {1: (1, 1), 2: (12, 10), 3: (4, 3), 4: (3, 2), 5: (16, 9), 6: (5, 4), 7: (2, 1)}
DECODERS: dict[str, Callable[[bytes], np.ndarray]] = {
    "jpeg": imagecodecs.jpeg_decode,
    "jpeg2000": imagecodecs.jpeg2k_decode,
    "jpegxl": lambda data: imagecodecs.jpegxl_decode(data, index=0),
}
JPEG_HEADER_BYTES = 1 << 17  # the frame header lies behind EXIF data and a color profile
DECODER_BYTES = 8  # of memory per value beside the image
OPACITY = b"cdef"  # box of JPEG 2000
CMYK = b"\1\0\0\0\x0c"  # in its box of the color space
HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis")  # in the first box of a file
BRANDS_BYTES = 64


class CodecReader(ImageReader):
    """Read an image of unsigned values from its compressed bytes."""

    def __init__(self, name: str, data: bytes, profile: bytes = b"") -> None:
        size = _size(name, data)
        check_size(size.width, size.height, size.width * size.height * size.bands * (2 + DECODER_BYTES))
        if size.bits > 16:
            raise ImageError(f"a {name.upper()} file of signed or float values, or more than 16 bits: expected 8 to 16")
        self._data = data
        opacity = size.bands in (2, 4) and (name == "jpegxl" or (name == "jpeg2000" and OPACITY in data))
        self.header = Header(
            *(size.height, size.width, size.bands, name, size.bits > 8, opacity),
            colors=size.bands - opacity in (1, 3),
            complete=False,
            highest=0 if size.bits in (8, 16) else 2**size.bits - 1,
            profile=profile if size.is_srgb or size.bits > 8 else _jpeg_xl_profile(data),
        )

    def read(self, channels: int) -> Bands:
        """Decode the image."""
        values = np.atleast_3d(DECODERS[self.header.format](self._data))
        has_opacity = self.header.opacity and values.shape[2] in (2, 4)
        highest, metadata = self.header.highest, Metadata(self.header.profile)
        return Bands(values, has_opacity=has_opacity, highest=highest, metadata=metadata)


def open_jpeg(file: BinaryIO) -> ImageReader | None:
    """Return the reader of a JPEG file, `None` for other files."""
    beginning = file.read(JPEG_HEADER_BYTES)
    size = size_of(beginning) if beginning.startswith(JPEG) else None
    if size and (size.bits > 8 or size.kind == LOSSLESS_JPEG):
        return CodecReader("jpeg", _content(file))
    file.seek(0)
    return open_image("jpeg", file)


def open_jpeg_2000(file: BinaryIO) -> ImageReader | None:
    """Return the reader of a JPEG 2000 file, `None` for other files."""
    if not file.read(len(JPEG_2000_FILE)).startswith((JPEG_2000, JPEG_2000_FILE)):
        return None
    data = _content(file)
    size, colors = _size("jpeg2000", data), _jpeg_2000_box(data, b"colr")
    profile = colors[3:] if colors[:1] in (b"\2", b"\3") else b""  # an ICC profile: ITU-T T.800, I.5.3.3
    is_exchanged, is_cmyk = _has_exchanged_bands(data), colors[:1] + colors[3:7] == CMYK
    if is_exchanged and (_jpeg_2000_box(data, b"pclr") or is_cmyk):
        raise ImageError("a JPEG2000 file of exchanged bands with a palette or in CMYK: expected bands in their order")
    has_other_band = size.bands in (2, 4) and OPACITY not in data and not is_cmyk  # Pillow takes it as opacity
    if size.bits > 8 or size.bands > 4 or is_exchanged or has_other_band:
        return CodecReader("jpeg2000", data, profile)
    check_size(size.width, size.height, size.width * size.height * 4 * DECODER_BYTES)
    file.seek(0)
    return open_image("jpeg2000", file, profile)


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
    return open_image("heif", file)


def _jpeg_2000_box(data: bytes, name: bytes) -> bytes:
    """Return the content of a box of the header of a JPEG 2000 file, empty bytes without one."""
    start = data.find(name, 0, data.find(b"jp2c")) if data.startswith(JPEG_2000_FILE) else -1
    return data[start + 4 : start - 4 + int.from_bytes(data[start - 4 : start], "big")] if start > 0 else b""


def _has_exchanged_bands(data: bytes) -> bool:
    """Return whether the bands of a JPEG 2000 file have another order than their colors: Pillow would ignore it.

    By ITU-T T.800, I.5.3.5 and I.5.3.6, the header may say the color of each band, and the bands of a palette.
    """
    definitions = struct.iter_unpack(">3H", _jpeg_2000_box(data, OPACITY)[2:])
    exchanged = [kind == 0 and color not in (0, band + 1, 0xFFFF) for band, kind, color in definitions]
    mapping = struct.iter_unpack(">HBB", _jpeg_2000_box(data, b"cmap"))
    return any(exchanged) or any(is_mapped and column != band for band, (_, is_mapped, column) in enumerate(mapping))


def _jpeg_xl_profile(data: bytes) -> bytes:
    """Return the ICC profile of the colors of a JPEG XL file as they are decoded."""
    try:
        from pillow_jxl.JpegXLImagePlugin import JXLImageFile
    except ImportError:
        raise MissingPackageError(
            "a JPEG XL file of other colors than sRGB, which needs the package pillow-jxl-plugin: pip install"
            " pillow-jxl-plugin"
        ) from None
    return JXLImageFile(io.BytesIO(data)).info.get("icc_profile", b"")


def write_jpeg_xl(path: pathlib.Path, bands: np.ndarray, has_opacity: bool, metadata: Metadata) -> None:
    """Write bands [h, w, C], uint8, with the quality of the other formats; imagecodecs labels uint16 as linear."""
    path.write_bytes(imagecodecs.jpegxl_encode(np.ascontiguousarray(without_single_axis(bands)), level=95))


def _size(name: str, data: bytes) -> CodedSize:
    size = size_of(data)
    if not size or not size.bits:
        raise ImageError(f"a damaged {name.upper()} file: its header cannot be decoded")
    return size


def _content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


# Sizes of compressed images, from their first bytes: a decoder would take any amount of memory that they ask for.


class CodedSize(NamedTuple):
    """Size of a compressed image, all 0 if its header lacks it."""

    width: int
    height: int
    bands: int
    bits: int  # of a band
    kind: int = 0  # second byte of the frame header of a JPEG
    is_srgb: bool = True  # unless a JPEG XL has other colors


def size_of(data: bytes) -> CodedSize | None:  # noqa: PLR0911  one for each format
    """Return the size of a JPEG, JPEG-LS, JPEG 2000, JPEG XL or LERC image, `None` for other bytes."""
    try:
        if data.startswith(JPEG):
            return _jpeg_size(data)
        if data.startswith((JPEG_2000_FILE, JPEG_XL_FILE)):
            return size_of(_in_boxes(data))
        if data.startswith(JPEG_2000):  # ITU-T T.800, A.5.1
            right, bottom, left, top = struct.unpack_from(">4I", data, 8)
            bands = struct.unpack_from(">H", data, 40)[0]  # a signed one has the highest bit
            return CodedSize(right - left, bottom - top, bands, max(data[42 : 42 + 3 * bands : 3]) + 1)
        if data.startswith(JPEG_XL):
            return _jpeg_xl_size(data)
        if data.startswith(b"Lerc2 "):
            version = struct.unpack_from("<i", data, 6)[0]
            height, width, depth = struct.unpack_from("<3i", data, 10 + 4 * (version >= 3))
            return CodedSize(width, height, depth if version >= 4 else 1, 64)
    except (struct.error, IndexError, ValueError):
        return CodedSize(0, 0, 0, 0)
    return None


def _in_boxes(data: bytes) -> bytes:
    """Return the image within the boxes of a file, of a JPEG XL in several boxes its header."""
    position, image, is_last = 0, b"", 0
    while len(image) < JPEG_XL_HEADER_BYTES and not is_last:
        length, kind = struct.unpack_from(">I4s", data, position)
        start = position + 8
        if length == 1:  # the length follows, with 8 bytes
            length, start = struct.unpack_from(">Q", data, start)[0], start + 8
        if kind in CONTENTS:
            return data[start:]
        if 0 < length < 8:
            raise ValueError("no image")
        position += length or len(data)  # the last box may reach to the end
        if kind == JPEG_XL_PART:
            image, is_last = image + data[start + 4 : position], data[start] & 0x80
    return image


def _jpeg_size(data: bytes) -> CodedSize:
    position = 2
    while data[position] == 0xFF:  # a marker segment: ITU-T T.81, B.1.1
        kind = data[position + 1 : position + 2]
        if kind in FRAME_HEADERS:
            bits, height, width, bands = struct.unpack_from(">BHHB", data, position + 4)
            return CodedSize(width, height, bands, bits, kind[0])
        position += 1 if kind == b"\xff" else 2 + struct.unpack_from(">H", data, position + 2)[0]
    return CodedSize(0, 0, 0, 0)


class Bits:
    """Read numbers of the header of a JPEG XL image, by ISO/IEC 18181-1, annex D."""

    def __init__(self, data: bytes) -> None:
        self._number = int.from_bytes(data[2:JPEG_XL_HEADER_BYTES], "little")

    def read(self, bits: int) -> int:
        """Return the number in the next bits."""
        value = self._number & ((1 << bits) - 1)
        self._number >>= bits
        return value

    def read_one_of(self, *kinds: tuple[int, int]) -> int:
        """Return a number of one of four kinds: (start, bits that are added)."""
        start, bits = kinds[self.read(2)]
        return start + self.read(bits)


def _jpeg_xl_size(data: bytes) -> CodedSize:
    """Return the size of a JPEG XL image; gray has three bands, too."""
    bits = Bits(data)
    width, height = _jpeg_xl_sides(bits)
    if bits.read(1):
        return CodedSize(width, height, 3, 8)
    if bits.read(1):
        if bits.read(3) >= 4:  # orientation 5 to 8, which the decoder applies
            width, height = height, width
        if bits.read(1):
            _jpeg_xl_sides(bits)  # for which it is meant
        if bits.read(1):  # a preview
            return CodedSize(0, 0, 0, 0)
        if bits.read(1):  # an animation
            bits.read_one_of((100, 0), (1000, 0), (1, 10), (1, 30))
            bits.read_one_of((1, 0), (1001, 0), (1, 8), (1, 10))
            bits.read_one_of((0, 0), (0, 3), (0, 16), (0, 32))
            bits.read(1)
    if bits.read(1):  # floats
        depth = max(17, bits.read_one_of((32, 0), (16, 0), (24, 0), (1, 6)))
        bits.read(4)
    else:
        depth = bits.read_one_of((8, 0), (10, 0), (12, 0), (1, 6))
    bits.read(1)
    more = bits.read_one_of((0, 0), (1, 0), (2, 4), (1, 12))
    is_known = sum(bits.read(1) for _ in range(more)) == more  # bands beside the colors are opacity of 8 bits
    bits.read(1)
    return CodedSize(width, height, 3 + more, depth, 0, is_known and _has_srgb(bits))


def _jpeg_xl_sides(bits: Bits) -> tuple[int, int]:
    """Return width and height."""
    is_small, sides = bits.read(1), ((1, 9), (1, 13), (1, 18), (1, 30))
    height = 8 * (bits.read(5) + 1) if is_small else bits.read_one_of(*sides)
    over, under = RATIOS.get(bits.read(3), (0, 1))
    return height * over // under or (8 * (bits.read(5) + 1) if is_small else bits.read_one_of(*sides)), height


def _has_srgb(bits: Bits) -> bool:
    """Return whether colors are gray or RGB with the white, the primaries and the curve of sRGB."""
    names = ((0, 0), (1, 0), (2, 4), (18, 6))
    if bits.read(1):
        return True
    if bits.read(1) or (space := bits.read_one_of(*names)) > 1 or bits.read_one_of(*names) != 1:
        return False
    return (space == 1 or bits.read_one_of(*names) == 1) and not bits.read(1) and bits.read_one_of(*names) == 13
