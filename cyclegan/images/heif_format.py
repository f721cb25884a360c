"""HEIC, the photos of phones, with the package pillow-heif."""

from __future__ import annotations

from typing import BinaryIO

from cyclegan.errors import MissingPackageError
from cyclegan.images.image import ImageReader
from cyclegan.images.pillow_format import pillow_functions

BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis")  # in the first box of a file
BRANDS_BYTES = 64


def open_image(file: BinaryIO) -> ImageReader | None:
    """Return the reader of a HEIC file, `None` for other files."""
    beginning = file.read(BRANDS_BYTES)
    is_other = b"mif1" in beginning and b"avif" not in beginning  # pillow-heif says which it can't decode
    if beginning[4:8] != b"ftyp" or not (is_other or any(brand in beginning for brand in BRANDS)):
        return None
    try:
        import pillow_heif
    except ImportError:
        raise MissingPackageError("a HEIC file, which needs the package pillow-heif: pip install pillow-heif") from None
    pillow_heif.register_heif_opener()
    file.seek(0)
    return pillow_functions("heif")[0](file)
