"""TIFF with tifffile and imagecodecs; fax and other kinds that only libtiff knows with Pillow, in another process."""

from __future__ import annotations

import contextlib
import functools
import html
import itertools
import logging
import math
import operator
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import tifffile
from PIL.ExifTags import Base as Tag
from tifffile import COMPRESSION, EXTRASAMPLE, PHOTOMETRIC

from cyclegan.images import image as geo
from cyclegan.images.codec_format import size_of
from cyclegan.images.geometry import known_orientation, upright_xmp
from cyclegan.images.image import (
    LEVEL_TYPES,
    OTHER_TYPES,
    Bands,
    Header,
    ImageError,
    ImageReader,
    Metadata,
    Stack,
    check_size,
)
from cyclegan.images.pillow_format import without_single_axis
from cyclegan.images.value_range import to_depth

MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # the first bytes of a TIFF or BigTIFF file
# Lossless compressions, whose decoders stop at the size that the header gives.
LOSSLESS = [COMPRESSION[name] for name in ("NONE", "LZW", "ADOBE_DEFLATE", "DEFLATE", "PACKBITS", "ZSTD")]
# Strips and tiles that have a size of their own.
CODESTREAMS = [COMPRESSION[name] for name in ("JPEG", "JPEG2000", "LERC", "WEBP", "JPEGXL")]
TO_RGB = (COMPRESSION.JPEG, COMPRESSION.WEBP, COMPRESSION.JPEGXL)  # decoders return RGB for YCbCr
LOSSY = (*TO_RGB, COMPRESSION.JPEG2000, COMPRESSION.OJPEG)
OF_LIBTIFF = [COMPRESSION[name] for name in ("CCITTRLE", "CCITT_T4", "CCITT_T6", "OJPEG")]
# Pillow's modes and their bands.
COLORS: dict[int, str] = {PHOTOMETRIC.SEPARATED: "CMYK", PHOTOMETRIC.YCBCR: "YCbCr", PHOTOMETRIC.CIELAB: "LAB"}
FILE_MODES: dict[int, str] = {PHOTOMETRIC.SEPARATED: "CMYK", PHOTOMETRIC.PALETTE: "P"}  # that are converted
PHOTOMETRICS = (PHOTOMETRIC.MINISBLACK, PHOTOMETRIC.MINISWHITE, PHOTOMETRIC.RGB, PHOTOMETRIC.PALETTE, *COLORS)
YCBCR_WEIGHTS = (0.299, 0.587, 0.114)  # of red, green and blue, by ITU-R 601-2
YCBCR_LEVELS = (0, 255, 128, 255, 128, 255)  # of black and white in YCbCr of full range
LERC_PARAMETERS = 50674
MAX_PAGES = 1_000_000  # that an OME text may promise
LARGE_PIXELS = 50_000_000  # larger files are translated row by row
LARGEST_SEGMENT = 500_000_000  # bytes of a strip or tile of these files
TILE_SIDE = 512  # side in pixels of the tiles of large files that are written
GDAL_NODATA = 42113
REDUCED_OR_MASK = 1 | 4  # kinds of pages that belong to another page
LEADING_AXES = re.compile(r"(\w*?)(?:S?YX|YXS)")  # axes in front of those of a page
# Tags of GeoTIFF, with the keys of the coordinate system.
GEO_TAGS = (geo.MODEL_PIXEL_SCALE, geo.MODEL_TIEPOINT, geo.MODEL_TRANSFORMATION, 34735, 34736, 34737, geo.RPC)
IMAGEJ = re.compile(r"^(?:ImageJ|unit)=.*$", re.MULTILINE)
IMAGEJ_AXES = re.compile(r"^(?:slices|frames|hyperstack|spacing|finterval)=.*$", re.MULTILINE)
OME_SIZE = re.compile(r'(PhysicalSize[XYZ](?=="[\d.eE+-]+")|PhysicalSize[XYZ]Unit)="([^"]*)"')  # numbers and units
OME_CHANNEL = re.compile(r'<Channel [^>]*?Name="([^"]*)"')
OME_PIXELS, SIZES = re.compile("<Pixels[^>]*>"), re.compile(r'Size[CZT]="(\d+)"')
# libtiff only prints some errors, and leaves the pixels behind others as they are in its memory, which `FILLS` changes.
FILLS = [{"MALLOC_PERTURB_": number} for number in ("85", "170")]
DECODE_WITH_LIBTIFF = """
import io, sys
sys.path.pop(0)
from PIL import TiffImagePlugin
TiffImagePlugin.READ_LIBTIFF = True
image = TiffImagePlugin.TiffImageFile(io.BytesIO(sys.stdin.buffer.read()))
image.seek(int(sys.argv[1]))
image.load()
image = image.convert("L" if image.mode in ("1", "L") else "RGB")
sys.stdout.buffer.write(image.tobytes())
"""


