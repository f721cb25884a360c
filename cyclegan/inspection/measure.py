"""Measurement of images: each is decoded once, and only a few numbers of it are kept."""

from __future__ import annotations

import hashlib

import numpy as np
from PIL import Image

from cyclegan.config.data import ValueRange
from cyclegan.images import color, reader
from cyclegan.images.image import Header, row_blocks
from cyclegan.images.reader import Source
from cyclegan.images.value_range import image_to_levels, to_depth

MINIATURE = 8  # pixels; two masks or drawings may have equal hashes, but not equal miniatures
MEASURES = np.dtype(
    [
        ("readable", bool),
        ("height", np.int32),  # in pixels, upright
        ("width", np.int32),
        ("format", "U5"),  # by content
        ("kind", "U24"),  # bands and depth
        ("pixels", np.uint64),  # hash of the decoded pixels
        ("look", np.uint64),  # perceptual hash
        ("miniature", np.uint8, (MINIATURE, MINIATURE, 3)),
        ("mean", np.float32, (3,)),  # by channel, in levels of 255; gray images have one channel three times
        ("deviation", np.float32, (3,)),
        ("colored", bool),
    ]
)
GRAY_SPREAD = 8  # levels of 255 between the channels of gray pixels at most: JPEG rounds colors
THUMBNAIL = 128  # pixels; hashes of images that are reduced first are the same, but need less memory
BAND_NAMES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def measure(source: Source, channels: int, value_range: ValueRange | None = None) -> tuple:
    """Decode an image; return its `MEASURES`.

    Args:
        source: A path, or the content of a file.
        channels: Number of channels, see `reader.decode`.
        value_range: Values of the file that become the lowest and the highest level.

    Raises:
        The errors of `reader.decode`.
    """
    header, decoded = reader.decode_with_header(source, channels, any_type=value_range is not None)
    pixels = image_to_levels(decoded, value_range).pixels if value_range else decoded.pixels
    mean, deviation, spread = _colors(color.visible(pixels))
    reduced = thumbnail(pixels, THUMBNAIL)
    looks = _hash_pixels(decoded.pixels), _hash_look(reduced), _miniature(reduced)
    return (True, *pixels.shape[:2], header.format, _kind(header), *looks, mean, deviation, spread > GRAY_SPREAD)


def thumbnail(pixels: np.ndarray, side: int) -> Image.Image:
    """Return a reduced image of 8 bits, at most `side` pixels wide and high; `pixels` are as decoded: [h, w, C]."""
    levels = to_depth(color.visible(pixels), np.uint8)
    image = Image.fromarray(levels if levels.shape[2] == 3 else levels[..., 0])
    image.thumbnail((side, side))
    return image


def _kind(header: Header) -> str:
    """Return the name of the bands and the depth of a file."""
    if header.mode and not header.deep:
        return header.mode
    depth = f" {header.other_values}" if header.other_values else " 16 bit" * header.deep
    return BAND_NAMES.get(header.bands, f"{header.bands} bands") + depth


def _colors(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return mean and standard deviation by channel, and the largest difference between channels of a pixel."""
    total = squares = np.zeros(pixels.shape[2])
    spread = 0.0
    for rows in row_blocks(pixels.shape):
        block = pixels[rows].reshape(-1, pixels.shape[2]).astype(np.float64)
        total, squares = total + block.sum(axis=0), squares + np.square(block).sum(axis=0)
        spread = max(spread, np.ptp(block, axis=1).max())
    level = np.iinfo(pixels.dtype).max / 255
    count = pixels.shape[0] * pixels.shape[1]
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
    return np.broadcast_to(mean / level, 3), np.broadcast_to(deviation / level, 3), spread / level


def _hash_pixels(pixels: np.ndarray) -> int:
    digest = hashlib.blake2b(f"{pixels.shape} {pixels.dtype}".encode(), digest_size=8)
    digest.update(np.ascontiguousarray(pixels).data)
    return int.from_bytes(digest.digest(), "big")


def _hash_look(image: Image.Image) -> int:
    import imagehash  # slow to import

    bits = imagehash.phash(image).hash
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def _miniature(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB").resize((MINIATURE, MINIATURE), Image.Resampling.BOX))
