"""Checking and decoding of many image files, several at a time."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tqdm
from PIL import UnidentifiedImageError

from cyclegan import terminal
from cyclegan.config.data import ValueRange
from cyclegan.data import memory
from cyclegan.data.ragged_array import RaggedArray
from cyclegan.errors import MissingPackageError, UserError, printable
from cyclegan.images import geometry, reader
from cyclegan.images.image_array import ShapeOfImages
from cyclegan.images.reader import Source
from cyclegan.images.value_range import check_numbers

MAX_NAMED = 10  # images that an error names
MAX_SAMPLED = 200  # images whose values are sampled
SAMPLED_VALUES = 20_000  # of each of them
MAX_PENDING = 64  # images that are read ahead; bounds their memory


class UnreadableImageError(Exception):
    """An image cannot be decoded. The text is its name and the reason, one printable line."""


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """Image files of one domain and split, and how to decode them.

    Attributes:
        split: Name of the split.
        sources: Paths, or contents of files; N of them.
        facts: Facts from the headers: `reader.FACTS_DTYPE` [N].
        sizes: Height and width in pixels to which each image is resized: int [N, 2].
        channels: Number of channels, see `reader.decode`.
        dtype: `np.uint8` or `np.uint16`.
        value_range: Values of the files that become the lowest and the highest level, see `reader.decode`.
    """

    split: str
    sources: Sequence[Source]
    facts: np.ndarray
    sizes: np.ndarray
    channels: int = 3
    dtype: np.dtype | type = np.uint8
    value_range: ValueRange | None = None

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
        """Decode and resize an image: dtype [height, width, channels].

        Raises:
            UnreadableImageError: The image cannot be decoded, or has another size than when its header was checked.
        """
        with _named(_name(self.sources[index], self.split, index)):
            image = reader.decode(self.sources[index], self.channels, self.dtype, self.value_range)
            height, width, _ = image.shape
            if (height, width) != (self.facts["height"][index], self.facts["width"][index]):
                raise ValueError(f"it has {width} x {height} pixels, but had another size when training started")
            return geometry.resize(image, tuple(self.sizes[index]))


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

    Raises:
        UserError: Some images cannot be decoded; the text names at most ten.
    """
    facts = {split: np.zeros(len(part), reader.FACTS_DTYPE) for split, part in sources.items()}

    def check(split: str, index: int) -> None:
        with _named(_name(sources[split][index], split, index)):
            facts[split][index] = reader.check(sources[split][index], channels[split], split in ranged)

    for_each_image(sources, check, "Checking", bars)
    return facts


def sample_values(
    sources: Sequence[Source], channels: int, bars: bool = False, skip_unreadable: bool = False
) -> np.ndarray:
    """Return values of random pixels of some images, which lie at equal distances in `sources`.

    Args:
        sources: Paths or contents of files.
        channels: See `reader.decode`.
        bars: Whether to show a progress bar.
        skip_unreadable: Whether to leave out images that cannot be decoded.

    Returns:
        float64 [number of images, values of an image].

    Raises:
        UserError: Some images cannot be decoded; the text names at most ten.
    """
    indices = np.unique(np.linspace(0, len(sources) - 1, MAX_SAMPLED).round().astype(int))
    values = np.full((len(indices), SAMPLED_VALUES), np.nan)
    skipped = (UnreadableImageError,) if skip_unreadable else ()

    def sample(split: str, position: int) -> None:
        index = indices[position]
        with contextlib.suppress(*skipped), _named(_name(sources[index], split, index)):
            pixels = reader.decode_values(sources[index], channels).pixels
            chosen = np.random.default_rng(index).integers(0, pixels.size, SAMPLED_VALUES)
            values[position] = check_numbers(pixels.flat[chosen])

    for_each_image({"image": [sources[index] for index in indices]}, sample, "Sampling values", bars)
    return values[~np.isnan(values[:, 0])]


def decode_all(files: Mapping[str, ImageFiles], bars: bool = False) -> dict[str, np.ndarray | RaggedArray]:
    """Decode all images, several at a time.

    Args:
        files: Image files by split.
        bars: Whether to show a progress bar.

    Returns:
        The images by split: [N, h, w, C], or a `RaggedArray` if their sizes differ.

    Raises:
        UserError: Some images cannot be decoded (the text names at most ten), or do not fit into the memory.
    """
    check_memory(files)
    images: dict[str, Any] = {
        split: (RaggedArray if None in part.shape else np.empty)(part.shape, part.dtype)
        for split, part in files.items()
    }

    def decode(split: str, index: int) -> None:
        images[split][index] = files[split].decode(index)

    for_each_image({split: part.sources for split, part in files.items()}, decode, "Decoding", bars)
    return images


def decoded_bytes(files: Mapping[str, ImageFiles]) -> int:
    """Return the bytes of memory that the decoded images of all splits take."""
    return sum(part.nbytes for part in files.values())


def check_memory(files: Mapping[str, ImageFiles], processes: int = 1) -> None:
    """Check that the decoded images fit into the free memory.

    Args:
        files: Image files by split.
        processes: Number of processes on this machine, each of which keeps all images.

    Raises:
        UserError: They do not fit.
    """
    needed, free = decoded_bytes(files), memory.free_bytes()
    if needed * processes > free:
        each = f" for each of {processes} workers" if processes > 1 else ""
        raise UserError(
            f"the decoded images need {needed / 1e9:.1f} GB of memory{each}, but only {free / 1e9:.1f} GB are free; expected"
            " enough: use --cache disk, fewer images (--max_dataset_size) or a smaller --load_size"
        )


def for_each_image(
    sources: Mapping[str, Sequence[Any]], function: Callable[[str, int], None], title: str, bars: bool
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
    with bar, concurrent.futures.ThreadPoolExecutor() as pool:
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
    """Return (height, width) in pixels of each image with these fields: int [N, 2]."""
    return np.stack([facts["height"], facts["width"]], axis=1)


def describe_error(error: Exception) -> str:
    """Return why an image cannot be decoded."""
    return "not an image" if isinstance(error, UnidentifiedImageError) else str(error) or type(error).__name__


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Turn every error into an `UnreadableImageError` with the name of the image."""
    try:
        yield
    except MissingPackageError as error:
        raise MissingPackageError(printable(f"{name}: {error}")) from error
    except Exception as error:  # the libraries raise almost anything for a damaged file
        raise UnreadableImageError(printable(f"{name} ({describe_error(error)})")) from error


def _name(source: Source, split: str, index: int) -> str:
    """Return the name of an image for errors: its path if it has one."""
    return f"{split}[{index}]" if isinstance(source, bytes) else os.fspath(source)
