"""Generator of image files as a stranger would send them, each a function of a seed and a number."""

import io
import os
import pathlib
import pickle
import random
import struct
import zlib

import numpy as np
from PIL import Image

from tests.images.samples import VALID, chunk, png, tiff, tiff_of

try:
    from tests.images import dicom_samples

    stored = dicom_samples.dicom(dicom_samples.twelve_bits())
    DICOM = [stored, dicom_samples.compressed(stored)]
except ImportError:  # pydicom is optional
    DICOM = []
JPEG_IN_TIFF = tiff_of(np.zeros((16, 16, 3), np.uint8), compression="jpeg")
SEEDS = [*VALID.values(), JPEG_IN_TIFF, *DICOM]
ENDINGS = (".png", ".jpg", ".JPEG", ".tif", ".tiff", ".webp", ".bmp", ".gif", ".dcm")
MODES = (
    "1",
    "L",
    "LA",
    "P",
    "PA",
    "RGB",
    "RGBA",
    "RGBX",
    "CMYK",
    "YCbCr",
    "LAB",
    "HSV",
    "I",
    "I;16",
    "F",
    "La",
    "RGBa",
)
FORMATS = ("png", "jpeg", "tiff", "webp", "bmp", "gif")
SPECIAL = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
NAMES = (
    "plain",
    "two\nlines",
    "return\r",
    'it\'s a "quote"',
    "<b>bold<",
    "<img src=x onerror=alert(1)>",
    "<",  # with the part after the slash: </script>
    "</script><script>alert(1)<",
    "&lt;&quot;&#60;",
    "{{data}}",
    "\x1b[31mred\x07",
    "photo\u202egnp",
    "\u2028line",
    b"caf\xe9\xff".decode(errors="surrogateescape"),
    "zèbre 馬",
    "100%20#?&=",
    "-flag",
    "$(x)`y`;z|",
    "*?[a]",
    "back\\slash",
    " spaces ",
    "x" * 180,
)


def truncated(rng):
    content = rng.choice(SEEDS)
    return content[: rng.randrange(len(content))]


def flipped(rng):
    content = bytearray(rng.choice(SEEDS))
    for _ in range(rng.randint(1, 8)):
        content[rng.randrange(rng.choice((min(120, len(content)), len(content))))] ^= 1 << rng.randrange(8)
    return bytes(content)


def headers(rng):
    """Overwrite fields of the header with numbers at the limits of their types."""
    content = bytearray(rng.choice(SEEDS))
    for _ in range(rng.randint(1, 3)):
        code = rng.choice("BHI")
        value = rng.choice([value for value in SPECIAL if value < 256 ** struct.calcsize(code)])
        struct.pack_into(rng.choice("<>") + code, content, rng.randrange(min(150, len(content) - 4)), value)
    return bytes(content)


def spliced(rng):
    one, other = rng.choice(SEEDS), rng.choice(SEEDS)
    return one[: rng.randrange(len(one))] + other[rng.randrange(len(other)) :]


def bombs(rng):
    """Make small files that promise, or hold, much."""
    side = rng.choice((0, 20_000, 65_535, 2**31 - 1))
    many = zlib.compress(bytes(rng.choice((1, 8)) << 20))
    pixels = zlib.compress(bytes(8 * 25))
    jpeg = bytearray(VALID["progressive jpeg"])
    struct.pack_into(">HH", jpeg, jpeg.index(b"\xff\xc2") + 5, min(side, 65_535), 65_500)
    pages = tiff(8, 8)
    return rng.choice(
        (
            png(side, side, pixels=many),
            png(side, 1, pixels=many, bits=16),
            png(8, 8, pixels=many),
            png(8, 8, chunk(b"zTXt", b"comment\0\0" + many), pixels=pixels),
            png(8, 8, chunk(b"iCCP", b"profile\0\0" + many), pixels=pixels),
            png(8, 8, *[chunk(b"tEXt", b"a\0b")] * 5000, pixels=pixels),
            tiff(min(side, 2**31), 20_000),
            tiff(side, side, rng.choice((5, 65_535))),
            pages[:-4] + struct.pack("<I", 8) + bytes(64),  # the next page is this one, for ever
            b"BM" + struct.pack("<IIIIiiHHIIIIII", 1000, 0, 54, 40, side, -side, 1, 24, *[0] * 6) + bytes(1000),
            b"GIF89a"
            + struct.pack("<HHBBB", 8, 8, 0, 0, 0)
            + b","
            + struct.pack("<HHHHBB", 0, 0, 65_535, 65_535, 0, 8),
            bytes(jpeg),
        )
    )


