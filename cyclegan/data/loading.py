"""Checking and decoding of many image files, several at a time, before training or when they are used."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized

import numpy as np
import tqdm

from cyclegan import terminal
from cyclegan.config.data import ValueRange
from cyclegan.data import machine
from cyclegan.errors import TrainingError, UserError, printable
from cyclegan.images import geometry, reader
from cyclegan.images.image import ShapeOfImages
from cyclegan.images.reader import Source

MAX_NAMED = 10  # images that an error names
MAX_PENDING = 64  # images that are read ahead; bounds their memory


class UnreadableImageError(Exception):
    """An image cannot be decoded. The text is its name and the reason, one printable line."""


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """Image files of one domain and split, and how to decode them."""

    split: str
    sources: Sequence[Source]  # paths, or contents of files; N of them
    facts: np.ndarray  # from the headers: `reader.FACTS_DTYPE` [N]
    sizes: np.ndarray  # height and width in pixels to which each image is resized: int [N, 2]
    channels: int = 3  # see `reader.decode`, for the value range, too
    dtype: np.dtype | type = np.uint8  # or np.uint16
    value_range: ValueRange | None = None  # values of the files that become the lowest and the highest level

    @property
    def shape(self) -> ShapeOfImages:
        """(N, height, width, channels); height and width are `None` if they differ between the images."""
        same = (self.sizes == self.sizes[0]).all()
        height, width = map(int, self.sizes[0]) if same else (None, None)
        return len(self.sources), height, width, self.channels

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded images."""
        return int(self.sizes.prod(axis=1, dtype=np.int64).sum()) * self.channels * np.dtype(self.dtype).itemsize

    def decode(self, index: int) -> np.ndarray:
        """Decode and resize an image: dtype [height, width, channels]."""
        with named(self.sources[index], self.split, index):
            image = reader.decode(self.sources[index], self.channels, self.dtype, self.value_range)
            height, width, _ = image.shape
            if (height, width) != (self.facts["height"][index], self.facts["width"][index]):
                raise ValueError(f"it has {width} x {height} pixels, but had another size when training started")
            return geometry.resize(image, tuple(self.sizes[index]))

    def lazy(self, keep: bool = False) -> LazyImages:
        """Return the images, decoded when they are used, and kept in memory from then on with `keep`."""
        return LazyImages(self.decode, self.shape, self.dtype, keep)


class LazyImages:
    """Images that are decoded when they are used. They are indexed like an array [N, h, w, C], from any thread.

    Args:
        decode: Function from an index to an image. The texts of its errors name the image and the reason.
        shape: (N, h, w, C); h and w are `None` if they differ between the images.
        dtype: Type of the pixels.
        keep: Whether to keep decoded images in memory.
    """

    def __init__(
        self, decode: Callable[[int], np.ndarray], shape: ShapeOfImages, dtype: np.dtype | type, keep: bool = False
    ) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.failure: str | None = None  # text of the first error
        self._decode = decode
        self._kept: list[np.ndarray | None] | None = [None] * len(self) if keep else None

    def __len__(self) -> int:
        """Return the number of images."""
        return self.shape[0]

    def __getitem__(self, index: int) -> np.ndarray:
        """Return an image, [h, w, C]; raise `TrainingError` if it cannot be decoded."""
        index = range(len(self))[index]
        try:
            return self.load(index)
        except Exception as error:  # every error ends training, and has to name the image
            text = f"an image cannot be decoded: {error}; repair it or put it back, then the same command resumes"
            self.failure = self.failure or text
            raise TrainingError(text) from error

    def load(self, index: int) -> np.ndarray:
        """Return an image; raise the errors of the function that decodes it."""
        image = self._kept[index] if self._kept else None
        if image is None:
            image = self._decode(index)
            if self._kept:
                self._kept[index] = image
        return image


