"""The formats of image files: their endings, and what reads and writes them."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Callable
from typing import BinaryIO, NamedTuple

import numpy as np

from cyclegan.images import dicom_format, pillow_format, tiff_format
from cyclegan.images.image import ImageReader


class Format(NamedTuple):
    """A format of image files.

    Attributes:
        endings: Endings of file names; the first is the one to write.
        open: Function that returns the reader of a file, or `None` if its content has another format.
        write: Function that writes `(path, bands, has_opacity, profile)`; `None` if files are copies of an original, see
            `dicom_format.write_copy`.
        deep: Whether it holds 16 bits.
        opacity: Whether it holds opacity.
    """

    endings: tuple[str, ...]
    open: Callable[[BinaryIO], ImageReader | None]
    write: Callable[[pathlib.Path, np.ndarray, bool, bytes], None] | None
    deep: bool = False
    opacity: bool = False


def _pillow(name: str) -> Callable[[pathlib.Path, np.ndarray, bool, bytes], None]:
    return functools.partial(pillow_format.write, format=name)


# Readers are asked in this order: a DICOM file may begin like a TIFF.
FORMATS = {
    "png": Format((".png",), pillow_format.open_png, pillow_format.write_png, deep=True, opacity=True),
    "jpeg": Format((".jpg", ".jpeg"), pillow_format.open_jpeg, _pillow("jpeg")),
    "webp": Format((".webp",), pillow_format.open_webp, _pillow("webp"), opacity=True),
    "bmp": Format((".bmp",), pillow_format.open_bmp, _pillow("bmp")),
    "gif": Format((".gif",), pillow_format.open_gif, _pillow("gif"), opacity=True),
    "dicom": Format((".dcm", ".dicom"), dicom_format.open_dicom, None, deep=True),
    "tiff": Format((".tif", ".tiff"), tiff_format.open_tiff, tiff_format.write, deep=True, opacity=True),
}


def format_of(name: str | os.PathLike[str]) -> str | None:
    """Return the format that belongs to the ending of a file name, or `None`."""
    ending = pathlib.PurePath(name).suffix.lower()
    return next((name for name, form in FORMATS.items() if ending in form.endings), None)


def holds(name: str, dtype: np.dtype | type) -> bool:
    """Return whether a format holds values of a type of `value_range.value_type`."""
    return name in ("tiff", "dicom") or dtype == np.uint8 or (FORMATS[name].deep and dtype == np.uint16)


def open_image(file: BinaryIO) -> ImageReader:
    """Return the reader of an open file, by its content.

    Raises:
        ValueError: It is not an image of one of the formats.
    """
    for form in FORMATS.values():
        if reader := form.open(file):
            return reader
    raise ValueError("not an image")
