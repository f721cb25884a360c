"""Translation of images of any size: mirrored at their edges to sides that the network accepts, or in tiles.

Tiles have no seams. Each tile has a margin of other pixels that may influence it, and instance normalization uses the
statistics of the whole image. A first estimate of them comes from a reduced copy of the image. Each pass over all tiles
measures the statistics that the image has with the current estimate, and their difference from those of the copy. The
copy, corrected by these differences, gives the next estimate. One pass makes the statistics of the first normalization
exact, two passes those of the first two, and so on; usually, a few passes are enough for all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cyclegan.config.data import MIN_SIDE
from cyclegan.images.image import row_blocks
from cyclegan.images.value_range import from_float, to_float
from cyclegan.inference.conversions import MIN_TILE
from cyclegan.networks.normalization import PYTORCH_EPSILON as EPSILON  # as in `call_with_moments`

MARGINS = 3  # times the reach of a network, at least, in a tile with margins
TOLERANCE = 0.01  # of the statistics; images then differ by less than a level of 255; see `_change`

BAND = 4  # times the pixels of a tile, in a row of tiles

Moments = Sequence[np.ndarray]  # of each instance normalization: [mean, variance] or [shift, ratio], [2, C]
Progress = Callable[[str], None]  # called before each tile, with a text such as "pass 2, tile 3 of 12"


class Network(NamedTuple):
    """A generator, as tiles need it."""

    call: Callable[[np.ndarray], Any]  # from [N, H, W, C] to float32 [N, H, W, C'] in [-1, 1], an array or a tensor
    measure: Callable[..., tuple[Any, Sequence[Any]]]  # see `normalization.call_with_moments`
    widths: Sequence[int]  # channels of each instance normalization
    channels: int  # of translations
    multiple: int  # pixels by which the sides of the input must be divisible
    reach: int  # pixels around an output pixel that may influence it


class Span(NamedTuple):
    """Part of a side: rows or columns of a tile."""

    start: int
    stop: int
    core: tuple[int, int]  # without the margins, relative to `start`: the cores divide the side
    weights: np.ndarray  # of the pixels; the weights of all tiles add up to 1


def translate(images: np.ndarray, network: Network, tile: int, progress: Progress = lambda _: None) -> np.ndarray:
    """Translate images of any size.

    Args:
        images: uint8, uint16, or float32 in [-1, 1]: [N, h, w, C]. The result has the same type.
        network: The generator.
        tile: Side in pixels of the largest square that is translated at once; at least `conversions.MIN_TILE`. Images
            of more pixels are translated in tiles.
        progress: See `Progress`. An error that it raises ends the translation.
    """
    height, width = images.shape[1:3]
    if height * width <= tile**2:
        (top, bottom), (left, right) = (_padding(side, network.multiple) for side in (height, width))
        padded = np.pad(images, ((0, 0), (top, bottom), (left, right), (0, 0)), mode="reflect")
        return _to_type(np.asarray(network.call(padded))[:, top : top + height, left : left + width], images.dtype)
    result = np.empty((*images.shape[:3], network.channels), images.dtype)
    for image, translated in zip(images, result):
        top = 0
        for rows in TiledImage(image.__getitem__, (height, width), network, tile, progress).translate():
            translated[top : top + len(rows)] = rows
            top += len(rows)
    return result


class TiledImage:
    """An image whose rows are read as they are needed, mirrored at its edges to sides that the network accepts.

    Args:
        read: Function that returns rows of the image, [rows, w, C], of the types of `translate`. It is called for at
            most `tile` rows at a time, in each pass again.
        size: Height and width of the image.
        network: The generator.
        tile: See `translate`. Tiles of wide images are lower and wider, with as many pixels: the rows in memory have at
            most `BAND` times as many, unless the image is so wide that tiles of 512 rows, or of the margins, have more.
        progress: See `translate`.
    """

    def __init__(
        self,
        read: Callable[[slice], np.ndarray],
        size: tuple[int, int],
        network: Network,
        tile: int,
        progress: Progress = lambda _: None,
    ) -> None:
        self._read, self._size, self._network, self._tile, self._progress = read, size, network, tile, progress
        paddings = [_padding(side, network.multiple) for side in size]
        self._offsets = [before for before, _ in paddings]
        # The row or column of the image at each row or column of the padded image.
        self._indices = [np.pad(np.arange(side), padding, "reflect") for side, padding in zip(size, paddings)]
        self._fades = not has_margins(network.reach, tile)
        least = tile if self._fades else max(MIN_TILE, MARGINS * network.reach)
        self._rows = rows = min(tile, max(least, BAND * tile**2 // size[1]))
        self._spans = [
            make_spans(len(indices), side, network.multiple, network.reach)
            for indices, side in zip(self._indices, (rows, tile**2 // rows))
        ]
        self._measured: list[np.ndarray] = []  # by the last pass over all tiles

    def translate(self) -> Iterator[np.ndarray]:
        """Yield the rows of the translation from top to bottom, some at a time: [any number, w, C']."""
        yield from self._translate(self._find_moments())

    def _find_moments(self) -> list[np.ndarray]:
        """Return mean and variance over the whole image of the input of each instance normalization."""
        network = self._network
        if not network.widths:
            return []
        small = self._reduce()
        corrections = [np.stack([np.zeros(width), np.ones(width)]) for width in network.widths]
        own, moments = self._correct(small, corrections)
        for number, _ in enumerate(network.widths, 1):
            for _ in self._tiles(moments, f"pass {number}"):
                pass
            corrections = [_compare(*each) for each in zip(self._measured, own)]
            change = max(_change(*each) for each in zip(self._measured, moments))
            own, moments = self._correct(small, corrections)
            if not change > TOLERANCE:
                break
        return moments

    def _correct(self, small: np.ndarray, corrections: Moments) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the moments of the reduced image in the network, and after correction."""
        core = (0, small.shape[1], 0, small.shape[2])
        _, both = self._network.measure(small, [each.astype(np.float32) for each in corrections], core, True)
        return [np.asarray(each)[:2] for each in both], [np.asarray(each)[2:] for each in both]

    def _reduce(self) -> np.ndarray:
        """Return the image reduced to at most about tile x tile pixels, by averages: float32 [1, H, W, C]."""
        height, width = self._size
        factor = math.ceil(math.sqrt(height * width) / self._tile)
        step = max(1, self._rows // factor) * factor
        parts = []
        for top in range(0, height, step):
            rows = self._read(slice(top, min(top + step, height)))
            highest = 1 if rows.dtype == np.float32 else np.iinfo(rows.dtype).max
            averages = _average(_average(rows, factor, 0), factor, 1)
            parts.append(averages if highest == 1 else averages / np.float32(highest / 2) - 1)
        small = np.concatenate(parts)
        paddings = (*(_padding(side, self._network.multiple) for side in small.shape[:2]), (0, 0))
        return np.pad(small, paddings, "reflect")[None]

    def _translate(self, moments: Moments) -> Iterator[np.ndarray]:
        """Translate all tiles with given moments; yield the rows of the image from top to bottom."""
        (height, width), (above, before), across = self._size, self._offsets, self._spans[1]
        starts = [*(span.start for span in self._spans[0]), len(self._indices[0])]
        total = np.zeros((0, len(self._indices[1]), self._network.channels), np.uint8)
        for rows, columns, output, dtype in self._tiles(moments, "last pass"):
            if columns is across[0]:
                waiting = total  # rows that these tiles share with the tiles above
                total = np.zeros((rows.stop - rows.start, *waiting.shape[1:]), np.float32 if self._fades else dtype)
                total[: len(waiting)] = waiting
            part = total[:, columns.start : columns.stop]
            if self._fades:
                part += output * (rows.weights[:, None] * columns.weights)[..., None]
            else:
                core = slice(*rows.core), slice(*columns.core)
                part[core] = _to_type(output[core], dtype)
            if columns is across[-1]:
                done = next(start for start in starts if start > rows.start) - rows.start
                inside = slice(max(above - rows.start, 0), max(min(above + height - rows.start, done), 0))
                yield _to_type(total[inside, before : before + width], dtype)
                total = total[done:].copy()  # frees the rest

    def _tiles(self, moments: Moments, title: str) -> Iterator[tuple[Span, Span, np.ndarray, np.dtype]]:
        """Yield rows, columns and translation, float32, of each tile, and the type of the image.

        At the end, `_measured` has the moments of the whole image.
        """
        network, given = self._network, [each.astype(np.float32) for each in moments]
        sums = [np.zeros((2, channels)) for channels in network.widths]
        spans = [*itertools.product(*self._spans)]
        for number, (rows, columns) in enumerate(spans, 1):
            self._progress(f"{title}, tile {number} of {len(spans)}")
            if columns is self._spans[1][0]:
                indices = self._indices[0][rows.start : rows.stop]
                band = self._read(slice(indices.min(), indices.max() + 1))
            pixels = band[np.ix_(indices - indices.min(), self._indices[1][columns.start : columns.stop])]
            core = (*rows.core, *columns.core)
            floats = pixels if pixels.dtype == np.float32 else to_float(pixels)
            output, measured = network.measure(floats[None], given, core, False)
            for each, (mean, variance) in zip(sums, (np.asarray(one)[:2].astype(np.float64) for one in measured)):
                each += (core[1] - core[0]) * (core[3] - core[2]) * np.stack([mean, variance + mean**2])
            yield rows, columns, np.asarray(output)[0], band.dtype
        means = [each / (len(self._indices[0]) * len(self._indices[1])) for each in sums]
        self._measured = [np.stack([mean, np.maximum(square - mean**2, 0)]) for mean, square in means]


def _average(pixels: np.ndarray, count: int, axis: int) -> np.ndarray:
    """Return averages of each `count` rows or columns, float32; the last may be of fewer."""
    starts = np.arange(0, pixels.shape[axis], count)
    counts = np.diff([*starts, pixels.shape[axis]]).astype(np.float32)
    return np.add.reduceat(pixels, starts, axis, np.float32) / (counts[:, None, None] if axis == 0 else counts[:, None])


def _compare(image: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return what turns the moments of `other` into those of `image`: a shift in standard deviations, and a ratio."""
    return np.stack([(image[0] - other[0]) / np.sqrt(other[1] + EPSILON), (image[1] + EPSILON) / (other[1] + EPSILON)])


def _change(measured: np.ndarray, used: np.ndarray) -> float:
    """Return the largest difference between moments, about in standard deviations."""
    shift, ratio = _compare(measured, used)
    return max(np.abs(shift).max(), np.abs(np.log(ratio)).max() / 2)


def _padding(side: int, multiple: int) -> tuple[int, int]:
    """Return the numbers of pixels (before, after) that make a side acceptable to the network."""
    missing = math.ceil(max(side, MIN_SIDE) / multiple) * multiple - side
    return missing // 2, missing - missing // 2


def _to_type(images: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return images as levels of a type, if they are floats and it is not."""
    if images.dtype == dtype:
        return images
    result = np.empty(images.shape, dtype)
    for block in row_blocks(images.shape):
        result[block] = from_float(images[block], dtype)
    return result


def has_margins(reach: int, tile: int) -> bool:
    """Return whether tiles can have margins of all pixels that influence the rest of the tile."""
    return reach <= tile // MARGINS


def make_spans(length: int, tile: int, multiple: int, reach: int) -> list[Span]:
    """Divide a side into spans of at most `tile` pixels, which start at multiples of `multiple`, as the side is.

    Each tile has margins of `reach` pixels that are left out of the result, so that the rest is exact. If the reach is
    too large for that, as of U-Nets in small tiles, the margins are a quarter of a tile, and neighboring tiles fade
    into each other.
    """
    exact = has_margins(reach, tile)
    unit = max(4, multiple // 2)  # two margins are a multiple of `multiple`
    margin = (math.ceil(reach / unit) if exact else tile // 4 // unit) * unit
    step = tile // multiple * multiple - 2 * margin
    starts = range(0, max(length - 2 * margin, 1), step) if length > tile else range(1)
    rising = (np.arange(2 * margin, dtype=np.float32) + 0.5) / (2 * margin)
    rising = np.rint(rising) if exact else rising
    spans = []
    for start in starts:
        stop = min(start + step + 2 * margin, length) if length > tile else length
        weights = np.ones(stop - start, np.float32)
        if start:
            weights[: 2 * margin] = rising
        if stop < length:
            weights[-2 * margin :] = 1 - rising
        core = (margin if start else 0, stop - start - (margin if stop < length else 0))
        spans.append(Span(start, stop, core, weights))
    return spans
