"""Checking and decoding of many image files, on all cores and within the free memory, before training or when used."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import pathlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import psutil

from cyclegan import terminal
from cyclegan.config.data import ValueRange
from cyclegan.errors import TrainingError, UserError, first_line, printable
from cyclegan.images import geometry, reader
from cyclegan.images.image import ShapeOfImages
from cyclegan.images.reader import Source

Item = TypeVar("Item")
MAX_NAMED = 10  # images that an error names
UINT8 = np.dtype(np.uint8)
PROC = pathlib.Path("/proc")
CGROUP = pathlib.Path("/sys/fs/cgroup")
# Files of a control group: its limit, its use, and the entry of memory.stat for cached files, which can be freed.
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
VERSION_2 = ("memory.max", "memory.current", "inactive_file")


class UnreadableImageError(Exception):
    """An image cannot be decoded. The arguments, and the text, are its name and the reason, in one printable line."""

    def __str__(self) -> str:
        return "{} ({})".format(*self.args)


@dataclasses.dataclass(eq=False)
class ImageFiles:
    """Image files of one domain and split, decoded when they are used; an array [N, h, w, C] to any thread.

    Attributes:
        failure: Text of the first error; `None` if all images could be read.
    """

    split: str
    sources: Sequence[Source]  # paths, or contents of files; N of them
    facts: np.ndarray  # from the headers: `reader.FACTS_DTYPE` [N]
    sizes: np.ndarray  # height and width in pixels to which each image is resized: int [N, 2]
    channels: int = 3  # 1 for gray, 3 for RGB, otherwise the bands of the files; see `reader.decode`
    dtype: np.dtype = UINT8  # or uint16
    value_range: ValueRange | None = None  # values of the files that become the lowest and the highest level
    names: Sequence[str] = ()
    keep: bool = False  # decoded images in memory
    nodata: float | None = None  # value of pixels without data, in files that name none
    is_mask: bool = False  # whether images are decoded by `reader.decode_mask`
    masks: ImageFiles | None = None  # of these images, with their sizes

    def __post_init__(self) -> None:
        self.failure: str | None = None
        self._kept: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.sources)

    @functools.cached_property
    def shape(self) -> ShapeOfImages:
        """(N, height, width, channels); height and width are `None` if they differ between the images."""
        same = (self.sizes == self.sizes[0]).all()
        height, width = map(int, self.sizes[0]) if same else (None, None)
        return len(self), height, width, self.channels

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded images."""
        return int(self.sizes.prod(axis=1, dtype=np.int64).sum()) * self.channels * self.dtype.itemsize

    def __getitem__(self, index: int) -> np.ndarray:
        """Return an image, [h, w, C]; raise `TrainingError` if it cannot be decoded."""
        try:
            return self.load(range(len(self))[index])
        except UnreadableImageError as error:
            text = f"an image cannot be decoded: {error}; repair it or put it back, then the same command resumes"
            self.failure = self.failure or text
            raise TrainingError(text) from error

    def resized(self, sizes: np.ndarray) -> ImageFiles:
        """Return the same images, and masks, in other heights and widths: int [N, 2]."""
        return dataclasses.replace(self, sizes=sizes, masks=self.masks and self.masks.resized(sizes))

    def load(self, index: int) -> np.ndarray:
        """Return an image, decoded and resized; raise `UnreadableImageError` if it cannot be decoded."""
        if index in self._kept:
            return self._kept[index]
        with naming_image(self.sources[index], self.split, index):
            if self.is_mask:
                image = reader.decode_mask(self.sources[index])
            else:
                image = reader.decode(self.sources[index], self.channels, self.dtype, self.value_range, self.nodata)
            height, width, _ = image.shape
            if (height, width) != (self.facts["height"][index], self.facts["width"][index]):
                raise ValueError(f"it has {width} x {height} pixels, but had another size when training started")
            image = geometry.resize(image, tuple(self.sizes[index]), self.is_mask)
        if self.keep:
            self._kept[index] = image
        return image


