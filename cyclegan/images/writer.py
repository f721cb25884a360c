"""Writes a picture file, at its full depth where its format has that; no TensorFlow."""

import os
import pathlib
import struct
import threading
import zlib

import numpy as np
from PIL import Image

from cyclegan.errors import UserError
from cyclegan.images.value_range import to_depth

# By --format: what files are called.
FORMATS = {
    "png": (".png",),
    "jpeg": (".jpg", ".jpeg"),
    "tiff": (".tif", ".tiff"),
    "webp": (".webp",),
    "bmp": (".bmp",),
    "gif": (".gif",),
}
DEEP = ("png", "tiff")  # those that hold 16 bits
CLEAR = ("png", "tiff", "webp", "gif")  # those that hold opacity
OPTIONS = {
    "jpeg": {"quality": 95, "subsampling": 0},
    "webp": {"quality": 95},
    "tiff": {"compression": "tiff_adobe_deflate"},
}


def format_of(name):
    """The format that a file's name stands for, or `None`."""
    ending = pathlib.PurePath(name).suffix.lower()
    return next((format for format, endings in FORMATS.items() if ending in endings), None)


def write(path, picture, format=None):
    """Writes a `decoding.DecodedImage`, whole or not at all; the folders on the way are made.

    What the format can't hold is left out: opacity, and the lower half of 16 bits. JPEG and WebP are compressed with quality 95.

    Args:
        format: one of `FORMATS`; by default what the name says.

    Raises:
        UserError: the format has no place for so many channels.
        OSError: it can't be written.
    """
    path = pathlib.Path(path)
    format = format or format_of(path.name)
    pixels, channels = picture.pixels, picture.pixels.shape[2]
    if channels not in (1, 3) and format != "tiff":
        raise UserError(f"{channels} channels don't fit into {format}: expected --format tiff")
    parts = [pixels] if picture.opacity is None or format not in CLEAR else [pixels, picture.opacity]
    pixels = np.concatenate(parts, axis=2)
    if format not in DEEP:
        pixels = to_depth(pixels, np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{os.getpid()}-{threading.get_ident()}.partial")
    try:
        if format == "tiff" and (pixels.dtype == np.uint16 or channels not in (1, 3)):
            _write_tiff(partial, pixels, len(parts) > 1, picture.profile)
        elif pixels.dtype == np.uint16:
            _write_deep_png(partial, pixels, picture.profile)
        else:
            image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
            image = image.convert("RGBA") if format == "gif" and len(parts) > 1 else image  # Pillow drops the A of LA
            profile = {"icc_profile": picture.profile} if picture.profile else {}
            image.save(partial, format, **OPTIONS.get(format, {}), **profile)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _write_tiff(path, pixels, clear, profile):
    import tifffile  # few need it

    colours = pixels.shape[2] - clear
    tifffile.imwrite(
        path,
        pixels if pixels.shape[2] > 1 else pixels[..., 0],
        photometric="rgb" if colours == 3 else "minisblack",
        planarconfig="contig" if pixels.shape[2] > 1 else None,
        extrasamples=["unassalpha"] * clear + ["unspecified"] * (pixels.shape[2] - clear - (3 if colours == 3 else 1)),
        compression="adobe_deflate",
        iccprofile=profile or None,
        metadata=None,
    )


def _write_deep_png(path, pixels, profile):
    import imagecodecs  # few need it

    encoded = imagecodecs.png_encode(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    header = 8 + 25  # bytes of the signature and of IHDR, which the profile's chunk has to follow
    path.write_bytes(
        encoded[:header] + (_chunk(b"iCCP", b"ICC\0\0" + zlib.compress(profile)) if profile else b"") + encoded[header:]
    )


def _chunk(kind, content):
    """A chunk of a PNG (ISO/IEC 15948, 5.3): length, kind, content, CRC-32."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
