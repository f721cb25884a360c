"""One picture file: what its header says, and its pixels, whole, upright and at their full depth; no TensorFlow."""

import contextlib
import dataclasses
import functools
import io
import logging
import math
import os
import threading

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from cyclegan.data.records import Stored
from cyclegan.images.value_range import to_depth

FORMATS = (
    "JPEG",
    "PNG",
    "BMP",
    "WEBP",
    "GIF",
    "TIFF",
)  # what is in them, whatever their names say; no EPS, which is a program
MOVING = ("PNG", "WEBP", "GIF")  # those that may have several frames; JPEG has previews at most
LARGEST = 180_000_000  # pixels: 0.7 GB decoded, above any camera's; more is a mistake or an attack
LARGE = 25_000_000  # pixels: pictures above this are decoded one at a time, for the memory's sake
END = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}  # of a whole file, by format; no compressed pixels look like it
TAIL = 4096  # bytes at the end of a file in which it is looked for: cameras and programs add to it
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # how these files begin
CLEAR = ("LA", "PA", "RGBA", "La", "RGBa")  # Pillow's modes with opacity; the A of LAB is a colour
KINDS = {0: 1, 2: 3, 4: 2, 6: 4}  # bands of the kinds of pixels of a PNG that have no palette
PACKED = {1: "none", 5: "LZW", 8: "deflate", 32946: "deflate", 32773: "packbits", 50000: "zstd"}  # of many bands
LOOKED = np.dtype([("length", np.int64), ("height", np.int32), ("width", np.int32), ("deep", bool)])  # see `check`

Image.MAX_IMAGE_PIXELS = None  # it is looked for here, before anything is decoded
logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # what is wrong with a file is said here
_one_at_a_time = threading.Lock()


@dataclasses.dataclass(frozen=True)
class _Header:
    """What is known of a picture before it is decoded.

    `height`, `width`: upright, in pixels. `bands`: of a pixel. `deep`: whether these have 16 bits. `colours`: whether they are gray
    or RGB, or can be made so. `whole`: whether the file seems to be. `profile`: an ICC profile, or nothing. `read`: function from a
    number of channels that was found possible to uint8 or uint16 [height, width, channels], and opacity [height, width, 1] of the
    same type, or `None`.
    """

    height: int
    width: int
    bands: int
    deep: bool
    colours: bool
    whole: bool
    profile: bytes
    read: object


@dataclasses.dataclass(frozen=True)
class DecodedImage:
    """A picture in its own depth: what `decode_whole` reads and `encoding.write` writes.

    `pixels`: uint8 or uint16 [h, w, C]; what is transparent lies over white. `opacity`: of the same type [h, w, 1], or `None`.
    `profile`: an ICC profile, or nothing.
    """

    pixels: np.ndarray
    opacity: object = None
    profile: bytes = b""


def decode(source, channels=3, dtype=np.uint8):
    """Reads a picture: upright by its EXIF, the first frame; for 1 and 3 channels, transparency over white.

    Args:
        source: a path, the bytes of a file, or a `records.Stored`.
        channels: 1 is gray, 3 is RGB; for any other number the file has to have as many bands, and these are taken as they are.
        dtype: `np.uint8` or `np.uint16`; pixels of the other depth are scaled by 257.

    Returns:
        dtype [height, width, channels].

    Raises:
        ValueError: it has more than `LARGEST` pixels, by its header, or not the bands that are wanted; nothing is decoded.
        OSError and others of the libraries': the file is not a picture that can be decoded whole.
    """
    return to_depth(decode_whole(source, channels).pixels, dtype)


def decode_whole(source, channels=3):
    """As `decode`, but as deep as the file is, and with what else it has. Returns a `DecodedImage`.

    For other numbers of channels than 1 and 3, opacity is one of them.
    """
    with _opened(source) as file:
        header = _look(file, channels)
        with _one_at_a_time if header.height * header.width > LARGE else contextlib.nullcontext():
            return DecodedImage(*header.read(channels), header.profile)