def check_files(
    sources: Mapping[str, Sequence[Source]],
    channels: Mapping[str, int],
    bars: bool = False,
    ranged: Collection[str] = (),
) -> dict[str, np.ndarray]:
    """Check the headers and the ends of image files (see `reader.check`), several at a time.

    The images of the splits `ranged` have a value range.

    Returns:
        Facts about the images by split: `reader.FACTS_DTYPE` [N].
    """
    facts = {split: np.zeros(len(part), reader.FACTS_DTYPE) for split, part in sources.items()}

    def check(item: tuple[str, int]) -> None:
        split, index = item
        with naming_image(sources[split][index], split, index):
            facts[split][index] = reader.check(sources[split][index], channels[split], split in ranged)

    items = [(split, index) for split, part in sources.items() for index in range(len(part))]
    for_each(items, check, "Checking", bars)
    return facts


def decode_all(parts: Sequence[ImageFiles], bars: bool = False) -> None:
    """Decode images, several at a time, and keep them in memory. No file stays open."""
    for part in parts:
        part.keep = True
    items = [(part, index) for part in parts for index in range(len(part))]
    for_each(items, lambda item: item[0].load(item[1]), "Decoding", bars)
    reader.close_files()


def for_each(items: Sequence[Item], function: Callable[[Item], object], title: str, bars: bool) -> None:
    """Call a function of an image for each item, several at a time.

    Raises:
        UserError: The function raised `UnreadableImageError` for some items; the text names at most ten.
    """
    found: dict[str, set[str]] = {}  # names by the reason

    def call(item: Item) -> None:
        try:
            function(item)
        except UnreadableImageError as error:
            name, reason = error.args
            found.setdefault(reason, set()).add(name)

    bar = terminal.progress_bar(bars, desc=title, total=len(items), unit=" images", leave=False)
    threads = min(32, available_cores() + 4)  # Python's default, for the cores of this process
    with bar, concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(call, items):
            bar.update()
    if found:
        advice = "expected readable ones: repair or remove them"
        if any("--" in reason for reason in found):
            advice = "expected ones that fit the flags: set the named flags, or repair or remove the files"
        shown, number = max(1, MAX_NAMED // len(found)), sum(map(len, found.values()))
        texts = sorted(f"{_some(sorted(names), shown)} ({reason})" for reason, names in found.items())
        raise UserError(f"{number} of {len(items)} images cannot be used; {advice}: {_some(texts, MAX_NAMED, '; ')}")


def _some(texts: Sequence[str], shown: int, separator: str = ", ") -> str:
    """Return the first texts, and the number of the others."""
    return separator.join(texts[:shown]) + (f" and {len(texts) - shown} more" if len(texts) > shown else "")


def sizes_of(facts: np.ndarray) -> np.ndarray:
    """Return the heights and widths of images in pixels, int [N, 2], from their `reader.FACTS_DTYPE`."""
    return np.stack([facts["height"], facts["width"]], axis=1)


@contextlib.contextmanager
def naming_image(source: Source, split: str, index: int) -> Iterator[None]:
    """Turn every error into an `UnreadableImageError` with the name of the image, and the flags of its domain alone."""
    name = f"{split}[{index}]" if isinstance(source, bytes) else f"{source}"
    try:
        yield
    except Exception as error:  # the libraries raise almost anything for a damaged file
        reason, domain = first_line(error), {"A": "x", "B": "y"}.get(split[-1:])
        if domain:
            reason = re.sub(r"--(\w+)_x(,| or) --\1_y", rf"--\1_{domain}", reason)
        raise UnreadableImageError(printable(name), printable(reason)) from error


def available_cores() -> int:
    """Return the number of CPU cores that this process may use, which a batch system may limit."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_bytes() -> int:
    """Return the bytes of memory that this process may still take."""
    return max(0, min([psutil.virtual_memory().available, *_free_in_control_groups()]))


def _free_in_control_groups() -> Iterator[int]:
    """Yield the free bytes of each control group of this process that has a limit; psutil does not know them."""
    for line in (PROC / "self/cgroup").read_text().splitlines() if (PROC / "self/cgroup").exists() else ():
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = CGROUP / "memory" if controllers else CGROUP
        limit, used, cached = VERSION_1 if controllers else VERSION_2
        folder = root / group.strip("/")
        for each in (folder, *folder.parents):  # a container may hide some of them
            with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
                left = int((each / limit).read_text()) - int((each / used).read_text())
                stat = dict(line.split() for line in (each / "memory.stat").read_text().splitlines())
                yield left + int(stat.get(cached, 0))
