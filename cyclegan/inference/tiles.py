"""Translation of large images in overlapping tiles that fade into each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

TILE = 1536  # default side in pixels of the largest square that is translated at once
OVERLAP = 128  # pixels that two neighboring tiles share
MIN_TILE = 4 * OVERLAP


class Span(NamedTuple):
    """Extent of a tile along one side of an image.

    Attributes:
        start: First pixel.
        stop: Pixel after the last.
        weights: Weight of each pixel, float32 [stop - start]; the weights of all tiles add up to 1.
    """

    start: int
    stop: int
    weights: np.ndarray


def make_spans(length: int, tile: int) -> list[Span]:
    """Divide a side into spans of at most `tile` pixels.

    Each span shares `OVERLAP` pixels with the next. There its weights fall to 0 while the weights of the next span rise to 1.
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
        spans.append(Span(start, stop, weights))
    return spans


def translate_strips(
    image: np.ndarray, translate: Callable[[np.ndarray], np.ndarray], tile: int, channels: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Translate an image tile by tile, with memory for one row of tiles only.

    Args:
        image: [h, w, C].
        translate: Function from [1, h, w, C] to float32 [1, h, w, channels].
        tile: Largest side of a tile in pixels.
        channels: Number of channels of the translation.

    Yields:
        (first row, float32 [rows, w, channels]), from top to bottom.
    """
    height, width = image.shape[:2]
    columns, rows = make_spans(width, tile), make_spans(height, tile)
    next_tops = [*(row.start for row in rows[1:]), height]
    above = np.zeros((0, width, channels), np.float32)  # contribution of the previous row of tiles to this one
    for (top, bottom, down), next_top in zip(rows, next_tops):
        strip = np.zeros((bottom - top, width, channels), np.float32)
        for left, right, across in columns:
            translated = translate(image[None, top:bottom, left:right])[0]
            strip[:, left:right] += translated * (down[:, None] * across)[..., None]
        strip[: len(above)] += above
        yield top, strip[: next_top - top]
        above = strip[next_top - top :]
