"""The formats of image files: their endings, the functions that read and write them, and what they can hold."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import os
import pathlib
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from cyclegan.config.data import ValueRange
from cyclegan.errors import UserError
from cyclegan.images import codec_format, dicom_format, film_format, tiff_format, volume_format
from cyclegan.images.image import (
    CreateStack,
    DecodedImage,
    ImageError,
    ImageReader,
    Metadata,
    Open,
    Write,
    explain,
)
from cyclegan.images.pillow_format import pillow_functions
from cyclegan.images.value_range import MIN_STEPS, to_depth, value_type
from cyclegan.whole_file import name_final, open_regular, refuse_special

ANY = 64


class Format(NamedTuple):
    """A format of image files."""

    endings: tuple[str, ...]  # of file names; the first is the one to write
    open: Open
    write: Write | None = None  # `None` if files are only read, or hold several images, or are copies of an original
    longest: int = 0  # side in pixels; 0 for any
    bits: int = 8  # of the values that it holds; `ANY` also for floats and any number of channels
    opacity: bool = False
    create_stack: CreateStack | None = None  # `None` if a file holds one image
    copy: Callable[..., None] | None = None  # function that writes an original with other pixels and all its tags
    is_film: bool = False  # whether some of its frames are images, and its translation is a film; see `FilmWriter`
    write_rows: Callable[..., None] | None = None  # function that writes images of any size by rows

    @property
    def any_values(self) -> bool:
        """Whether it holds any number of channels, and values such as float32."""
        return self.bits == ANY

    @property
    def is_volume(self) -> bool:
        """Whether files are always translated with all their images."""
        return bool(self.create_stack and not self.write)

    @property
    def is_copy(self) -> bool:
        """Whether a file is written as a copy of an original of the same format."""
        return bool(self.copy or self.is_volume or self.is_film)

    def holds(self, channels: int) -> bool:
        """Return whether a file holds this number of channels."""
        if self.copy:
            return channels == 1
        return self.any_values or channels in (1, 3) or (self.opacity and channels in (2, 4))


# Readers are asked in this order: HEIC looks like AVIF, and a DICOM file may begin like a TIFF.
FORMATS = {
    "png": Format((".png",), *pillow_functions("png"), bits=16, opacity=True),
    "jpeg": Format(
        (".jpg", ".jpeg", ".jpe", ".jfif"),
        codec_format.open_jpeg,
        pillow_functions("jpeg", quality=95, subsampling=0)[1],
        longest=65_500,
    ),
    "webp": Format((".webp",), *pillow_functions("webp", quality=95), longest=16_383, opacity=True),
    "bmp": Format((".bmp",), *pillow_functions("bmp")),
    "gif": Format((".gif",), *pillow_functions("gif"), longest=65_535, opacity=True),
    "heif": Format((".heic", ".heif", ".hif"), codec_format.open_heic),
    "avif": Format((".avif",), *pillow_functions("avif", quality=95), opacity=True),
    "jpeg2000": Format(
        (".jp2", ".j2k", ".jpf", ".jpx", ".j2c", ".jpc"),
        codec_format.open_jpeg_2000,
        pillow_functions("jpeg2000")[1],
        opacity=True,
    ),
    "jpegxl": Format((".jxl",), codec_format.open_jpeg_xl, codec_format.write_jpeg_xl, opacity=True),
    "dicom": Format((".dcm", ".dicom", ".ima"), dicom_format.open_image, bits=ANY, copy=dicom_format.write_copy),
    "tiff": Format(
        (".tif", ".tiff"),
        *(tiff_format.open_image, tiff_format.write),
        bits=ANY,
        opacity=True,
        create_stack=tiff_format.create_stack,
        write_rows=tiff_format.write_rows,
    ),
    "nifti": Format((".nii.gz", ".nii"), volume_format.open_nifti, bits=ANY, create_stack=volume_format.create_nifti),
    "npy": Format(
        (".npy",), volume_format.open_npy, volume_format.write_npy, bits=ANY, create_stack=volume_format.create_npy
    ),
    "npz": Format(
        (".npz",),
        *(volume_format.open_npz, functools.partial(volume_format.write_npy, name="arr_0")),
        bits=ANY,
        create_stack=functools.partial(volume_format.create_npy, name="arr_0"),
    ),
    "film": Format(tuple(film_format.CONTAINERS), film_format.open_image, is_film=True),
}
WRITTEN = tuple(name for name, form in FORMATS.items() if form.write or form.is_copy)
UNCOMPRESSED = ("bmp", "tiff", "dicom", "nifti", "npy", "npz")  # or may be: equal ends do not tell that files are equal
LOSSY = ("jpeg", "webp", "heif", "avif", "jpeg2000", "jpegxl", "film")  # or may be: their values may be blurred
UNNAMED = "dicom"  # the format of files without an ending

# Names of other files, by their first bytes.
OTHERS = {
    b"version https://git-lfs": "a Git LFS pointer (git lfs pull gets the image)",
    b"<!doctype html": "HTML",
    b"<html": "HTML",
    b"<?xml": "an XML file",
    b"<svg": "an SVG file",
    b"\0\0\1\0": "an ICO file",
    b"icns": "an ICNS file",
    b"dds |\0\0\0": "a DDS file",
    b"v/1\1": "an OpenEXR file",
    b"%pdf": "a PDF file",
    b"%!ps": "a PostScript file",
    b"8bps": "a Photoshop file",
    b"riff": "a RIFF file, such as a WAV file",
    b"pk\3\4": "a ZIP archive",
    b"\x1f\x8b": "a gzip file",
    **dict.fromkeys((b"p1", b"p2", b"p3", b"p4", b"p5", b"p6"), "a PNM file (PGM, PPM)"),
    b"<!--": "HTML or XML",
    b"\0\0\0\x18ftypcrx ": "a raw photo (CR3)",
    bytes(64): "only zeros",
    b"simple  =": "a FITS file",
    b"nrrd": "an NRRD file",
    b"#?radiance": "a Radiance HDR file",
    b"zisrawfile": "a CZI file of a microscope",
    b"\xda\xce\xbe\n": "an ND2 file of a microscope",
    b"p\0\0\0": "a LIF file of a microscope",
    b"\x89hdf\r\n\x1a\n": "an HDF5 file",
    b"ii\xbc\1": "a JPEG XR file",
    b"fujifilmccd-raw": "a raw photo (RAF)",
    **dict.fromkeys((b"iiro", b"iirs"), "a raw photo (ORF)"),
    b"iiu\0": "a raw photo (RW2)",
    b"0&\xb2u\x8ef\xcf\x11": "a WMV film",
    b"\0\0\1\xba": "an MPEG film",
    b"flv\1": "an FLV film",
    # Attributes of the group 0008 that come first.
    **dict.fromkeys(
        [b"\x08\0%c\0" % element for element in (0, 1, 5, 8, 0x16)],
        "perhaps DICOM without a preamble and DICM at byte 128",
    ),
}


def format_of(name: str | os.PathLike[str]) -> str | None:
    """Return the format that belongs to the ending of a file name, or `None`."""
    lower = os.fspath(name).lower()
    return next((name for name, form in FORMATS.items() if lower.endswith(form.endings)), None)


def is_film(name: str | os.PathLike[str]) -> bool:
    """Return whether the ending of a file name is one of a film."""
    return FORMATS[format_of(name) or UNNAMED].is_film


def refusal(original: str, name: str, channels: int, value_range: ValueRange | None, strip_metadata: bool) -> str:
    """Return why the translation of an original cannot be written in a format, or an empty text."""
    form, reason = FORMATS[name], ""
    if is_film(original) and not form.is_film:
        reason = "a film becomes a film: expected a name that ends in .mp4"
    elif form.is_copy and format_of(original) not in (None, name):
        reason = f"expected a {name.upper()} file as original, or --format tiff"
    elif not (form.write or form.is_copy):
        reason = f"{name} files are only read: expected --format jpeg or png"
    elif not form.holds(channels):
        reason = _describe_channels(name, channels)
    elif value_range and form.is_film:
        reason = "a film has frames of 8 bits: expected a target domain without a value range"
    elif value_range and not form.any_values:
        dtype = value_type(value_range)
        if dtype != np.uint8 and not (form.bits == 16 and dtype == np.uint16):
            reason = (
                f"values from {value_range[0]:g} to {value_range[1]:g} don't fit into {name}; expected --format tiff,"
                f" or png for a range of at least {MIN_STEPS} whole numbers from 0 to 65535"
            )
    elif strip_metadata and form.is_copy and not form.is_film:
        reason = f"--strip_metadata leaves the tags of {name.upper()} files: expected --format tiff or png"
    return reason


def _describe_channels(name: str, channels: int) -> str:
    png = " or png" if FORMATS["png"].holds(channels) else ""
    return f"{channels} channels don't fit into {name}: expected --format tiff{png}"


def open_image(file: BinaryIO) -> ImageReader:
    """Return the reader of the first image of an open file, by its content.

    Raises:
        ImageError: It is not an image of one of the formats, or is damaged.
    """
    for name, form in FORMATS.items():
        file.seek(0)
        with explain(name, "header"):
            if reader := form.open(file):
                return reader
    file.seek(0)
    beginning = file.read(64).removeprefix(b"\xef\xbb\xbf")
    if beginning.startswith((b"\xff\xfe", b"\xfe\xff")):
        beginning = beginning.decode("utf-16", "ignore").encode()
    beginning = beginning.lstrip().lower()
    known = next((name for start, name in OTHERS.items() if beginning.startswith(start)), None)
    if not known and beginning.isascii() and re.fullmatch(rb"[ -~\s]+", beginning):
        known = "a text"
    raise ImageError(f"{known}, not an image" if known else "not an image" if beginning else "an empty file")


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
    if not form.holds(image.pixels.shape[2]):
        raise UserError(_describe_channels(name or "", image.pixels.shape[2]))
    height, width = image.pixels.shape[:2]
    if 0 < form.longest < max(height, width):
        raise UserError(
            f"{width} x {height} pixels don't fit into {name}, at most {form.longest} on a side: expected --format png"
        )
    bands, has_opacity = _bands(image if form.opacity else dataclasses.replace(image, opacity=None))
    with partial_file(path) as partial:
        form.write(partial, bands if form.bits > 8 else to_depth(bands, np.uint8), has_opacity, image.metadata)


def write_rows(
    path: str | os.PathLike[str], height: int, parts: Iterator[DecodedImage], format: str | None = None
) -> None:
    """Write a file of any size like `write`; `parts` are its rows, from top to bottom."""
    write_parts = FORMATS[format or format_of(path) or ""].write_rows
    assert write_parts
    with partial_file(pathlib.Path(path)) as partial:
        first = next(parts)  # takes long, so that the folder is made before
        rows = (_bands(part)[0] for part in itertools.chain([first], parts))
        write_parts(partial, height, rows, _bands(first)[1], first.metadata)


def _bands(image: DecodedImage) -> tuple[np.ndarray, bool]:
    """Return the bands of an image to write, and whether the last one is opacity."""
    if image.opacity is not None:
        return np.concatenate([image.pixels, image.opacity], axis=2), True
    return image.pixels, image.metadata.last_is_opacity and image.pixels.dtype.kind == "u"


@contextlib.contextmanager
def create_stack(
    path: pathlib.Path,
    original: str,
    axis: int | None,
    shape: tuple[int, ...],
    dtype: np.dtype,
    metadata: Metadata,
    format: str | None = None,
) -> Iterator[Callable[[int, np.ndarray], None]]:
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
    with open_regular(original) as file, partial_file(path) as partial:
        stack = create(partial, open_image(file).along(axis), shape, dtype, metadata)
        with scratch(partial, stack.shape, dtype, stack.order) as array:
            yield functools.partial(stack.put, array)
            stack.save(array)


@contextlib.contextmanager
def scratch(path: pathlib.Path, shape: tuple[int, ...], dtype: Any, order: Any = "C") -> Iterator[np.ndarray]:
    """Provide an array in a temporary file beside `path`, so that a volume need not fit into memory.

    The file has no name, so that it disappears even if the process is killed.
    """
    with tempfile.TemporaryFile(dir=path.parent) as file:
        if hasattr(os, "posix_fallocate"):  # a full disk is an error now, not a crash later
            os.posix_fallocate(file.fileno(), 0, math.prod(shape) * np.dtype(dtype).itemsize)
        yield np.memmap(file, dtype, "r+" if hasattr(os, "posix_fallocate") else "w+", 0, shape, order)


@contextlib.contextmanager
def partial_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Provide the path of a temporary file that becomes the file `path` if the context ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    refuse_special(path)
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
