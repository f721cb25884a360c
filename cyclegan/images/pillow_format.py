"""PNG, JPEG, WebP, AVIF, JPEG 2000, BMP and GIF with Pillow."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import logging
import os
import pathlib
import re
import warnings
from typing import Any, BinaryIO

import imagecodecs
import numpy as np
from PIL import Image, ImageCms, ImageFile, PngImagePlugin
from PIL.ExifTags import IFD
from PIL.ExifTags import Base as Tag

from cyclegan.images.geometry import known_orientation, upright
from cyclegan.images.image import (
    DecodedImage,
    Header,
    ImageError,
    ImageReader,
    Metadata,
    Open,
    Write,
    check_size,
    convert_bands,
    row_blocks,
)

END_MARKERS = {"jpeg": b"\xff\xd9", "png": b"IEND"}  # compressed pixels never look like them
TAIL_BYTES = 4096  # searched for the end marker, because cameras and programs append data to a file
ALPHA_MODES = ("LA", "PA", "RGBA", "La", "RGBa")  # the A of Pillow's mode LAB is a color
PILLOW_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2}  # of memory per pixel by mode; 4 in all others
BUFFER_BYTES = {"webp": 14, "gif": 6, "avif": 14, "heif": 14, "jpeg2000": 28}  # of the decoder, per pixel
MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # Pillow's, by bands
PNG_BANDS = {0: 1, 2: 3, 4: 2, 6: 4}  # by color type (ISO/IEC 15948, 11.2.2); palettes have no 16 bits
PNG_DEPTH_OFFSET = 24  # bytes before the bit depth and the color type
PNG_HEADER_BYTES = 8 + 25  # the signature and IHDR, which all metadata has to follow
BMP_COMPRESSION_OFFSET, BMP_RLE = 30, (1, 2)
MAX_EXIF_BYTES = 65_000  # that a JPEG holds, also of XMP
SAME_LEVEL = 1  # level by which sRGB differs from itself after a conversion
SRGB = ImageCms.createProfile("sRGB")


def pillow_functions(name: str, **options: Any) -> tuple[Open, Write]:
    """Return the functions that read and write a format of Pillow; `options` are options of `Image.save`."""
    return functools.partial(open_image, name), functools.partial(_write, name, options)


def open_image(name: str, file: BinaryIO, profile: bytes = b"") -> PillowReader | None:
    """Return the reader of a file, or `None` if it has another format; add an ICC profile that Pillow does not read.

    `Image.open` would refuse large images, by a limit of the whole process; `check_size` does here.
    """
    Image.init()
    logging.getLogger("PIL").setLevel(logging.CRITICAL)  # the readers raise errors themselves
    warnings.filterwarnings("ignore", module="PIL")
    make_image, accepts = Image.OPEN[name.upper()]
    assert accepts
    beginning = file.read(BMP_COMPRESSION_OFFSET + 4)
    file.seek(0)
    if not accepts(beginning):
        return None
    if name == "bmp" and beginning[BMP_COMPRESSION_OFFSET] in BMP_RLE:
        raise ImageError(
            "a BMP file with run-length encoding, which Pillow decodes wrongly: expected another BMP, or PNG"
        )
    image = make_image(file, "")
    image.info.update({"icc_profile": profile} if profile else {})
    return PngReader(image, file, name) if name == "png" else PillowReader(image, file, name)


class PillowReader(ImageReader):
    """Read the current frame of a file that Pillow has opened."""

    def __init__(self, image: ImageFile.ImageFile, file: BinaryIO, name: str) -> None:
        bands, deep = len(image.getbands()), image.mode.startswith("I")
        buffers = 2 * bands if name == "jpeg" else BUFFER_BYTES.get(name, 0)
        pixel_bytes = PILLOW_BYTES.get(image.mode, 4) + max(buffers, 8 if deep else 4)
        check_size(*image.size, image.width * image.height * pixel_bytes)
        self._image, self._file = image, file
        tail = _read_tail(file)
        self._orientation = _find_orientation(image, tail)
        width, height = image.size if self._orientation < 5 else reversed(image.size)
        complete = END_MARKERS.get(name, b"") in tail
        profile = image.info.get("icc_profile") or b""
        self.header = Header(
            *(height, width, bands, name, deep),
            opacity=image.mode in ALPHA_MODES,
            complete=complete,
            mode=image.mode,
            profile=profile,
        )

    def count(self, channels: int) -> int:
        """Return the number of frames; 1 for a JPEG, which has previews, for 16 bits, and if later ones are damaged."""
        if self.header.format == "jpeg" or self.header.deep:
            return 1
        try:
            return getattr(self._image, "n_frames", 1)
        except (IndexError, OSError, SyntaxError, ValueError):
            self._image.seek(0)
            return 1

    def at(self, index: int) -> ImageReader:
        """Return the reader of a frame."""
        self._image.seek(index)
        return type(self)(self._image, self._file, self.header.format)

    def read(self, channels: int) -> DecodedImage:
        """Decode the frame, upright."""
        return convert_pillow(self._image, channels, self._orientation)


class PngReader(PillowReader):
    """Read a PNG file that Pillow has opened."""

    def __init__(self, image: ImageFile.ImageFile, file: BinaryIO, name: str) -> None:
        super().__init__(image, file, name)
        position = file.tell()
        file.seek(PNG_DEPTH_OFFSET)
        bits, color_type = file.read(2)
        file.seek(position)
        if bits == 16:
            bands = PNG_BANDS[color_type]
            self.header = dataclasses.replace(self.header, bands=bands, deep=True, opacity=bands in (2, 4), mode="")
            check_size(*image.size, image.width * image.height * (2 * bands + 8))

    def at(self, index: int) -> ImageReader:
        """Return the reader of a frame of the file, opened anew: Pillow cannot always go back to an earlier frame."""
        self._file.seek(0)
        image = PngImagePlugin.PngImageFile(self._file)
        image.seek(index)
        return PngReader(image, self._file, "png")

    def read(self, channels: int) -> DecodedImage:
        """Decode the image, upright, if its checksums are right, which Pillow ignores when it decodes."""
        position = self._file.tell()
        self._file.seek(0)
        PngImagePlugin.PngImageFile(self._file).verify()
        if not self.header.deep or self.header.bands == 1:
            self._file.seek(position)
            return super().read(channels)
        self._file.seek(0)  # Pillow drops 8 of the 16 bits if there are several bands
        info = self._image.info
        if info.get("interlace") and self.header.bands > 2 and "transparency" not in info:
            pixels = self._read_interlaced()
        else:
            pixels = imagecodecs.png_decode(_without_profile(self._file.read()))
        has_opacity = pixels.shape[2] in (2, 4)  # also for a transparent color
        converted = convert_bands(upright(pixels, self._orientation), channels, has_opacity)
        return DecodedImage(*converted, _metadata(self._image, self.header.profile))

    def _read_interlaced(self) -> np.ndarray:
        """Return the bands of an interlaced image of 16 bits, about which libpng would print a warning."""
        halves = []
        for half in "BL":  # of the high and of the low byte of each value, because Pillow keeps one
            self._file.seek(0)
            image = PngImagePlugin.PngImageFile(self._file)
            image.tile = [image.tile[0]._replace(args=f"{image.mode};16{half}")]
            halves.append(np.asarray(image).astype(np.uint16))
        return halves[0] << 8 | halves[1]


def _without_profile(png: bytes) -> bytes:
    """Return a PNG file without its ICC profile, about which libpng prints warnings."""
    start = png.find(b"iCCP", 0, png.find(b"IDAT")) - 4
    return png if start < 0 else png[:start] + png[start + 12 + int.from_bytes(png[start : start + 4], "big") :]


def _write(
    name: str, options: dict[str, Any], path: pathlib.Path, bands: np.ndarray, has_opacity: bool, metadata: Metadata
) -> None:
    """Write bands [h, w, C]: uint8, or uint16 as PNG."""
    if bands.dtype == np.uint16:
        _write_deep_png(path, bands, metadata)
        return
    image = Image.fromarray(without_single_axis(bands))
    if name == "gif" and image.mode == "LA":  # Pillow would drop its opacity
        image = image.convert("RGBA")
    image.save(path, name, **options, **_save_options(name, metadata, image.size))


def _save_options(name: str, metadata: Metadata, size: tuple[int, int]) -> dict[str, Any]:
    """Return the options of `Image.save` for the metadata of an image of a size, (width, height).

    Pillow ignores options that a format does not know.
    """
    is_long = name == "jpeg" and len(metadata.xmp) > MAX_EXIF_BYTES
    options: dict[str, Any] = {"icc_profile": metadata.profile, "xmp": b"" if is_long else metadata.xmp}
    if name == "png" and metadata.xmp:
        options["pnginfo"] = PngImagePlugin.PngInfo()
        options["pnginfo"].add_itxt("XML:com.adobe.xmp", metadata.xmp.decode("utf-8", "replace"))
    with contextlib.suppress(Exception):  # Pillow raises almost anything for damaged EXIF data
        if Tag.Orientation in metadata.exif:
            metadata.exif[Tag.Orientation] = 1
        details = metadata.exif.get_ifd(IFD.Exif)
        for tag, side in zip((Tag.ExifImageWidth, Tag.ExifImageHeight), size):
            if tag in details:
                details[tag] = side
        content = metadata.exif.tobytes()
        options["exif"] = content if len(content) < MAX_EXIF_BYTES else b""
    if metadata.resolution and metadata.unit > 1:
        options["dpi"] = tuple(number * (2.54 if metadata.unit == 3 else 1) for number in metadata.resolution)
    return {option: value for option, value in options.items() if value}


def _write_deep_png(path: pathlib.Path, bands: np.ndarray, metadata: Metadata) -> None:
    """Write 16 bits with imagecodecs, because Pillow has no 16-bit RGB, with the metadata of a file of Pillow."""
    encoded, other = imagecodecs.png_encode(np.ascontiguousarray(without_single_axis(bands))), io.BytesIO()
    Image.new("L", (1, 1)).save(other, "png", **_save_options("png", metadata, (bands.shape[1], bands.shape[0])))
    chunks = other.getvalue()[PNG_HEADER_BYTES : other.getvalue().rindex(b"IDAT") - 4]
    path.write_bytes(b"".join([encoded[:PNG_HEADER_BYTES], chunks, encoded[PNG_HEADER_BYTES:]]))


def without_single_axis(bands: np.ndarray) -> np.ndarray:
    """Return [h, w] instead of [h, w, 1], as the libraries expect gray."""
    return bands[..., 0] if bands.shape[2] == 1 else bands


def from_pillow(image: Image.Image, channels: int = 3, any_type: bool = False) -> DecodedImage:
    """Convert a Pillow image; with `any_type`, values other than 0 to 65535 are returned as they are, as floats."""
    if image.mode == "F" and not any_type:
        raise ValueError("a Pillow image of mode F: expected 8 or 16 bits; convert it, or use an array")
    image.load()  # turns a TIFF
    orientation = known_orientation(image.getexif().get(Tag.Orientation))
    if any_type and image.mode in ("F", "I"):
        values = upright(np.asarray(image, np.float64)[..., None], orientation)
        return DecodedImage(*convert_bands(values, channels), fractional=image.mode == "F")
    return convert_pillow(image, channels, orientation)


def convert_array(pixels: np.ndarray, channels: int, mode: str, profile: bytes, orientation: int = 1) -> DecodedImage:
    """Convert uint8 [h, w, bands] of a mode of Pillow like `convert_pillow`."""
    image = Image.frombytes(mode, (pixels.shape[1], pixels.shape[0]), np.ascontiguousarray(pixels).data)
    image.info["icc_profile"] = profile
    return convert_pillow(image, channels, orientation)


def convert_pillow(image: Image.Image, channels: int, orientation: int) -> DecodedImage:
    """Convert an image, some rows at a time, and turn it upright."""
    image.load()
    convert = _convert_deep_gray if image.mode.startswith("I") else _convert
    arrays: list[np.ndarray] = []
    for rows in row_blocks((image.height, image.width)):
        block = image.crop((0, rows.start, image.width, rows.stop))
        parts = [part for part in convert(block, channels) if part is not None]
        arrays = arrays or [np.empty((image.height, *part.shape[1:]), part.dtype) for part in parts]
        for array, part in zip(arrays, parts):
            array[rows] = part
    pixels, *opacity = (upright(array, orientation) for array in arrays)
    profile = image.info.get("icc_profile") or b""
    converts = channels in (1, 3) and pixels.dtype == np.uint8 and srgb_transform(profile, _colors_of(image.mode))
    return DecodedImage(pixels, opacity[0] if opacity else None, _metadata(image, b"" if converts else profile))


def _metadata(image: Image.Image, profile: bytes) -> Metadata:
    """Return the metadata of an image, for its upright copy."""
    exif = None
    with contextlib.suppress(Exception):
        exif = image.getexif() or None
    xmp = image.info.get("xmp") or b""
    xmp = re.sub(rb'(tiff:Orientation(?:="|>))\d', rb"\g<1>1", xmp if isinstance(xmp, bytes) else xmp.encode())
    x, y = image.info.get("dpi") or (0, 0)
    return Metadata(profile, exif, xmp, (float(x), float(y)) if min(x, y) > 0 else None)


@functools.lru_cache(maxsize=16)
def srgb_transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return the transform of colors to sRGB; `None` without a profile of the mode, or if colors would stay."""
    if not profile:
        return None
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


