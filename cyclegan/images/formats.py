"""The formats of image files: their endings, and the functions that read and write them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pathlib
import threading
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np

from cyclegan.errors import UserError
from cyclegan.images import codec_format, dicom_format, film_format, tiff_format, volume_format
from cyclegan.images.image import CreateStack, DecodedImage, ImageError, ImageReader, Metadata, Open, Put, Write
from cyclegan.images.pillow_format import pillow_functions
from cyclegan.images.value_range import to_depth
from cyclegan.whole_file import name_final, open_regular


class Format(NamedTuple):
    """A format of image files."""

    endings: tuple[str, ...]  # of file names; the first is the one to write
    open: Open
    # `None` if files are only read, or are copies of an original; see `dicom_format.write_copy` and `FilmWriter`.
    write: Write | None
    deep: bool = False  # whether it holds 16 bits
    opacity: bool = False
    any_values: bool = False  # whether it holds any number of channels, and values such as float32
    create_stack: CreateStack | None = None  # `None` if a file holds one image
    compressed: bool = False  # whether files of one length with the same last bytes are surely equal


# Readers are asked in this order: HEIC looks like AVIF, and a DICOM file may begin like a TIFF.
FORMATS = {
    "png": Format((".png",), *pillow_functions("png"), compressed=True, deep=True, opacity=True),
    "jpeg": Format(
        (".jpg", ".jpeg", ".jpe", ".jfif"),
        codec_format.open_jpeg,
        pillow_functions("jpeg", quality=95, subsampling=0)[1],
        compressed=True,
    ),
    "webp": Format((".webp",), *pillow_functions("webp", quality=95), compressed=True, opacity=True),
    "bmp": Format((".bmp",), *pillow_functions("bmp")),
    "gif": Format((".gif",), *pillow_functions("gif"), compressed=True, opacity=True),
    "heif": Format((".heic", ".heif", ".hif"), codec_format.open_heic, None, compressed=True),
    "avif": Format((".avif",), *pillow_functions("avif", quality=95), compressed=True, opacity=True),
    "jpeg2000": Format(
        (".jp2", ".j2k", ".jpf", ".jpx", ".j2c", ".jpc"),
        codec_format.open_jpeg_2000,
        pillow_functions("jpeg2000")[1],
        compressed=True,
        opacity=True,
    ),
    "jpegxl": Format(
        (".jxl",), codec_format.open_jpeg_xl, codec_format.write_jpeg_xl, compressed=True, deep=True, opacity=True
    ),
    "dicom": Format((".dcm", ".dicom", ".ima"), dicom_format.open_image, None, deep=True, any_values=True),
    "tiff": Format(
        (".tif", ".tiff"),
        *(tiff_format.open_image, tiff_format.write),
        deep=True,
        opacity=True,
        any_values=True,
        create_stack=tiff_format.create_stack,
    ),
    "nifti": Format(
        (".nii.gz", ".nii"),
        *(volume_format.open_nifti, None),
        deep=True,
        any_values=True,
        create_stack=volume_format.create_nifti,
    ),
    "npy": Format(
        (".npy",),
        *(volume_format.open_npy, volume_format.write_npy),
        deep=True,
        any_values=True,
        create_stack=volume_format.create_npy,
    ),
    "npz": Format(
        (".npz",),
        *(volume_format.open_npz, functools.partial(volume_format.write_npy, name="arr_0")),
        deep=True,
        any_values=True,
        create_stack=functools.partial(volume_format.create_npy, name="arr_0"),
    ),
    "film": Format(tuple(film_format.CONTAINERS), film_format.open_image, None, compressed=True),
}

# Names of other files, by their first bytes.
OTHERS = {
    b"version https://git-lfs": "a Git LFS pointer (git lfs pull gets the image)",
    b"<!doctype html": "HTML",
    b"<html": "HTML",
    b"<?xml": "an XML file",
    b"<svg": "an SVG file",
    b"\0\0\1\0": "an ICO file",
    b"%pdf": "a PDF file",
    b"%!ps": "a PostScript file",
    b"8bps": "a Photoshop file",
    b"pk\3\4": "a ZIP archive",
    b"\x1f\x8b": "a gzip file",
    b"p6": "a PPM file",
}
# Words of the libraries.
CUT = ("truncated", "less than expected", "expected length", "premature", "end of file", "eof: ", "incomplete")
UNKNOWN = ("unsupported", "not supported", "cannot handle")


def format_of(name: str | os.PathLike[str]) -> str | None:
    """Return the format that belongs to the ending of a file name, or `None`."""
    lower = os.fspath(name).lower()
    return next((name for name, form in FORMATS.items() if lower.endswith(form.endings)), None)


def holds(name: str, dtype: np.dtype | type) -> bool:
    """Return whether a format holds values of a type of `value_range.value_type`."""
    return FORMATS[name].any_values or dtype == np.uint8 or (FORMATS[name].deep and dtype == np.uint16)


def open_image(file: BinaryIO, by_rows: bool = False) -> ImageReader:
    """Return the reader of the first image of an open file, by its content.

    With `by_rows`, a large TIFF file may be of any size if its rows can be decoded by themselves.

    Raises:
        ImageError: It is not an image of one of the formats, or is damaged.
    """
    for name, form in FORMATS.items():
        file.seek(0)
        with explain(name, "header"):
            if reader := tiff_format.open_image(file, by_rows) if name == "tiff" else form.open(file):
                return reader
    file.seek(0)
    beginning = file.read(64).lstrip().lower()
    known = next((name for start, name in OTHERS.items() if beginning.startswith(start)), None)
    raise ImageError(f"{known}, not an image" if known else "not an image" if beginning else "an empty file")


@contextlib.contextmanager
def explain(name: str, part: str) -> Iterator[None]:
    """Raise `ImageError` instead of any error of a library that reads a part of a file of a format."""
    try:
        yield
    except (ImageError, UserError, MemoryError):
        raise
    except Exception as error:  # the libraries raise almost anything for a damaged file
        if isinstance(error, OSError) and error.errno:  # of the disk
            raise
        text = str(error).lower()
        if any(word in text for word in UNKNOWN):
            raise ImageError(f"a {name.upper()} file of a kind that cannot be decoded") from error
        is_cut = isinstance(error, EOFError) or any(word in text for word in CUT)
        what = "truncated" if is_cut else f"its {part} cannot be decoded"
        raise ImageError(f"a damaged {name.upper()} file: {what}") from error


def write(path: str | os.PathLike[str], image: DecodedImage, format: str | None = None) -> None:
    """Write an image file, completely or not at all, and make its folder.

    If the format (by default the one of the file name) does not hold opacity or 16 bits, they are dropped.

    Raises:
        UserError: The format does not hold this number of channels, or no format has the ending of the file name.
        OSError: The file cannot be written.
    """
    path = pathlib.Path(path)
    name = format or format_of(path.name)
    form = FORMATS.get(name or "")
    if form is None or form.write is None:  # NIfTI is written by `create_stack`
        raise UserError(f"{path.name}: expected the ending of an image format that can be written, such as .png")
    channels = image.pixels.shape[2]
    if channels not in (1, 3) and not form.any_values:
        raise UserError(f"{channels} channels don't fit into {name}: expected --format tiff")
    opacity = image.opacity if form.opacity else None
    bands = _bands(image, opacity)
    with partial_file(path) as partial:
        form.write(partial, bands if form.deep else to_depth(bands, np.uint8), opacity is not None, image.metadata)


def write_rows(path: str | os.PathLike[str], height: int, parts: Iterator[DecodedImage]) -> None:
    """Write a TIFF file of any size like `write`; `parts` are its rows, from top to bottom."""
    with partial_file(pathlib.Path(path)) as partial:
        first = next(parts)  # takes long, so that the folder is made before
        has_opacity = first.opacity is not None
        rows = (_bands(part, part.opacity) for part in itertools.chain([first], parts))
        tiff_format.write_rows(partial, height, rows, has_opacity, first.metadata)


def _bands(image: DecodedImage, opacity: np.ndarray | None) -> np.ndarray:
    return image.pixels if opacity is None else np.concatenate([image.pixels, opacity], axis=2)


@contextlib.contextmanager
def create_stack(
    path: pathlib.Path,
    original: str,
    axis: int | None,
    shape: tuple[int, ...],
    dtype: np.dtype,
    metadata: Metadata,
    format: str | None = None,
) -> Iterator[Put]:
    """Write a file of several images with the axes of its original, completely or not at all.

    Provide the function that takes the number of an image and its pixels. The values lie in a temporary file beside the
    file until the context ends. `axis` is the one along which slices of the original lie, `shape` is [n, h, w, C].

    Raises:
        ImageError: The format holds one image.
    """
    name = format or format_of(path.name) or ""
    create = FORMATS[name].create_stack
    if create is None:
        raise ImageError(
            f"{shape[0]} images don't fit into a file of {name}: expected --format tiff, or --stacks first"
        )
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open_regular(original))
        partial = stack.enter_context(partial_file(path))
        yield stack.enter_context(create(partial, open_image(file).along(axis), shape, dtype, metadata))


@contextlib.contextmanager
def partial_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Provide the path of a temporary file that becomes the file `path` if the context ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = ".gz" if path.name.endswith(".gz") else ""
    partial = path.with_name(f".{os.getpid()}-{threading.get_ident()}.partial{packed}")
    partial.unlink(missing_ok=True)  # a killed process may have left it; or it is a link
    try:
        yield partial
        os.replace(partial, path)
    except OSError as error:
        name_final(error, partial, path)
        raise
    finally:
        partial.unlink(missing_ok=True)