def check_files(
    sources: Mapping[str, Sequence[Source]],
    channels: Mapping[str, int],
    bars: bool = False,
    ranged: Collection[str] = (),
) -> dict[str, np.ndarray]:
    """Check the headers and the ends of image files (see `reader.check`), several at a time.

    Args:
        sources: Paths or contents of files, by split.
        channels: Number of channels, by split.
        bars: Whether to show a progress bar.
        ranged: Splits whose images have a value range.

    Returns:
        Facts about the images by split: `reader.FACTS_DTYPE` [N].
    """
    facts = {split: np.zeros(len(part), reader.FACTS_DTYPE) for split, part in sources.items()}

    def check(split: str, index: int) -> None:
        with named(sources[split][index], split, index):
            facts[split][index] = reader.check(sources[split][index], channels[split], split in ranged)

    for_each_image(sources, check, "Checking", bars)
    return facts


def decode_all(files: Mapping[str, ImageFiles], bars: bool = False) -> dict[str, LazyImages]:
    """Return the images of each split; decode all of them, several at a time, and keep them in memory."""
    check_memory(files)
    images = {split: part.lazy(keep=True) for split, part in files.items()}
    for_each_image(images, lambda split, index: images[split].load(index), "Decoding", bars)
    return images


def check_memory(files: Mapping[str, ImageFiles], processes: int = 1) -> None:
    """Check that the decoded images, which each of several processes keeps, fit into the free memory of this machine."""
    needed, free = sum(part.nbytes for part in files.values()), machine.free_bytes()
    if needed * processes > free:
        each = f" for each of {processes} workers" if processes > 1 else ""
        raise UserError(
            f"the decoded images need {needed / 1e9:.1f} GB of memory{each}, but only {free / 1e9:.1f} GB are free; expected"
            " enough: use --cache none, fewer images (--max_dataset_size) or a smaller --load_size"
        )


def for_each_image(
    sources: Mapping[str, Sized], function: Callable[[str, int], object], title: str, bars: bool
) -> None:
    """Call function(split, index) for each image of each split, several at a time.

    Raises:
        UserError: The function raised `UnreadableImageError` for some images; the text names at most ten.
    """
    unreadable: list[str] = []

    def call(split: str, index: int) -> None:
        try:
            function(split, index)
        except UnreadableImageError as error:
            unreadable.append(str(error))

    total = sum(map(len, sources.values()))
    delay = 0 if sys.stderr.isatty() else terminal.LOG_SECONDS  # a log shows slow passes only
    times = {"delay": delay, "mininterval": max(0.1, delay)}
    bar = tqdm.tqdm(desc=title, total=total, unit=" images", disable=not bars, leave=False, **times)
    threads = min(32, machine.available_cores() + 4)  # Python's default, for the cores of this process
    with bar, concurrent.futures.ThreadPoolExecutor(threads) as pool:
        pending: collections.deque[concurrent.futures.Future[None]] = collections.deque()
        for split, part in sources.items():
            for index in range(len(part)):
                if len(pending) == MAX_PENDING:
                    pending.popleft().result()
                    bar.update()
                pending.append(pool.submit(call, split, index))
        for future in pending:
            future.result()
            bar.update()
    if unreadable:
        names = "; ".join(sorted(unreadable)[:MAX_NAMED])
        more = f" and {len(unreadable) - MAX_NAMED} more" if len(unreadable) > MAX_NAMED else ""
        flags = ", or set the flags that are named" if "--" in names else ""
        raise UserError(
            f"{len(unreadable)} of {total} images cannot be used; expected readable ones: repair or remove them{flags}:"
            f" {names}{more}"
        )


def sizes_of(facts: np.ndarray) -> np.ndarray:
    """Return the heights and widths of images in pixels, int [N, 2], from their `reader.FACTS_DTYPE`."""
    return np.stack([facts["height"], facts["width"]], axis=1)


def describe_error(error: Exception) -> str:
    """Return why an image cannot be decoded."""
    return str(error) or type(error).__name__


@contextlib.contextmanager
def named(source: Source, split: str, index: int) -> Iterator[None]:
    """Turn every error into an `UnreadableImageError` with the name of the image."""
    name = f"{split}[{index}]" if isinstance(source, bytes) else os.fspath(source)
    try:
        yield
    except Exception as error:  # the libraries raise almost anything for a damaged file
        raise UnreadableImageError(printable(f"{name} ({describe_error(error)})")) from error