def of_pillow(image, channels=3):
    """The `DecodedImage` of a Pillow image, for 1 and 3 channels.

    Raises:
        ValueError: its pixels are floats.
    """
    if image.mode == "F":
        raise ValueError("a Pillow image of mode F: expected 8 or 16 bits, or an array")
    deep = image.mode.startswith("I")
    return DecodedImage(*(_deep_gray if deep else _shallow)(image, channels), image.info.get("icc_profile") or b"")


def check(source, channels=3):
    """Looks at a picture (see `decode`) as far as that costs next to nothing: at its header and at its end.

    Only where the end is not where it should be (much may follow it in a valid file) is the whole decoded.

    Returns:
        (length, height, width, deep), see `LOOKED`: of the file in bytes; of the upright picture in pixels; whether it has 16 bits.

    Raises:
        What `decode` raises.
    """
    with _opened(source) as file:
        header = _look(file, channels)
        length = file.seek(0, os.SEEK_END)
    if not header.whole:
        decode(source, channels)
    return length, header.height, header.width, header.deep


def has_more(path):
    """Whether a file has frames or pages after the first one, which `decode` leaves out; not where that can't be seen."""
    try:
        with open(path, "rb") as file:
            begins = file.read(4)
            file.seek(0)
            if begins in TIFF:
                import tifffile  # few need it

                return len(tifffile.TiffFile(file).pages) > 1
            with Image.open(file, formats=MOVING) as image:
                return image.is_animated
    except Exception:  # the libraries raise almost anything on a damaged file
        return False


def resize(picture, size):
    """uint8 or uint16 [h, w, C] -> [*size, C], bicubic and without aliasing, as Pillow does it."""
    height, width = size
    if picture.shape[:2] == (height, width):
        return picture
    channels = picture.shape[2]
    if picture.dtype == np.uint8 and channels in (1, 3):
        image = Image.fromarray(picture[..., 0] if channels == 1 else picture)
        return np.asarray(image.resize((width, height), Image.BICUBIC)).reshape(height, width, channels)
    bands = (Image.fromarray(picture[..., band].astype(np.float32)) for band in range(channels))
    resized = np.stack([np.asarray(band.resize((width, height), Image.BICUBIC)) for band in bands], axis=-1)
    return np.rint(np.clip(resized, 0, np.iinfo(picture.dtype).max)).astype(picture.dtype)


def _opened(source):
    if isinstance(source, Stored):
        return source.open()
    return io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")


def _look(file, channels):
    try:
        image = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        file.seek(0)
        if file.read(4) not in TIFF:
            raise
        header = _of_tifffile(file)
    else:
        _refuse_other_numbers(image)
        header = _of_tifffile(file) if _is_beyond_pillow(image) else _of_pillow(image, file)
    if channels in (1, 3) and not header.colours:
        raise ValueError(f"bands: {header.bands}; expected gray or RGB pixels, or another --channels_x or --channels_y")
    if channels not in (1, 3) and header.bands != channels:
        raise ValueError(f"bands: {header.bands}; expected {channels} (--channels_x, --channels_y)")
    return header


def _refuse_other_numbers(image):
    """Raises ValueError for a TIFF of floats, signed numbers or more than 16 bits, all of which Pillow would cut."""
    if image.format != "TIFF":
        return
    kinds, bits = (np.ravel(image.tag_v2.get(tag, 1)) for tag in (339, 258))
    if (kinds != 1).any() or bits.max() > 16:
        kind = {1: "unsigned", 2: "signed", 3: "floating point"}.get(int(kinds.max()), "other")
        raise ValueError(f"{bits.max()} bits ({kind}): expected a flat picture of 8 or 16 bits, no signs")


def _refuse_huge(width, height, bands=1):
    if width * height * max(1, bands / 4) > LARGEST:
        many = f" of {bands} bands" if bands > 4 else ""
        raise ValueError(f"{width} x {height} pixels{many}: expected at most {LARGEST // 1_000_000} million")


