"""Small image files for the tests of this folder."""

import io
import struct
import zlib

import imagecodecs
import numpy as np
import tifffile
from PIL import Image, ImageCms

from cyclegan.images import reader


def save(path, color=(200, 100, 50), size=(20, 10), mode="RGB", **options):
    """Save an image of one color; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path, **options)
    return path


def middle(path, channels=3):
    """Return the pixel in the middle of an image, as a list."""
    image = reader.decode(path, channels)
    return image[image.shape[0] // 2, image.shape[1] // 2].tolist()


def deep_values(bands, height=12, width=10):
    """Return uint16 [h, w, bands] whose neighbors differ in their low byte only."""
    low = np.random.default_rng(bands).integers(0, 256, (height, width, bands))
    return (0x1200 + low + 0x1000 * np.arange(bands)).astype(np.uint16)


def deep_png(image):
    """Return a PNG of 16 bits."""
    return imagecodecs.png_encode(np.ascontiguousarray(image.squeeze()))


def tiff_of(image, **options):
    """Return a TIFF of one page of [h, w, bands]."""
    file = io.BytesIO()
    options = {"photometric": "rgb" if image.shape[2] in (3, 4) else "minisblack", **options}
    tifffile.imwrite(file, image, planarconfig="contig" if image.shape[2] > 1 else None, **options)
    return file.getvalue()


TIFFS = {
    "as it is": {},
    "packed": {"compression": "lzw", "predictor": True},
    "in tiles": {"compression": "zlib", "tile": (16, 16)},
    "big": {"compression": "zstd", "bigtiff": True},
    "in strips": {"rowsperstrip": 5},
    "big-endian": {"byteorder": ">"},
}


def swapped_profile():
    """Return a profile of RGB whose red is the green of sRGB, and the reverse."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return profile.replace(b"rXYZ", b"?XYZ").replace(b"gXYZ", b"rXYZ").replace(b"?XYZ", b"gXYZ")


def chunk(kind, data):
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, *chunks, pixels=b"", bits=8):
    """Return an RGB PNG with these chunks before its compressed pixels."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def tiff(width, height, bands=1):
    """Return the header of a TIFF without pixels."""
    size = min(width * height * bands, 2**32 - 1)
    tags = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: bands, 278: height, 279: size, 284: 1}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)


def valid_files():
    """Return small complete files of every kind, by name."""
    colors = np.random.default_rng(0).integers(0, 255, (12, 10, 3), np.uint8)
    image, files = Image.fromarray(colors), {}
    exif = Image.Exif()
    exif[0x0112] = 6
    for name, frame, options in (  # each saved from a copy, because saving leaves settings behind
        ("jpeg", image, {"exif": exif}),
        ("progressive jpeg", image, {"progressive": True}),
        ("mpo", image, {"save_all": True, "append_images": [image]}),
        ("png", image, {"exif": exif}),
        ("palette png", image.quantize(4), {"transparency": 0}),
        ("16 bit png", Image.fromarray(colors[..., 0].astype(np.uint16) * 257), {}),
        ("gif", image, {"save_all": True, "append_images": [image.rotate(90)]}),
        ("bmp", image, {}),
        ("webp", image, {"lossless": True, "exif": exif}),
        ("lossy webp", image, {}),
        ("tiff", image, {}),
        ("packed tiff", image, {"compression": "tiff_lzw"}),
        ("gray tiff", Image.fromarray(colors[..., 0]), {}),
    ):
        file = io.BytesIO()
        frame.copy().save(file, name.split()[-1], **options)
        files[name] = file.getvalue()
    deep = deep_values(3)
    return {
        **files,
        "deep png": deep_png(deep),
        "deep tiff": tiff_of(deep),
        "five bands": tiff_of(deep_values(5)),
        "five bands, packed": tiff_of(deep_values(5), **TIFFS["packed"]),
        "five bands in tiles": tiff_of(deep_values(5), **TIFFS["in tiles"]),
    }


VALID = valid_files()
CHANNELS = {name: 5 for name in VALID if name.startswith("five")}  # 3 for the others
