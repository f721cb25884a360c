"""Decoded images: the interface of the readers, the conversion of colors, and the limits of their size."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import io
import logging
import math
import operator
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Literal, NamedTuple, Optional, Protocol

import numpy as np
from PIL import Image, ImageCms

from cyclegan.errors import UserError
from cyclegan.images.geometry import upright

MAX_IMAGE_PIXELS = 180_000_000  # above any camera's; more is a mistake or an attack
MAX_BYTES = 2_000_000_000  # of memory while an image is decoded
ShapeOfImages = tuple[int, Any, Any, int]  # (N, h, w, C); h and w are `None` if they differ between the images
GRAY_WEIGHTS = (19595, 38470, 7471)  # of red, green and blue in 1/65536: Pillow's mode L, ITU-R 601-2
MODEL_PIXEL_SCALE, MODEL_TIEPOINT, MODEL_TRANSFORMATION, GEO_KEYS = 33550, 33922, 34264, 34735  # tags of GeoTIFF
RPC = 50844  # tag of the formulas for the places of a satellite's pixels
RASTER_IS_POINT = (1025, 0, 1, 2)  # an entry of `GEO_KEYS`
SAME_LEVEL = 1  # level by which sRGB differs from itself after a conversion
logger = logging.getLogger(__name__)
SRGB = ImageCms.createProfile("sRGB")
BLOCK_VALUES = 500_000  # converted at a time, so that intermediate results take little memory
LEVEL_TYPES = ("bool", "uint8", "uint16")  # of values that are levels; the others need a value range
OTHER_TYPES = (
    *("int8", "int16", "int32", "int64", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
# Words of the libraries.
CUT = (
    *("truncated", "less than expected", "expected length", "premature", "end of file", "eof: ", "incomplete"),
    *("greater than file size", "could the file be damaged"),
)
UNKNOWN = ("unsupported", "not supported", "cannot handle", "cannot be loaded", "python objects")


class ImageError(ValueError):
    """A file that cannot be used as an image. The text names the format or the fault, in this project's own words."""


class TooLargeError(ImageError):
    """An image that takes too much memory."""


@contextlib.contextmanager
def explain(name: str, part: str) -> Iterator[None]:
    """Raise `ImageError` with the name of a format instead of any error of a library that reads a part of a file."""
    try:
        yield
    except ImageError as error:
        if name in f"{error}".lower():
            raise
        raise type(error)(f"{name.upper()}, {error}") from error
    except (UserError, MemoryError):
        raise
    except Exception as error:  # the libraries raise almost anything for a damaged file
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # of the disk
            raise
        text = str(error).lower()
        kind = "film" if name == "film" else f"{name.upper()} file"
        if any(word in text for word in UNKNOWN):
            raise ImageError(f"a {kind} of a kind that cannot be decoded") from error
        is_cut = isinstance(error, EOFError) or any(word in text for word in CUT)
        what = "truncated" if is_cut else f"its {part} cannot be decoded"
        raise ImageError(f"a damaged {kind}: {what}") from error


