"""Writing of image files, at full depth if the format supports it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import imagecodecs
import numpy as np
import tifffile
from PIL import Image, PngImagePlugin

from cyclegan.errors import UserError
from cyclegan.images.image import DecodedImage
from cyclegan.images.value_range import to_depth

# File name endings by --format; the first is the one to write.
FORMATS = {
    "png": (".png",),
    "jpeg": (".jpg", ".jpeg"),
    "tiff": (".tif", ".tiff"),
    "webp": (".webp",),
    "bmp": (".bmp",),
    "gif": (".gif",),
    "dicom": (".dcm", ".dicom"),  # see `dicom_writer`
}
DEEP_FORMATS = ("png", "tiff")  # hold 16 bits
OPACITY_FORMATS = ("png", "tiff", "webp", "gif")
OPTIONS: dict[str, dict[str, Any]] = {"jpeg": {"quality": 95, "subsampling": 0}, "webp": {"quality": 95}}
PNG_HEADER_BYTES = 8 + 25  # the signature and IHDR, which the ICC profile has to follow


def format_of(name: str | os.PathLike[str]) -> str | None:
    """Return the format that belongs to the ending of a file name, or `None`."""
    ending = pathlib.PurePath(name).suffix.lower()
    return next((format for format, endings in FORMATS.items() if ending in endings), None)


def write(path: str | os.PathLike[str], image: DecodedImage, format: str | None = None) -> None:
    """Write an image file, completely or not at all, and make its folder.

    Drops opacity and the lower 8 of 16 bits if the format does not support them. JPEG and WebP get quality 95.

    Args:
        path: The file.
        image: The image.
        format: One of `FORMATS`; by default the format of the file name.

    Raises:
        UserError: The format does not support so many channels.
        OSError: The file cannot be written.
    """
    path = pathlib.Path(path)
    format = format or format_of(path.name)
    channels = image.pixels.shape[2]
    if channels not in (1, 3) and format != "tiff":
        raise UserError(f"{channels} channels don't fit into {format}: expected --format tiff")
    opacity = image.opacity if format in OPACITY_FORMATS else None
    bands = image.pixels if opacity is None else np.concatenate([image.pixels, opacity], axis=2)
    if format not in DEEP_FORMATS:
        bands = to_depth(bands, np.uint8)
    with partial_file(path) as partial:
        if format == "tiff":
            _write_tiff(partial, bands, opacity is not None, image.profile)
        elif bands.dtype == np.uint16:
            _write_deep_png(partial, bands, image.profile)
        else:
            _write_with_pillow(partial, bands, format, image.profile)


def holds(format: str, dtype: np.dtype | type) -> bool:
    """Return whether a format holds values of a type of `value_range.value_type`."""
    return format in ("tiff", "dicom") or dtype == np.uint8 or (format == "png" and dtype == np.uint16)


@contextlib.contextmanager
def partial_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Provide the path of a temporary file that becomes the file `path` if the context ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{os.getpid()}-{threading.get_ident()}.partial")
    partial.unlink(missing_ok=True)  # of a killed process, or a link
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _write_with_pillow(path: pathlib.Path, bands: np.ndarray, format: str | None, profile: bytes) -> None:
    image = Image.fromarray(_without_single_axis(bands))
    if format == "gif" and image.mode == "LA":  # Pillow would drop its opacity
        image = image.convert("RGBA")
    options = {"icc_profile": profile} if profile else {}
    image.save(path, format, **OPTIONS.get(format or "", {}), **options)


def _write_tiff(path: pathlib.Path, bands: np.ndarray, has_opacity: bool, profile: bytes) -> None:
    """Write all TIFF files with tifffile, because Pillow has no 16-bit RGB and no more than four bands."""
    channels = bands.shape[2] - has_opacity
    is_rgb = channels == 3
    tifffile.imwrite(
        path,
        _without_single_axis(bands),
        photometric="rgb" if is_rgb else "minisblack",
        planarconfig="contig" if bands.shape[2] > 1 else None,
        extrasamples=["unassalpha"] * has_opacity + ["unspecified"] * (channels - (3 if is_rgb else 1)),
        compression="adobe_deflate",
        iccprofile=profile or None,
        metadata=None,
    )


def _write_deep_png(path: pathlib.Path, bands: np.ndarray, profile: bytes) -> None:
    """Write 16 bits with imagecodecs, because Pillow has no 16-bit RGB."""
    encoded = imagecodecs.png_encode(np.ascontiguousarray(_without_single_axis(bands)))
    with open(path, "wb") as file:
        file.write(encoded[:PNG_HEADER_BYTES])
        if profile:  # imagecodecs writes none
            PngImagePlugin.putchunk(file, b"iCCP", b"ICC\0\0", zlib.compress(profile))
        file.write(encoded[PNG_HEADER_BYTES:])


def _without_single_axis(bands: np.ndarray) -> np.ndarray:
    """Return [h, w] instead of [h, w, 1], as the libraries expect gray."""
    return bands[..., 0] if bands.shape[2] == 1 else bands
