"""Translation of images of any size: mirrored at their edges to sides that the network accepts, or in tiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cyclegan.config.data import MIN_SIDE
from cyclegan.images.image import row_blocks
from cyclegan.images.value_range import from_float

TILE = 1536  # default side in pixels of the largest square that is translated at once
OVERLAP = 128  # pixels that two neighboring tiles share
MIN_TILE = 4 * OVERLAP

Network = Callable[[np.ndarray], Any]  # from [N, H, W, C] to float32 [N, H, W, C'] in [-1, 1], an array or a tensor
Span = tuple[int, int, np.ndarray]  # start, stop, weights of the pixels (the weights of all tiles add up to 1)


def translate(images: np.ndarray, network: Network, channels: int, multiple: int, tile: int) -> np.ndarray:
    """Translate images of any size.

    Images of more than tile x tile pixels are translated in overlapping tiles that fade into each other. Instance
    normalization then sees one tile only, so colors may drift between distant tiles.

    Args:
        images: uint8, uint16, or float32 in [-1, 1]: [N, h, w, C]. The result has the same type.
        network: Function that translates images whose sides are multiples of `multiple`.
        channels: Number of channels of the translations.
        multiple: Pixels by which the sides of the network's input must be divisible.
        tile: Side in pixels of the largest square that is translated at once; at least `MIN_TILE`.
    """
    height, width = images.shape[1:3]
    if height * width <= tile**2:
        return _to_type(_translate_padded(images, network, multiple), images.dtype)
    result = np.empty((*images.shape[:3], channels), images.dtype)
    for image, translated in zip(images, result):
        total = np.zeros(translated.shape, np.float32)
        for top, bottom, down in make_spans(height, tile):
            for left, right, across in make_spans(width, tile):
                (part,) = _translate_padded(image[None, top:bottom, left:right], network, multiple)
                total[top:bottom, left:right] += part * (down[:, None] * across)[..., None]
        for rows in row_blocks(total.shape):
            translated[rows] = _to_type(total[rows], images.dtype)
    return result


def _translate_padded(images: np.ndarray, network: Network, multiple: int) -> np.ndarray:
    """Return the output of the network for images that are mirrored at their edges, cropped back to their size."""
    height, width = images.shape[1:3]
    (top, bottom), (left, right) = _padding(height, multiple), _padding(width, multiple)
    padded = np.pad(images, ((0, 0), (top, bottom), (left, right), (0, 0)), mode="reflect")
    return np.asarray(network(padded))[:, top : top + height, left : left + width]


def _padding(side: int, multiple: int) -> tuple[int, int]:
    """Return the numbers of pixels (before, after) that make a side acceptable to the network."""
    missing = math.ceil(max(side, MIN_SIDE) / multiple) * multiple - side
    return missing // 2, missing - missing // 2


def _to_type(images: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return images if dtype == np.float32 else from_float(images, dtype)


def make_spans(length: int, tile: int) -> list[Span]:
    """Divide a side into spans of at most `tile` pixels.

    Each span shares `OVERLAP` pixels with the next. There its weights fall to 0 while those of the next rise to 1.
    """
    count = 1 if length <= tile else math.ceil(length / (tile - OVERLAP))
    ends = [round(i * length / count) for i in range(count + 1)]
    rising = (np.arange(OVERLAP, dtype=np.float32) + 0.5) / OVERLAP
    spans = []
    for first, last in zip(ends, ends[1:]):
        start, stop = max(first - OVERLAP // 2, 0), min(last + OVERLAP // 2, length)
        weights = np.ones(stop - start, np.float32)
        if start:
            weights[:OVERLAP] = rising
        if stop < length:
            weights[-OVERLAP:] = 1 - rising
        spans.append((start, stop, weights))
    return spans