def open_image(file: BinaryIO) -> ImageReader | None:
    """Return the reader of a TIFF file, `None` for other files."""
    if file.read(4) not in MAGIC:
        return None
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # the readers raise errors themselves
    file.seek(0)
    return TiffReader(file, tifffile.TiffFile(file, _multifile=False))


class TiffReader(ImageReader):
    """Read a page of a TIFF file; or, as bands, the channels of a microscope, which are pages.

    Args:
        file: The file.
        tif: The same file as opened by tifffile.
        pages: The pages of the image if it is not the first one; several pages are its channels.
    """

    def __init__(self, file: BinaryIO, tif: tifffile.TiffFile, pages: Sequence[Any] = ()) -> None:
        if not tif.pages:
            raise ImageError("a damaged TIFF file: truncated, it has no page")
        self._file, self.tif = file, tif
        first: Any = tif.pages[0]
        is_known = is_described(tif) or first.subfiletype & REDUCED_OR_MASK  # such as a preview
        self._pages = pages or (self._images[0] if is_known else [first])
        self._page = page = self._pages[0].keyframe  # the `TiffPage` whose tags are those of the pages
        self._index = self._pages[0].index
        if Tag.PhotometricInterpretation not in page.tags:
            page.photometric = PHOTOMETRIC.MINISBLACK  # tifffile takes 0, which inverts
        self._by_libtiff = page.compression in OF_LIBTIFF or (
            page.photometric == PHOTOMETRIC.YCBCR
            and page.compression not in CODESTREAMS
            and page.subsampling not in (None, (1, 1))
        )
        self._is_other = f"{page.dtype}" not in LEVEL_TYPES
        _check_page(page, self._by_libtiff, self._is_other)
        channel_pages = len(self._pages) if page.samplesperpixel == 1 else 1
        self._orientation = known_orientation(page.tags.valueof(Tag.Orientation))
        has_small_parts = page.is_memmappable or _segment_bytes(page) <= LARGEST_SEGMENT
        is_large = page.imagelength * page.imagewidth > LARGE_PIXELS
        self.has_rows = is_large and has_small_parts and not self._by_libtiff and self._orientation == 1
        alpha = page.extrasamples[-1] if page.extrasamples else EXTRASAMPLE.UNSPECIFIED
        self._has_opacity = alpha != EXTRASAMPLE.UNSPECIFIED and not self._is_other
        self._premultiplied = alpha == EXTRASAMPLE.ASSOCALPHA
        self._profile: bytes = page.tags.valueof(Tag.InterColorProfile, default=b"")
        self._whole = all(_has_segments(each, file, self._by_libtiff) for each in self._pages)
        height, width, bits = page.imagelength, page.imagewidth, page.bitspersample
        bands = 3 if page.photometric == PHOTOMETRIC.PALETTE else page.samplesperpixel * channel_pages
        extra = bands - 3 - self._has_opacity if page.photometric == PHOTOMETRIC.RGB else 0
        named_colors = page.photometric not in (PHOTOMETRIC.MINISBLACK, PHOTOMETRIC.MINISWHITE)
        self.header = Header(
            *((width, height) if self._orientation >= 5 else (height, width)),
            bands,
            "tiff",
            deep=np.dtype(page.dtype).itemsize > 1 and page.photometric != PHOTOMETRIC.PALETTE,
            opacity=self._has_opacity and not self._premultiplied,
            colors=named_colors or bands - self._has_opacity in (1, 3) or channel_pages > 1,
            complete=self._whole and page.compression in LOSSLESS and not self._by_libtiff,
            mode="1" if bits == 1 else FILE_MODES.get(page.photometric, ""),
            highest=2**bits - 1 if 8 < bits < 16 and page.photometric != PHOTOMETRIC.PALETTE else 0,
            profile=self._profile,
            channel_pages=channel_pages,
            extra_bands=channel_pages - 1 or max(0, extra),
            lossy=page.compression in LOSSY,
            other_values=f"{bits} bits ({page.dtype})" if self._is_other else "",
        )

    @functools.cached_property
    def _images(self) -> list[list[Any]]:
        return find_images(self.tif)[0]

    def count(self, channels: int) -> int:
        """Return the number of images; overviews and masks are none, and channels are bands."""
        return len(self._images)

    def at(self, index: int) -> ImageReader:
        """Return the reader of an image, which may differ from the others in size."""
        return TiffReader(self._file, self.tif, self._images[index])

    def check_memory(self) -> None:
        """Raise `ImageError` if it takes too much memory to decode the whole page."""
        page, pages = self._page, self.header.channel_pages
        segment = _segment_bytes(page)  # decoded beside the image
        bytes_each = 8 if self._is_other else 2  # of intermediate floats, or of the image as uint16
        result = bytes_each * page.imagewidth * page.imagelength * max(page.samplesperpixel * pages, 4)
        segments = 4 * segment if page.compression in CODESTREAMS else segment
        check_size(page.imagewidth, page.imagelength, page.nbytes * pages + max(segments, result))

    def read(self, channels: int) -> Bands:
        """Decode the page."""
        return self.read_rows(channels, slice(None))

    def read_rows(self, channels: int, rows: slice) -> Bands:
        """Decode some rows of the page, which other programs decode as a whole."""
        if not self._whole:  # tifffile would fill the missing part with zeros
            raise ImageError("a damaged TIFF file: truncated, it has fewer pixels than its header promises")
        metadata = self._metadata()
        if self._by_libtiff:
            return Bands(_decode_with_libtiff(self._file, self.header, self._index), metadata=metadata)
        pages = self._pages if channels == self.header.channel_pages else self._pages[:1]
        values = np.concatenate([self._decode(page, rows) for page in pages], axis=2)
        if self._is_other:
            values = values.astype(np.float32 if values.dtype.itemsize <= 2 else np.float64)
        photometric = self._page.photometric
        mode = "" if photometric in (PHOTOMETRIC.MINISBLACK, PHOTOMETRIC.MINISWHITE) else "RGB"
        if photometric == PHOTOMETRIC.SEPARATED or self._page.compression not in TO_RGB:
            mode = COLORS.get(photometric, mode)
        weights = self._other_weights() if mode == "YCbCr" and channels in (1, 3) and values.dtype == np.uint8 else None
        if weights is not None:
            _ycbcr_to_rgb(values, weights)
            mode = "RGB"
        return Bands(
            *(values, mode, self._has_opacity, self._premultiplied, self.header.highest, self._orientation, metadata),
            fractional="float" in self.header.other_values,
        )

    def _decode(self, page: Any, rows: slice) -> np.ndarray:
        """Return rows of a page as [h, w, bands]; unsigned ones of up to 8 bits as uint8, with white as 255."""
        if (page.shape, page.dtype, page.compression) != (self._page.shape, self._page.dtype, self._page.compression):
            raise ImageError("a TIFF file whose pages differ: expected channels of one size and type")
        # Bands lie in planes or in pixels, so the first or the last axis has length 1.
        planes = self._read_rows(page, rows)
        page = page.keyframe
        pixels = np.moveaxis(planes, 0, 2).reshape(*planes.shape[1:3], -1)
        pixels = pixels.astype(np.uint8) if pixels.dtype == bool else pixels
        if page.photometric == PHOTOMETRIC.PALETTE:
            colors = np.asarray(page.colormap)
            colors = colors if colors.max() < 256 else colors >> 8  # old programs write 8 bits
            opacity = pixels[..., pixels.shape[2] - self._has_opacity :]
            return np.concatenate([colors.astype(np.uint8).T[pixels[..., 0]], to_depth(opacity, np.uint8)], axis=2)
        highest = 2**page.bitspersample - 1
        if page.photometric == PHOTOMETRIC.MINISWHITE and not self._is_other:
            pixels = highest - pixels
        levels = np.rint(np.linspace(0, 255, highest + 1)).astype(np.uint8) if page.bitspersample < 8 else None
        return pixels if levels is None else levels[pixels]

    def _read_rows(self, page: Any, rows: slice) -> np.ndarray:
        """Return rows of a page, [planes, rows, w, bands], from the strips or tiles that hold them."""
        planes, _, length, width, bands = page.shaped
        start, stop, _ = rows.indices(length)
        if page.is_memmappable:
            return np.array(page.asarray(out="memmap", squeeze=False)[:, 0, start:stop], page.dtype)
        result = np.full((planes, stop - start, width, bands), page.keyframe.nodata, page.dtype)
        height, across = page.chunks[0], -(-width // page.chunks[1])
        count = len(page.dataoffsets) // planes
        for first in range(0, planes * count, count):
            for index in range(first + start // height * across, first + -(-stop // height) * across):
                data = self._read_segment(page, index)
                if data is None:
                    continue
                tables = {"jpegtables": page.jpegtables, "jpegheader": page.keyframe.jpegheader}
                segment, (plane, _, top, left, _), _ = page.keyframe.decode(data, index, **tables)
                part = segment[0, max(start - top, 0) : stop - top, : width - left]
                result[plane, max(top - start, 0) :, left:][: part.shape[0], : part.shape[1]] = part
        return result

    def _read_segment(self, page: Any, index: int) -> bytes | None:
        """Return the bytes of a strip or tile, `None` if it is empty.

        Raise `ImageError` if it is larger than the header says: it would take any memory to decode.
        """
        if not page.databytecounts[index]:
            return None
        self._file.seek(page.dataoffsets[index])
        data = self._file.read(page.databytecounts[index])
        if page.compression in CODESTREAMS and page.compression != COMPRESSION.WEBP:  # which takes 1 GB at most
            most = max(math.prod(page.chunks), 4 * math.prod(page.chunks[:2]))  # JPEG XL has no gray
            size = size_of(data)
            if size is None or not 0 < size.width * size.height * size.bands <= most:
                raise ImageError("a damaged TIFF file: a strip or tile has another size than its header promises")
        return data

    def _other_weights(self) -> np.ndarray | None:
        """Return the weights of red, green and blue in the luma of YCbCr if they are not those of `YCBCR_WEIGHTS`."""
        numbers = self._page.tags.valueof(Tag.YCbCrCoefficients, default=())  # each with a divisor
        weights = np.array([a / b if b else 0 for a, b in zip(numbers[::2], numbers[1::2])] or YCBCR_WEIGHTS)
        if weights.shape != (3,) or weights.min() <= 0:
            raise ImageError(f"a damaged TIFF file: weights {weights} of YCbCr; expected three above 0")
        return None if np.abs(weights - YCBCR_WEIGHTS).max() < 1e-3 else weights

    def _metadata(self) -> Metadata:
        tags, description = self._page.tags, self._page.description
        metadata = Metadata(self._profile)
        if self._page.photometric in (PHOTOMETRIC.MINISBLACK, PHOTOMETRIC.RGB) and self._page.bitspersample >= 8:
            with contextlib.suppress(TypeError, ValueError):  # missing or damaged
                metadata = metadata._replace(nodata=float(tags.valueof(GDAL_NODATA)))
        with contextlib.suppress(TypeError, ValueError, ZeroDivisionError):  # missing or damaged
            x, y = (operator.truediv(*tags.valueof(code)) for code in (Tag.XResolution, Tag.YResolution))
            unit = tags.valueof(Tag.ResolutionUnit, default=2)
            metadata = metadata._replace(
                resolution=(x, y) if min(x, y) > 0 else None, unit=unit if unit in (1, 3) else 2
            )
        if description.startswith("ImageJ="):
            metadata = metadata._replace(description="\n".join(IMAGEJ.findall(description)))
        elif description.startswith("<?xml"):
            found = dict(OME_SIZE.findall(description)).items()
            sizes = [(name, value if name.endswith("Unit") else float(value)) for name, value in found]
            metadata = metadata._replace(ome=tuple(sizes))
        # GeoTIFF's tags would be wrong for an image that is turned upright.
        kept = [tags[code] for code in GEO_TAGS if code in tags and self._orientation == 1]
        xmp = tags.valueof(Tag.XMLPacket, default=b"")
        return metadata._replace(
            xmp=upright_xmp(xmp) if isinstance(xmp, bytes) else b"",
            tags=tuple((tag.code, int(tag.dtype), tag.count, tag.value) for tag in kept),
        )


def is_described(tif: Any) -> bool:
    """Return whether a text of OME, ImageJ or tifffile tells the axes of the pages."""
    return tif.is_ome or tif.is_imagej or tif.is_shaped


def find_images(tif: Any) -> tuple[list[list[Any]], str, tuple[int, ...]]:
    """Find the images of a file: each of its pages, but for overviews and masks; or as OME or ImageJ say.

    Returns:
        The pages of each image, of which several are its channels; axes in front of those of a page, such as "TZC",
        and their lengths; the axes are empty if they are not known.
    """
    sizes = (map(int, SIZES.findall(text)) for text in OME_PIXELS.findall(tif.pages[0].description))
    is_known = is_described(tif) and (not tif.is_shaped or len(tif.series) == 1)
    if is_known and sum(map(math.prod, sizes)) <= MAX_PAGES:
        series = tif.series[0]
        axes = LEADING_AXES.fullmatch(series.axes)
        shape = series.shape[: len(axes[1])] if axes else ()
        pages = _pages_of(series, math.prod(shape))
        if axes and len(pages) == math.prod(shape) and None not in pages:
            numbers = np.arange(len(pages)).reshape(shape)
            channels = axes[1].find("C")
            numbers = np.moveaxis(numbers, channels, -1) if channels >= 0 else numbers[..., np.newaxis]
            images = numbers.reshape(-1, numbers.shape[-1])
            return [[pages[i] for i in image] for image in images.tolist()], axes[1], shape
    found: dict[int, Any] = {}  # by their position in the file
    for page in tif.pages:
        if page.offset in found:  # damaged: the next page is an earlier one
            break
        found[page.offset] = page
    below = (each for page in found.values() if page.keyframe.subfiletype & 1 for each in page.keyframe.pages or ())
    single = [[page] for page in (*found.values(), *below) if not page.keyframe.subfiletype & REDUCED_OR_MASK]
    return single or [[tif.pages[0]]], "", ()


def _pages_of(series: Any, count: int) -> list[Any]:
    """Return the pages of a series, also of ImageJ's large files, which describe only the first one."""
    page = series.keyframe
    offset, size = page.dataoffsets[0], page.nbytes
    if len(series) == count or not page.is_contiguous or offset + count * size > series.parent.filehandle.size:
        return [*series]
    places: Any = ((offset + number * size, number) for number in range(count))
    make = functools.partial(tifffile.TiffFrame, series.parent, keyframe=page, databytecounts=(size,))
    return [make(index=number, dataoffsets=(place,)) for place, number in places]


def _check_page(page: tifffile.TiffPage, by_libtiff: bool, is_other: bool) -> None:
    """Raise `ImageError` unless the page is a flat image that this reader decodes."""
    check_size(page.imagewidth, min(page.imagelength, 1))
    if page.is_tiled:
        check_size(page.tilewidth, page.tilelength)
    dtype: Any = page.dtype
    bits = page.bitspersample
    fits = isinstance(bits, int) and dtype is not None and (bits == 8 * dtype.itemsize if is_other else bits <= 16)
    if not fits or (is_other and f"{dtype}" not in OTHER_TYPES) or page.imagedepth != 1:
        types = ", ".join(OTHER_TYPES)
        raise ImageError(f"a TIFF file of {bits} bits ({dtype}): expected a flat image of 1 to 16 bits, or of {types}")
    known = page.photometric in ((PHOTOMETRIC.MINISBLACK, PHOTOMETRIC.RGB) if is_other else PHOTOMETRICS)
    known &= page.photometric != PHOTOMETRIC.CIELAB or page.compression not in TO_RGB  # which would convert it
    extra = page.tags.valueof(LERC_PARAMETERS, default=(0, 0))[1]  # compression of LERC's result, without a bound
    if not (page.compression in (*LOSSLESS, *CODESTREAMS) or by_libtiff) or not known or extra:
        raise ImageError(
            f"a TIFF file of compression {_name(page.compression)} and colors {_name(page.photometric)}: expected one"
            f" of {', '.join(each.name for each in (*LOSSLESS, *CODESTREAMS))}, and gray or RGB"
        )
    if page.photometric == PHOTOMETRIC.YCBCR and not by_libtiff and page.compression not in TO_RGB:
        levels = page.tags.valueof(Tag.ReferenceBlackWhite, default=YCBCR_LEVELS)
        if len(levels) == 12:  # each with a divisor
            levels = tuple(a / (b or 1) for a, b in zip(levels[::2], levels[1::2]))
        if levels != YCBCR_LEVELS:
            text = ", ".join(f"{level:g}" for level in levels)
            raise ImageError(f"a TIFF file of YCbCr with ReferenceBlackWhite {text}: expected 0 to 255, or RGB")


def _ycbcr_to_rgb(values: np.ndarray, weights: np.ndarray) -> None:
    """Convert the first three bands, uint8, in place: ITU-R BT.601 and others differ by the weights of the colors."""
    for rows in geo.row_blocks(values.shape):
        gray, blue, red = np.moveaxis(values[rows][..., :3].astype(np.float32), 2, 0)
        red, blue = (gray + 2 * (1 - weights[i]) * (part - 128) for i, part in ((0, red), (2, blue)))
        green = (gray - weights[0] * red - weights[2] * blue) / weights[1]
        values[rows][..., :3] = np.rint(np.stack([red, green, blue], axis=2)).clip(0, 255)


def _segment_bytes(page: tifffile.TiffPage) -> int:
    """Return the memory of a decoded strip or tile."""
    return math.prod(page.chunks) * np.dtype(page.dtype).itemsize


def _name(value: int) -> str:
    return getattr(value, "name", f"{value}")


def _decode_with_libtiff(file: BinaryIO, header: Header, page: int) -> np.ndarray:
    """Return the pixels of a page, upright: uint8 [h, w, 1 or 3]."""
    file.seek(0)
    command = [sys.executable, "-W", "ignore", "-c", DECODE_WITH_LIBTIFF, f"{page}"]
    content = file.read()
    runs = [subprocess.run(command, input=content, capture_output=True, env={**os.environ, **fill}) for fill in FILLS]
    pixels, area = runs[0].stdout, header.height * header.width
    if any(run.returncode or run.stderr or run.stdout != pixels for run in runs) or len(pixels) not in (area, 3 * area):
        raise ImageError("a damaged TIFF file: its fax or old JPEG data cannot be decoded without errors")
    return np.frombuffer(pixels, np.uint8).reshape(header.height, header.width, -1)


def _has_segments(page: Any, file: BinaryIO, by_libtiff: bool) -> bool:
    """Return whether the strips or tiles of a page are all there and lie inside the file.

    Offset and size of an empty one, without data, are 0 in a sparse file.
    """
    length = file.seek(0, os.SEEK_END)
    segments = list(zip(page.dataoffsets, page.databytecounts))
    page = page.keyframe
    may_be_sparse = not page.is_contiguous and not by_libtiff
    if len(segments) != math.prod(page.chunked) or not all(
        0 < size <= length - start or (may_be_sparse and start == size == 0) for start, size in segments
    ):
        return False
    has_own_length = by_libtiff or page.compression != COMPRESSION.NONE
    full = math.prod(page.chunks) * page.bitspersample // 8
    return has_own_length or sum(size or full for _, size in segments) >= page.size * page.bitspersample // 8


def write(path: pathlib.Path, bands: np.ndarray, has_opacity: bool, metadata: Metadata) -> None:
    """Write all TIFF files with tifffile, because Pillow has no 16-bit RGB and no more than four bands."""
    tifffile.imwrite(path, without_single_axis(bands), **_settings(bands.shape[2], has_opacity, metadata))


def create_stack(
    path: pathlib.Path, original: ImageReader, shape: tuple[int, ...], dtype: Any, metadata: Metadata
) -> Stack:
    """Write a file of several pages, as OME or ImageJ if the original is such a file; see `image.CreateStack`."""
    count, height, width, channels = shape
    tif: Any = original.tif if isinstance(original, TiffReader) else None
    images, axes, lengths = find_images(tif) if tif else ([], "", ())
    if not axes or len(images) != count:
        tif, axes, lengths = None, "Q", (count,)
    leading = [length for axis, length in zip(axes, lengths) if axis != "C"]
    place = axes.find("C") if channels > 1 else -1  # of the channels, if they are pages as in the original
    sizes = [*leading, height, width]
    sizes.insert(place if place >= 0 else len(sizes), channels)
    axes = (axes if place >= 0 else axes.replace("C", "")) + "YX"
    bands = 1 if place >= 0 else channels

    def put(array: np.ndarray, number: int, pixels: np.ndarray) -> None:
        np.moveaxis(array, place, -1)[np.unravel_index(number, leading)] = pixels

    def save(array: np.ndarray) -> None:
        settings = _settings(bands, False, metadata)
        if tif:
            described = {**dict(metadata.ome), "axes": f"{axes}S" if bands > 1 else axes}
            names = OME_CHANNEL.findall(tif.pages[0].description) if place >= 0 else []
            if len(names) >= channels:
                described["Channel"] = {"Name": [html.unescape(name) for name in names[:channels]]}
            settings.update(ome=tif.is_ome, metadata=described)
        else:
            settings.update(ome=False, metadata=None)
        if tif and tif.is_imagej:
            lines = IMAGEJ_AXES.findall(tif.pages[0].description)
            counts = [f"images={array.size // (height * width * bands)}"]
            counts += [f"channels={channels}"] if place >= 0 else []
            first, *units = metadata.description.splitlines() or ["ImageJ="]
            settings.update(description="\n".join([first, *counts, *lines, *units, ""]), metadata=None)
        tifffile.imwrite(path, array[..., 0] if place < 0 and bands == 1 else array, **settings)

    return Stack(tuple(sizes), put, save)


def write_rows(
    path: pathlib.Path, height: int, parts: Iterator[np.ndarray], has_opacity: bool, metadata: Metadata
) -> None:
    """Write a BigTIFF file in tiles; `parts` are its rows, from top to bottom: [any number, w, bands]."""
    first = next(parts)
    tifffile.imwrite(
        path,
        _cut_tiles(itertools.chain([first], parts)),
        shape=without_single_axis(np.broadcast_to(first[:1], (height, *first.shape[1:]))).shape,
        dtype=first.dtype,
        bigtiff=True,
        tile=(TILE_SIDE, TILE_SIDE),
        maxworkers=1,
        **_settings(first.shape[2], has_opacity, metadata),
    )


def _cut_tiles(parts: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the tiles of an image; those at its right and its bottom may be smaller."""
    rows = next(parts)
    while len(rows):
        while len(rows) < TILE_SIDE and (part := next(parts, None)) is not None:
            rows = np.concatenate([rows, part])
        for left in range(0, rows.shape[1], TILE_SIDE):
            yield without_single_axis(rows[:TILE_SIDE, left : left + TILE_SIDE])
        rows = rows[TILE_SIDE:]


def _settings(bands: int, has_opacity: bool, metadata: Metadata) -> dict[str, Any]:
    """Return the arguments of `imwrite` for a page with these bands."""
    channels = bands - has_opacity
    is_rgb = channels == 3
    tags = [(*tag, True) for tag in metadata.tags]
    if metadata.xmp:
        tags.append((Tag.XMLPacket, 1, len(metadata.xmp), metadata.xmp, True))
    if metadata.nodata is not None:
        tags.append((GDAL_NODATA, 2, 0, repr(metadata.nodata).removesuffix(".0"), True))
    return {
        "photometric": "rgb" if is_rgb else "minisblack",
        "planarconfig": "contig" if bands > 1 else None,
        "extrasamples": ["unassalpha"] * has_opacity + ["unspecified"] * (channels - (3 if is_rgb else 1)),
        "compression": "adobe_deflate",
        "iccprofile": metadata.profile or None,
        "resolution": metadata.resolution,
        "resolutionunit": metadata.unit if metadata.resolution else None,
        "extratags": tags,
        "description": metadata.description or None,
        "ome": bool(metadata.ome),
        "metadata": {**dict(metadata.ome), "axes": "YXS" if bands > 1 else "YX"} if metadata.ome else None,
    }