def modes(rng):
    """Save an image in a mode and format that few programs write; a format without the mode gets it as TIFF, or as RGB."""
    size = rng.choice(((10, 12), (1, 1), (1, 40), (33, 7)))
    values = np.random.default_rng(rng.randrange(2**32)).integers(0, 256, (*size[::-1], rng.randint(1, 6)))
    if rng.random() < 0.3:
        kind = rng.choice((np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.float32, np.float64))
        return tiff_of(values.astype(kind), photometric="minisblack")
    image = Image.fromarray(values[..., 0].astype(np.uint8)).convert("RGB")
    mode = rng.choice(MODES)
    try:
        image = image.convert(mode)
    except ValueError:
        image = Image.new(mode, size)
    for format in (rng.choice(FORMATS), "tiff", "png"):
        file = io.BytesIO()
        try:
            image.save(file, format)
            return file.getvalue()
        except (OSError, KeyError, ValueError):
            image = image if format != "tiff" else Image.new("RGB", size, "red")
    raise AssertionError(mode)


def exif(rng):
    """Give an image an orientation of any type and value, or EXIF data of random bytes."""
    kind = rng.randint(0, 14)
    value = rng.choice((rng.randbytes(8), struct.pack("<HHI", rng.randint(0, 12), rng.randint(0, 12), 1)))
    head = struct.pack("<IHHHI", 8, rng.choice((1, 1, 1, 300)), 0x0112, kind, rng.choice((0, 1, 1, 1, 2, 2**31)))
    data = b"II*\0" + head + value[:4] + bytes(4) + value
    data = rng.choice((data, data, data, rng.randbytes(40)))
    orientation = rng.choice((0, 2, 5, 6, 8, 9, 11, 65535))
    format = rng.choice(("jpeg", "png", "webp", "tiff"))
    if format == "tiff":
        return tiff_of(np.zeros((12, 10, 3), np.uint8), extratags=[(274, "H", 1, orientation, True)])
    file = io.BytesIO()
    Image.new("RGB", (10, 12), "red").save(file, format, exif=b"Exif\0\0" + data)
    return file.getvalue()


def others(rng):
    """Return content that is no image."""
    return rng.choice(
        (
            b"",
            b"\n",
            b"<html><script>alert(1)</script></html>",
            b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
            b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\nshowpage\n",
            pickle.dumps({"a": 1}),
            b"PK\3\4" + rng.randbytes(100),
            rng.choice(SEEDS)[:16] + rng.randbytes(200),
            rng.randbytes(300),
        )
    )


def untouched(rng):
    return rng.choice(SEEDS)


KINDS = (truncated, flipped, headers, spliced, bombs, modes, exif, others, untouched)


def make(seed, number):
    """Return (kind, name, content) of a file. The name is relative and may have folders; every number has its own."""
    rng = random.Random(f"{seed} {number}")
    kind = KINDS[number % len(KINDS)]
    name = f"{NAMES[number // len(KINDS) % len(NAMES)]}{number}{rng.choice(ENDINGS)}"
    return kind.__name__, name, kind(rng)


def write(folder, seed, count, splits=("trainA", "trainB", "testA", "testB")):
    """Write files in turn to the folders of a dataset; return the kinds of the files by their paths."""
    kinds = {}
    for number in range(count):
        kind, name, content = make(seed, number)
        path = os.path.join(folder, splits[number // len(KINDS) % len(splits)], name)
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).write_bytes(content)
        kinds[path] = kind
    return kinds