class Metadata(NamedTuple):
    """Facts about an image besides its pixels, which its translation keeps."""

    profile: bytes = b""  # ICC profile, or empty
    exif: Any = None  # `PIL.Image.Exif`, with the orientation of the original
    xmp: bytes = b""
    resolution: tuple[float, float] | None = None  # pixels per `unit`, of columns and of rows
    unit: int = 2  # as in TIFF: 1 for none, 2 for inch, 3 for cm
    array: str = ""  # name of the array in a .npz file
    tags: tuple[tuple[int, int, int, Any], ...] = ()  # of GeoTIFF: (code, type, count, value)
    description: str = ""  # ImageJ's, with the unit of `resolution`
    ome: tuple[tuple[str, Any], ...] = ()  # pixel sizes of OME: PhysicalSizeX and so on
    nodata: float | None = None  # value of pixels without data; NaN is always one
    last_is_opacity: bool = False  # whether the last channel of the pixels is their opacity, as in RGBA
    channel_pages: int = 1  # pages of which the channels of the pixels are read

    def resized(self, x: float, y: float) -> Metadata:
        """Return the metadata of an image with `x` times the columns and `y` times the rows."""
        tags = {code: value for code, _, _, value in self.tags}
        keys = tags.get(GEO_KEYS, ())
        # Places of pixels begin at the corner of the first, or at its center if it is a point.
        center = 0.5 if RASTER_IS_POINT in zip(*(keys[i::4] for i in range(4))) else 0.0
        scaled = {}
        if MODEL_PIXEL_SCALE in tags:
            scaled[MODEL_PIXEL_SCALE] = tuple(map(operator.mul, tags[MODEL_PIXEL_SCALE], (1 / x, 1 / y, 1)))
        if tie_points := tags.get(MODEL_TIEPOINT):
            points = np.reshape(tie_points[: len(tie_points) // 6 * 6], (-1, 6)).astype(float)
            points[:, :2] = (points[:, :2] + center) * (x, y) - center
            scaled[MODEL_TIEPOINT] = tuple(points.ravel().tolist())
        if len(tags.get(MODEL_TRANSFORMATION, ())) == 16:
            matrix = np.reshape(tags[MODEL_TRANSFORMATION], (4, 4)).astype(float)
            matrix[:, :2] /= (x, y)
            matrix[:, 3] += matrix[:, :2] @ (center * (1 - np.array([x, y])))
            scaled[MODEL_TRANSFORMATION] = tuple(matrix.ravel().tolist())
        if len(tags.get(RPC, ())) == 92:
            numbers = np.array(tags[RPC], float)
            numbers[2:4] = (numbers[2:4] + 0.5) * (y, x) - 0.5  # row and column of the middle, from a pixel's center
            numbers[7:9] *= (y, x)  # rows and columns to its sides
            scaled[RPC] = tuple(numbers.tolist())
        sizes = {"PhysicalSizeX": 1 / x, "PhysicalSizeY": 1 / y}
        return self._replace(
            resolution=self.resolution and (self.resolution[0] * x, self.resolution[1] * y),
            tags=tuple((code, kind, count, scaled.get(code, value)) for code, kind, count, value in self.tags),
            ome=tuple((name, value * sizes[name] if name in sizes else value) for name, value in self.ome),
        )


NO_METADATA = Metadata()


@dataclasses.dataclass(frozen=True)
class Bands:
    """Bands of a file as it holds them, which `convert` makes an image."""

    values: Any  # array [h, w, bands], or an object with its shape and type that returns rows of one for a slice
    mode: str = (
        ""  # Pillow's mode of the colors, such as "CMYK"; by default gray or RGB. Bands behind them are left out
    )
    has_opacity: bool = False  # whether the last band is opacity
    premultiplied: bool = False  # whether the colors have been multiplied by the opacity
    highest: int = 0  # level of white, if it is not the highest of the type
    orientation: int = 1  # EXIF's, 1 to 8
    metadata: Metadata = NO_METADATA
    fractional: bool = False  # whether the file may hold values between whole numbers


@dataclasses.dataclass(frozen=True)
class DecodedImage:
    """An image at its own depth. Transparent pixels are blended with white."""

    pixels: np.ndarray  # uint8 or uint16 [h, w, C]; or values of a value range, which may have other types
    opacity: np.ndarray | None = None  # uint8 or uint16 [h, w, 1]; `None` if the image is opaque
    metadata: Metadata = NO_METADATA
    fractional: bool = False  # whether the file may hold values between whole numbers
    missing: np.ndarray | None = None  # uint8 [h, w, 1]: 0 for data, 1 for none, 2 for NaN; `None` for data everywhere


@dataclasses.dataclass(frozen=True)
class Header:
    """Facts about an image that are known before it is decoded."""

    height: int  # of the upright image, in pixels
    width: int
    bands: int
    format: str  # by content, a key of `formats.FORMATS`
    deep: bool = False  # whether bands have more than 8 bits
    opacity: bool = False  # whether the last band is opacity
    colors: bool = True  # whether pixels are gray or RGB, or can be converted to them
    complete: bool = True  # whether the file seems to be complete; if not, checking decodes it
    mode: str = ""  # Pillow's name of the bands, such as "RGB"; empty if another library reads the file
    highest: int = 0  # level of white, if it is not the highest of 8 or 16 bits
    profile: bytes = b""  # ICC profile of the file, or empty
    channel_pages: int = 1  # pages that are bands; only the first one is used unless all are
    extra_bands: int = 0  # that gray and RGB leave out, such as near infrared or the other channels of a microscope
    lossy: bool = False  # whether the compression of a TIFF file may blur values
    other_values: str = ""  # type of the values that need a value range; empty for unsigned ones of 8 or 16 bits

    def partial_of(self, channels: int) -> int:
        """Return the number of bands if only some of them are used for so many channels, otherwise 0."""
        return self.bands if self.extra_bands and channels != self.bands else 0


class ImageReader:
    """Reader of an image of an open file: of its first page, slice or frame, until `at` selects another one."""

    header: Header
    nbytes = 0  # of decoded images that the reader may keep in memory
    has_rows = False  # whether `read_rows` decodes rows of a large image by themselves
    has_axes = False  # whether `along` finds slices along other axes

    def count(self, channels: int) -> int:
        """Return the number of images of the file: pages, slices or frames; overviews and masks are none."""
        return 1

    def along(self, axis: int | None) -> ImageReader:
        """Return the reader of the first slice along an axis, 0 to 2; of a file of one image, this reader.

        Raise `ImageError` for another axis than 0 if the images of the file are its pages or frames.
        """
        if axis and self.count(1) > 1:
            kind = self.header.format.upper()
            raise ImageError(f"a {kind} file of several images, which has no --slice_axis {axis}: expected 0, or none")
        return self

    def at(self, index: int) -> ImageReader:
        """Return the reader of another image of the same file, by its number from 0. It replaces this reader."""
        raise ImageError(f"the file has no image {index}; was it replaced?")

    def read(self, channels: int) -> Bands:
        """Decode the image for so many channels, see `convert`; bands that they leave out may be missing."""
        raise NotImplementedError

    def read_rows(self, channels: int, rows: slice) -> Bands:
        """Decode some rows of an image like `read`, if it `has_rows`."""
        raise NotImplementedError

    def check_memory(self) -> None:
        """Raise `ImageError` if it takes too much memory to `read` an image that `has_rows`."""


Open = Callable[[BinaryIO], Optional[ImageReader]]  # returns the reader of a file; `None` if it has another format
Write = Callable[[pathlib.Path, np.ndarray, bool, Metadata], None]  # of (path, bands, has_opacity, metadata)


class Stack(NamedTuple):
    """How a format holds several images in a file that is written."""

    shape: tuple[int, ...]  # of the array of all values
    put: Callable[[np.ndarray, int, np.ndarray], None]  # takes the array, the number of an image and its pixels
    save: Callable[[np.ndarray], None]  # writes the file
    order: Literal["C", "F"] = "C"  # of the axes in memory


# Function of (path, original, shape [n, h, w, C], type of the pixels, metadata).
CreateStack = Callable[[pathlib.Path, ImageReader, tuple[int, ...], Any, Metadata], Stack]


class ImageArray(Protocol):
    """Images that are read one at a time; arrays [N, h, w, C] are such sequences, too.

    A sequence that reads files may have an attribute `failure`: the text of its first error, or `None`.
    """

    @property
    def shape(self) -> tuple[Any, ...]:  # an array has any number of axes
        """(N, h, w, C); h and w are `None` if they differ between the images."""

    @property
    def dtype(self) -> np.dtype:
        """Type of the pixels."""

    def __len__(self) -> int:
        """Return the number of images."""

    def __getitem__(self, index: int, /) -> np.ndarray:
        """Return an image: [h, w, C]."""


def check_size(width: int, height: int, memory: int = 0) -> None:
    """Raise `ImageError` for an empty or too large image, or if decoding takes more than `MAX_BYTES` of memory."""
    if min(width, height) < 1:
        raise ImageError(f"a damaged file, whose header says {width} x {height} pixels: expected at least 1")
    if width * height > MAX_IMAGE_PIXELS:
        raise TooLargeError(f"{width} x {height} pixels: expected at most {MAX_IMAGE_PIXELS // 1_000_000} million")
    if memory > MAX_BYTES:
        raise TooLargeError(
            f"{width} x {height} pixels, which take {memory / 1e9:.3g} GB of memory to decode: expected at most"
            f" {MAX_BYTES / 1e9:g} GB"
        )


def row_blocks(shape: Sequence[int]) -> Iterator[slice]:
    """Yield slices of the rows of an array of this shape, of about `BLOCK_VALUES` values each."""
    rows = max(1, BLOCK_VALUES // max(1, math.prod(shape[1:])))
    for top in range(0, shape[0], rows):
        yield slice(top, min(top + rows, shape[0]))


def visible(pixels: np.ndarray) -> np.ndarray:
    """Return the channels of an image [h, w, C] that are shown: the first three, or the first."""
    return pixels[..., : 3 if pixels.shape[2] >= 3 else 1]


def convert(bands: Bands, channels: int, stretch: bool = False) -> DecodedImage:
    """Return an upright image: gray (1 channel) or RGB (3), blended with white; or the bands as they are.

    Colors of 8 bits become sRGB by their ICC profile. With `stretch`, white becomes the highest level of the type.
    """
    values, metadata, opacity, transform = bands.values, bands.metadata, None, None
    number = values.shape[2] - bands.has_opacity
    mode = bands.mode or ("L" if number < 3 else "RGB")
    converts, is_other = channels in (1, 3), mode not in ("L", "RGB")
    if converts and is_other and values.dtype != np.uint8:
        raise ImageError(f"{mode} colors of {values.dtype}: expected 8 bits")
    if converts and (found := srgb_transform(metadata.profile, mode)):
        if values.dtype == np.uint8:
            transform = found
        elif values.dtype == np.uint16:
            _report_kept(metadata.profile)
    changes = converts and (bands.has_opacity or transform or is_other or number != channels)
    factor = np.iinfo(values.dtype).max / bands.highest if stretch and bands.highest else 1
    if isinstance(values, np.ndarray) and not changes and factor == 1:
        pixels = values
    else:
        pixels = np.empty((*values.shape[:2], channels), values.dtype)
        if converts and bands.has_opacity:
            opacity = np.empty((*values.shape[:2], 1), values.dtype)
        for rows in row_blocks(values.shape):
            part = values[rows]
            converted = _convert_rows(part, bands, mode, transform, channels) if changes else part
            pixels[rows] = _scale(converted, bands.highest, factor)
            if opacity is not None:
                opacity[rows] = _scale(part[..., -1:], bands.highest, factor)
    opacity = None if opacity is None else upright(opacity, bands.orientation)
    metadata = metadata._replace(profile=b"") if transform else metadata
    if bands.orientation >= 5:  # its rows become columns
        metadata = metadata._replace(resolution=metadata.resolution and metadata.resolution[::-1])
    return DecodedImage(upright(pixels, bands.orientation), opacity, metadata, bands.fractional)


def _scale(levels: np.ndarray, highest: int, factor: float) -> np.ndarray:
    return levels if factor == 1 else np.rint(levels.clip(0, highest) * factor)


def _convert_rows(
    values: np.ndarray, bands: Bands, mode: str, transform: ImageCms.ImageCmsTransform | None, channels: int
) -> np.ndarray:
    colors, opacity = values[..., : Image.getmodebands(mode)], values[..., -1:]
    premultiplied = bands.premultiplied
    if transform or mode not in ("L", "RGB"):
        if premultiplied:
            colors, premultiplied = _divide(colors, opacity), False
        colors = _to_srgb(colors, mode, transform)
    if bands.has_opacity:
        colors = _blend(colors, opacity, premultiplied, bands.highest or np.iinfo(values.dtype).max)
    return _convert_colors(colors, channels)


@functools.lru_cache(maxsize=16)
def srgb_transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return the transform of colors to sRGB; `None` without a profile of the mode, or if colors would stay."""
    if not profile:
        return None
    mode = "RGB" if mode == "YCbCr" else mode
    try:
        transform = ImageCms.buildTransform(io.BytesIO(profile), SRGB, mode, "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):  # damaged, or of other colors
        return None
    if mode == "CMYK":
        return transform
    steps = np.linspace(0, 255, 9).astype(np.uint8)
    levels = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(27, 27, 3)
    before = Image.fromarray(levels if mode == "RGB" else levels[..., 0])
    after = transform.apply(before)
    change = np.asarray(after).astype(int) - np.asarray(before.convert("RGB"))
    return transform if np.abs(change).max() > SAME_LEVEL else None


def profile_name(profile: bytes) -> str:
    """Return the name of an ICC profile, an empty text if there is none."""
    try:
        return ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(io.BytesIO(profile))).strip() if profile else ""
    except (ImageCms.PyCMSError, OSError):
        return "damaged"


@functools.lru_cache(maxsize=16)
def _report_kept(profile: bytes) -> None:
    """Log, once, that images keep a profile."""
    logger.info(
        "Images of 16 bits keep the colors of their profile (%s); only 8 bits become sRGB", profile_name(profile)
    )


def _to_srgb(colors: np.ndarray, mode: str, transform: ImageCms.ImageCmsTransform | None) -> np.ndarray:
    image = Image.frombytes(mode, (colors.shape[1], colors.shape[0]), np.ascontiguousarray(colors).data)
    image = image.convert("RGB") if mode == "YCbCr" or not transform else image
    return np.asarray(transform.apply(image) if transform else image)


def _divide(colors: np.ndarray, opacity: np.ndarray) -> np.ndarray:
    """Return colors of 8 bits that have not been multiplied by their opacity."""
    return np.rint(np.minimum(colors, opacity) / np.maximum(opacity, 1) * 255).astype(np.uint8)


def _blend(colors: np.ndarray, opacity: np.ndarray, premultiplied: bool, white: int) -> np.ndarray:
    weight = opacity / white
    visible = np.minimum(colors, opacity) if premultiplied else colors * weight
    return np.rint(visible + white * (1 - weight)).astype(colors.dtype)


def _convert_colors(colors: np.ndarray, channels: int) -> np.ndarray:
    if colors.shape[2] == channels:
        return colors
    if channels == 3:
        return np.repeat(colors, 3, axis=2)
    if np.issubdtype(colors.dtype, np.floating):
        return (colors @ (np.array(GRAY_WEIGHTS) / 0x10000))[..., None].astype(colors.dtype)
    gray = (colors.astype(np.uint32) @ np.array(GRAY_WEIGHTS, np.uint32) + 0x8000) >> 16
    return gray[..., None].astype(colors.dtype)