def _colors_of(mode: str) -> str:
    """Return Pillow's mode of the colors of another mode, without opacity."""
    return {"1": "L", "LA": "L", "La": "L", "CMYK": "CMYK", "LAB": "LAB"}.get(mode, mode if mode == "L" else "RGB")


def to_srgb(image: Image.Image) -> Image.Image:
    """Return an image as RGB, without its opacity, by its color profile."""
    mode = _colors_of(image.mode)
    colors = image if image.mode == mode else image.convert(mode)
    transform = srgb_transform(image.info.get("icc_profile") or b"", colors.mode)
    return transform.apply(colors) if transform else colors.convert("RGB")


def _convert(image: Image.Image, channels: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return (pixels, opacity) of an image of at most 8 bits."""
    opacity = None
    if channels in (1, 3):
        if image.mode in ALPHA_MODES or "transparency" in image.info:
            alpha = image.convert("RGBA").getchannel("A")
            opacity, image = np.asarray(alpha)[..., None], to_srgb(image)
            image.putalpha(alpha)
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
        else:
            image = to_srgb(image)
        image = image.convert("L") if channels == 1 else image
    return np.asarray(image).reshape(image.height, image.width, channels), opacity


def _convert_deep_gray(image: Image.Image, channels: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return (pixels, opacity) of an image of one band of more than 8 bits; values above 16 bits are clipped."""
    gray, opacity = np.clip(np.asarray(image), 0, 65535).astype(np.uint16)[..., None], None
    transparent = image.info.get("transparency")
    if transparent is not None:
        opacity = np.where(gray == transparent, np.uint16(0), np.uint16(65535))
        gray[gray == transparent] = 65535  # white shows through
    return convert_bands(gray, channels)[0], opacity


def _read_tail(file: BinaryIO) -> bytes:
    """Return the last bytes of a file, whose position is kept."""
    position = file.tell()  # Pillow has read the header, whose thumbnail may have an end marker of its own
    length = file.seek(0, os.SEEK_END)
    file.seek(max(position, length - TAIL_BYTES))
    tail = file.read()
    file.seek(position)
    return tail


def _find_orientation(image: ImageFile.ImageFile, tail: bytes) -> int:
    """Return the EXIF orientation, 1 to 8, that Pillow has not applied to `size` yet."""
    # For a PNG, `getexif` decodes the pixels to find a chunk behind them; the method of the base class does not.
    after_pixels = image.format == "PNG" and b"eXIf" in tail
    with contextlib.suppress(Exception):  # Pillow raises almost anything for damaged EXIF data
        exif = image.getexif() if after_pixels else Image.Image.getexif(image)
        return known_orientation(exif.get(Tag.Orientation))
    return 1