def _of_pillow(image, file):
    _refuse_huge(*image.size)
    first = file.tell()  # a thumbnail in the header has an end too
    length = file.seek(0, os.SEEK_END)
    file.seek(max(first, length - TAIL))
    tail = file.read()
    file.seek(first)
    orientation, (width, height) = _orientation(image, tail), image.size
    if orientation >= 5:
        width, height = height, width
    bands, read = len(image.getbands()), functools.partial(_shallow, image)
    deep = image.mode.startswith("I")
    if deep:
        read = functools.partial(_deep_gray, image)
    elif image.format == "PNG":
        bits, kind = _bits_and_kind(file)
        if bits == 16:
            deep, bands, read = True, KINDS[kind], functools.partial(_deep_png, file, orientation)
    if image.format == "PNG":
        read = functools.partial(_checked, file, read)
    whole = _ends_inside(image, length) if image.format == "TIFF" else END.get(image.format, b"") in tail
    return _Header(height, width, bands, deep, True, whole, image.info.get("icc_profile") or b"", read)


def _orientation(image, tail):
    """By EXIF, 1 to 8; what Pillow has not applied yet."""
    if image.format == "TIFF":
        return 1  # its `size` is upright already, and its pixels will be
    # Pillow decodes a PNG to look for an EXIF chunk after the pixels.
    after_pixels = image.format == "PNG" and b"eXIf" in tail
    return (image.getexif() if after_pixels else Image.Image.getexif(image)).get(0x0112, 1)


def _bits_and_kind(file):
    """(bits of a band, kind of pixels), by the header of a PNG. The file's position is kept."""
    place = file.tell()
    file.seek(24)
    bits, kind = file.read(2)
    file.seek(place)
    return bits, kind


def _ends_inside(image, length):
    """Whether the strips or tiles of a TIFF that Pillow has opened lie in a file of so many bytes."""
    tags = image.tag_v2
    offsets, counts = (tags.get(strips) or tags.get(tiles) or () for strips, tiles in ((273, 324), (279, 325)))
    return 0 < len(offsets) == len(counts) and max(map(sum, zip(offsets, counts))) <= length


def _checked(file, read, channels):
    """What `read` gives of a PNG whose checksums are right; Pillow decodes what is damaged to something, as often as not."""
    place = file.tell()
    file.seek(0)
    Image.open(file, formats=["PNG"]).verify()
    file.seek(place)
    return read(channels)


def _shallow(image, channels):
    """The pixels of a Pillow image of at most 8 bits, and its opacity, if it has any."""
    image, opacity = ImageOps.exif_transpose(image), None
    if channels in (1, 3):
        if image.mode in CLEAR or "transparency" in image.info:
            image = image.convert("RGBA")
            opacity = np.asarray(image.getchannel("A"))[..., None]
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        image = image.convert("RGB")
        image = image.convert("L") if channels == 1 else image
    return np.asarray(image).reshape(image.height, image.width, channels), opacity


def _deep_gray(image, channels):
    """The pixels of a Pillow image of one band of more than 8 bits, and its opacity; what is above 16 is cut off."""
    image, opacity = ImageOps.exif_transpose(image), None
    picture = np.clip(np.asarray(image), 0, 65535).astype(np.uint16)[..., None]
    transparent = image.info.get("transparency")
    if transparent is not None:
        opacity = np.where(picture == transparent, np.uint16(0), np.uint16(65535))
        picture[picture == transparent] = 65535  # the white behind it
    return _converted(picture, False, channels)[0], opacity


def _deep_png(file, orientation, channels):
    """The pixels of a PNG of 16 bits and several bands, of which Pillow would drop 8."""
    import imagecodecs  # few need it

    file.seek(0)
    picture = _upright(imagecodecs.png_decode(file.read()), orientation)
    return _converted(picture, picture.shape[2] in (2, 4), channels)  # a transparent colour has become opacity


