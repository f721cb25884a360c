"""PNG, JPEG, WebP, AVIF, JPEG 2000, BMP and GIF with Pillow."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import logging
import os
import pathlib
import warnings
from typing import Any, BinaryIO

import imagecodecs
import numpy as np
from PIL import Image, ImageFile, PngImagePlugin
from PIL.ExifTags import IFD
from PIL.ExifTags import Base as Tag

from cyclegan.images.geometry import known_orientation, upright_xmp
from cyclegan.images.image import (
    Bands,
    DecodedImage,
    Header,
    ImageError,
    ImageReader,
    Metadata,
    Open,
    Write,
    check_size,
    convert,
)
from cyclegan.images.value_range import HIGHEST

END_MARKERS = {"jpeg": b"\xff\xd9", "png": b"IEND"}  # compressed pixels never look like them
TAIL_BYTES = 4096  # searched for the end marker, because cameras and programs append data to a file
ALPHA_MODES = ("LA", "PA", "RGBA", "La", "RGBa")  # the A of Pillow's mode LAB is a color
PILLOW_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2}  # of memory per pixel by mode; 4 in all others
BUFFER_BYTES = {"webp": 14, "gif": 6, "avif": 14, "heif": 14, "jpeg2000": 28}  # of the decoder, per pixel
MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # Pillow's, by bands
PNG_BANDS = {0: 1, 2: 3, 4: 2, 6: 4}  # by color type (ISO/IEC 15948, 11.2.2); palettes have no 16 bits
PNG_DEPTH_OFFSET = 24  # bytes before the bit depth and the color type
PNG_HEADER_BYTES = 8 + 25  # the signature and IHDR, which all metadata has to follow
COLOR_MODES = {"1": "L", "L": "L", "LA": "L", "La": "L", "CMYK": "CMYK", "LAB": "LAB"}  # by mode; RGB for others
BMP_COMPRESSION_OFFSET, BMP_RLE = 30, (1, 2)
EXIF_RESOLUTION = ("webp", "avif")  # formats that hold the resolution in EXIF data only
MAX_EXIF_BYTES = 65_000  # that a JPEG holds, also of XMP


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
        # The screen of a GIF around its first frame has no color.
        extent = getattr(image, "dispose_extent", None) if name == "gif" and image.tell() == 0 else None
        self._extent = None if extent == (0, 0, *image.size) or "transparency" in image.info else extent
        buffers += 6 if self._extent else 0
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

    def read(self, channels: int) -> Bands:
        """Decode the frame."""
        image: Image.Image = self._image
        if self._extent:
            image = Image.new("RGBA", image.size)  # transparent
            image.info = self._image.info
            image.paste(self._image.crop(self._extent).convert("RGBA"), self._extent)
        return _bands_of(image, channels, self._orientation)


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
        image = self._reopened()
        image.seek(index)
        return PngReader(image, self._file, "png")

    def read(self, channels: int) -> Bands:
        """Decode the image, if its checksums are right, which Pillow ignores when it decodes."""
        position = self._file.tell()
        self._reopened().verify()
        self._file.seek(position)
        if not self.header.deep or self.header.bands == 1:
            return super().read(channels)
        values = with_transparency(self._read_deep(), self._image.info.get("transparency"))
        has_opacity = values.shape[2] in (2, 4)
        metadata = _metadata(self._reopened())  # EXIF data may lie behind the pixels, which it decodes and keeps
        return Bands(values, "", has_opacity, orientation=self._orientation, metadata=metadata)

    def _read_deep(self) -> np.ndarray:
        """Return the bands of 16 bits, of which Pillow would drop the low bytes."""
        if self.header.bands == 2:  # gray and opacity, which Pillow makes RGBA, have as many bytes as RGBA
            return self._decode("RGBA").view(">u2").astype(np.uint16)
        low, high = (self._decode(f"{self._image.mode};16{half}") for half in "LB")
        return np.stack([low, high], axis=-1).view("<u2")[..., 0]

    def _decode(self, raw_mode: str) -> np.ndarray:
        image = self._reopened()
        image.tile = [image.tile[0]._replace(args=raw_mode)]
        return np.asarray(image)

    def _reopened(self) -> PngImagePlugin.PngImageFile:
        self._file.seek(0)
        return PngImagePlugin.PngImageFile(self._file)


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
    if metadata.resolution and metadata.unit > 1:
        options["dpi"] = tuple(number * (2.54 if metadata.unit == 3 else 1) for number in metadata.resolution)
    with contextlib.suppress(Exception):  # Pillow raises almost anything for damaged EXIF data
        exif = Image.Exif() if metadata.exif is None else metadata.exif
        if "dpi" in options and (name in EXIF_RESOLUTION or Tag.XResolution in exif):
            exif.update(zip((Tag.XResolution, Tag.YResolution, Tag.ResolutionUnit), (*options["dpi"], 2)))
        if Tag.Orientation in exif:
            exif[Tag.Orientation] = 1
        details = exif.get_ifd(IFD.Exif)
        for tag, side in zip((Tag.ExifImageWidth, Tag.ExifImageHeight), size):
            if tag in details:
                details[tag] = side
        content = exif.tobytes() if len(exif) else b""
        options["exif"] = content if len(content) < MAX_EXIF_BYTES else b""
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
        values = np.asarray(image, np.float64)[..., None]
        return convert(Bands(values, orientation=orientation, fractional=image.mode == "F"), channels)
    return convert(_bands_of(image, channels, orientation), channels)


class _Rows:
    """Rows of a Pillow image in a mode, as an array [h, w, bands] would return them, without a copy of the whole."""

    def __init__(self, image: Image.Image, mode: str) -> None:
        self._image, self._mode = image, mode
        self.shape, self.dtype = (image.height, image.width, Image.getmodebands(mode)), np.dtype(np.uint8)

    def __getitem__(self, rows: slice) -> np.ndarray:
        block = self._image.crop((0, rows.start, self._image.width, rows.stop))
        return np.asarray(block.convert(self._mode)).reshape(-1, *self.shape[1:])


def _bands_of(image: Image.Image, channels: int, orientation: int) -> Bands:
    """Return the bands of an image; of other than 1 or 3 channels, in its own mode."""
    image.load()
    metadata = _metadata(image)
    if image.mode.startswith("I"):
        gray = np.clip(np.asarray(image), 0, HIGHEST).astype(np.uint16)[..., None]  # mode I has 32 bits
        values = with_transparency(gray, image.info.get("transparency"))
        return Bands(values, "L", values.shape[2] > 1, orientation=orientation, metadata=metadata)
    colors = COLOR_MODES.get(image.mode, "RGB")
    has_opacity = image.mode in ALPHA_MODES or "transparency" in image.info
    rows = _Rows(image, f"{colors}{'A' * has_opacity}" if channels in (1, 3) else image.mode)
    return Bands(rows, colors, has_opacity, orientation=orientation, metadata=metadata)


def with_transparency(values: np.ndarray, color: Any) -> np.ndarray:
    """Return uint16 [h, w, bands] with opacity, the last band, that is 0 where pixels have a color; `None` for none."""
    if color is None:
        return values
    return np.dstack([values, np.where((values == color).all(axis=-1), np.uint16(0), np.uint16(HIGHEST))])


def _metadata(image: Image.Image) -> Metadata:
    """Return the metadata of an image, for its upright copy."""
    exif = None
    with contextlib.suppress(Exception):
        exif = image.getexif() or None
    xmp = upright_xmp(image.info.get("xmp") or b"")
    x, y = image.info.get("dpi") or (0, 0)
    if exif and not x:
        with contextlib.suppress(TypeError, ValueError):  # missing or damaged
            inches = 2.54 if exif.get(Tag.ResolutionUnit) == 3 else 1
            x, y = (float(exif[tag]) * inches for tag in (Tag.XResolution, Tag.YResolution) if tag in exif)
    resolution = (float(x), float(y)) if min(x, y) > 0 else None
    return Metadata(image.info.get("icc_profile") or b"", exif, xmp, resolution)


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