def _is_beyond_pillow(image):
    """Whether it is a TIFF whose pixels Pillow would cut: of 16 bits and several bands, or of more than four."""
    if image.format != "TIFF":
        return False
    bands = image.tag_v2.get(277, 1)
    return bands > 4 or (bands > 1 and max(image.tag_v2.get(258, (1,))) > 8)


def _of_tifffile(file):
    import tifffile  # few need it

    length = file.seek(0, os.SEEK_END)
    file.seek(0)
    page = tifffile.TiffFile(file).pages[0]
    height, width, bands = page.imagelength, page.imagewidth, page.samplesperpixel
    _refuse_huge(width, height, bands)
    if page.dtype not in (np.uint8, np.uint16) or page.bitspersample != 8 * page.dtype.itemsize or page.imagedepth != 1:
        raise ValueError(f"{page.bitspersample} bits ({page.dtype}): expected a flat picture of 8 or 16 bits, no signs")
    if page.compression not in PACKED or page.photometric not in (1, 2):
        raise ValueError(
            f"compression {page.compression}, photometric interpretation {page.photometric}: expected 1 or 2 and one of"
            f" {', '.join(sorted(set(PACKED.values())))}"
        )
    if page.is_tiled:
        _refuse_huge(page.tilewidth, page.tilelength, bands)
    segments = list(zip(page.dataoffsets, page.databytecounts))
    whole = len(segments) == math.prod(page.chunked) and all(0 < size <= length - at for at, size in segments)
    if page.compression == 1:
        whole = whole and sum(page.databytecounts) >= height * width * bands * page.dtype.itemsize
    opacity = bool(page.extrasamples) and page.extrasamples[-1] in (1, 2)
    multiplied = opacity and page.extrasamples[-1] == 1  # "associated"
    orientation = page.tags.valueof(274, default=1)

    def read(channels):
        if not whole:
            raise ValueError("truncated: it has less pixels than its header says")
        picture = page.asarray(maxworkers=1).reshape(page.shaped)[:, 0]  # some bands in planes, others in pixels
        picture = np.moveaxis(picture, 0, 2).reshape(height, width, bands)
        return _converted(_upright(picture, orientation), opacity, channels, multiplied)

    upright = (width, height) if orientation >= 5 else (height, width)
    profile = page.tags.valueof(34675, default=b"")
    return _Header(*upright, bands, page.dtype == np.uint16, bands - opacity in (1, 3), whole, profile, read)


def _upright(picture, orientation):
    """[h, w, C] turned and mirrored as EXIF's orientation, 1 to 8, says."""
    if orientation in (5, 6, 7, 8):
        picture = picture.swapaxes(0, 1)
    rows = -1 if orientation in (3, 4, 7, 8) else 1
    columns = -1 if orientation in (2, 3, 6, 7) else 1
    return picture[::rows, ::columns]


def _converted(picture, opacity, channels, multiplied=False):
    """uint8 or uint16 [h, w, bands] -> [h, w, channels], and the last band, if that is `opacity`, or `None`.

    `multiplied`: whether the other bands have been multiplied by it.
    """
    if channels not in (1, 3):
        return picture, None
    behind = None
    if opacity:
        picture, behind = picture[..., :-1], picture[..., -1:]
        most = np.iinfo(picture.dtype).max
        opaque = behind / most
        light = np.minimum(picture, behind) if multiplied else picture * opaque
        picture = np.rint(light + most * (1 - opaque)).astype(picture.dtype)
    if picture.shape[2] == channels:
        return picture, behind
    if channels == 3:
        return np.repeat(picture, 3, axis=2), behind
    red, green, blue = np.moveaxis(picture.astype(np.uint32), 2, 0)
    gray = (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16  # Pillow's L, ITU-R 601-2
    return gray[..., None].astype(picture.dtype), behind
