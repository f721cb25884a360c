"""Many pictures from files: found, looked at, decoded several at a time, within the memory there is; no TensorFlow."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import os

import numpy as np
import tqdm
from PIL import UnidentifiedImageError

from cyclegan.data import memory
from cyclegan.errors import UserError, printable
from cyclegan.images import geometry, reader

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff")
LISTED = 10  # at most so many files are named in an error
AHEAD = 64  # pictures that are waited for at the same time: what they take in memory is bounded


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """The pictures of one domain and split.

    `images`: an array [N, h, w, C], or a stand-in for one that is read picture by picture, see `ImageFiles.shape`; `names`: N
    texts; `lengths`: of their files, in bytes, int64 [N].
    """

    images: object
    names: list
    lengths: np.ndarray

    def __len__(self):
        return len(self.names)


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """The files of one domain and split, and what is made of them.

    `split`: its name; `sources`: N of what `reader.decode` reads; `looked`: [N], what `look` found; `sizes`: int [N, 2], heights
    and widths that the pictures are resized to, in pixels; `channels` and `dtype`: see `reader.decode`.
    """

    split: str
    sources: list
    looked: np.ndarray
    sizes: np.ndarray
    channels: int = 3
    dtype: type = np.uint8

    @property
    def shape(self):
        """(N, height, width, channels), with `None` for a height and width that are not the same for all."""
        same = (self.sizes == self.sizes[0]).all()
        return (len(self.sources), *(map(int, self.sizes[0]) if same else (None, None)), self.channels)

    @property
    def nbytes(self):
        """What the decoded pictures take."""
        return int(self.sizes.prod(axis=1, dtype=np.int64).sum()) * self.channels * np.dtype(self.dtype).itemsize

    def pixels(self, i):
        """The picture `i`: dtype [height, width, channels], as its own entry of `sizes` says.

        Raises:
            Broken: it does not decode, or is not what it was when it was looked at.
        """
        with _named(name_of(self.sources[i], self.split, i)):
            picture = reader.decode(self.sources[i], self.channels, self.dtype)
            height, width, *_ = picture.shape
            if (height, width) != (self.looked["height"][i], self.looked["width"][i]):
                raise ValueError(f"it has {width} x {height} pixels, and had others when training was started")
            return geometry.resize(picture, tuple(self.sizes[i]))


class RaggedArray:
    """Pictures in memory, each of its own size: looks like an array of `shape` (see `ImageFiles.shape`) and `dtype`."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self._pictures = [None] * shape[0]

    def __len__(self):
        return len(self._pictures)

    def __getitem__(self, i):
        return self._pictures[i]

    def __setitem__(self, i, picture):
        self._pictures[i] = picture


class UnreadableImage(Exception):
    """A picture does not decode. The text is its name and the reason, one printable line."""


def find(folder):
    """The picture files below a folder, as sorted paths relative to it; hidden files and folders are left out.

    Linked folders are followed, each folder once.

    Raises:
        UserError: a folder can't be read.
    """

    def refuse(error):
        raise UserError(f"{printable(error.filename)}: {error.strerror}; expected a folder that can be read") from error

    found, seen = [], set()
    for where, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        real = os.path.realpath(where)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__MACOSX")) and os.path.realpath(os.path.join(where, name)) not in seen
        ]
        below = os.path.relpath(where, folder)
        found += [
            name if below == os.curdir else os.path.join(below, name)
            for name in files
            if name.lower().endswith(ENDINGS) and not name.startswith(".") and os.path.isfile(os.path.join(where, name))
        ]
    return sorted(found)


@contextlib.contextmanager
def _named(name):
    try:
        yield
    except Exception as error:  # Pillow's decoders raise almost anything on a damaged file
        reason = "not a picture" if isinstance(error, UnidentifiedImageError) else error
        raise UnreadableImage(printable(f"{name} ({reason or type(error).__name__})")) from error


def look(sources, channels, bars=False):
    """Looks at all without decoding them (see `reader.check`), several at a time.

    Args:
        sources: dict of lists of what `reader.decode` reads, by split.
        channels: dict of numbers, by split.
        bars: show a progress bar.

    Returns:
        Dict of arrays [N] of `reader.FACTS_DTYPE`, by split.

    Raises:
        UserError: some do not decode, by what is seen of them; at most ten are named.
    """
    looked = {split: np.zeros(len(part), reader.FACTS_DTYPE) for split, part in sources.items()}

    def look_at(split, i):
        with _named(name_of(sources[split][i], split, i)):
            looked[split][i] = reader.check(sources[split][i], channels[split])

    _for_each(sources, look_at, "Looking", bars)
    return looked


def read(files, bars=False):
    """Decodes all, several at a time.

    Args:
        files: dict of `ImageFiles`, by split.
        bars: show a progress bar.

    Returns:
        Dict of arrays [N, h, w, C], or of `RaggedArray`, by split.

    Raises:
        UserError: some do not decode (at most ten are named), or all together do not fit into the memory.
    """
    check_memory(files)
    images = {
        split: (RaggedArray if None in part.shape else np.empty)(part.shape, part.dtype)
        for split, part in files.items()
    }

    def read_one(split, i):
        images[split][i] = files[split].pixels(i)

    _for_each({split: part.sources for split, part in files.items()}, read_one, "Decoding", bars)
    return images


def _for_each(sources, function, title, bars):
    """Calls function(split, i) for each of `sources`, a dict of lists by split.

    Raises:
        UserError: it raised `UnreadableImage` for some, of which at most ten are named.
    """
    broken = []

    def try_one(split, i):
        try:
            function(split, i)
        except UnreadableImage as error:
            broken.append(str(error))

    total = sum(map(len, sources.values()))
    bar = tqdm.tqdm(desc=title, total=total, unit=" images", disable=not bars or None, leave=False)
    with bar, concurrent.futures.ThreadPoolExecutor() as pool:
        running = collections.deque()
        for split, part in sources.items():
            for i in range(len(part)):
                if len(running) == AHEAD:
                    running.popleft().result()
                    bar.update()
                running.append(pool.submit(try_one, split, i))
        for future in running:
            future.result()
            bar.update()
    if broken:
        names = "; ".join(sorted(broken)[:LISTED])
        more = f" and {len(broken) - LISTED} more" if len(broken) > LISTED else ""
        raise UserError(
            f"{len(broken)} of {total} pictures can't be used; repair or remove them, or ask for what they are: {names}{more}"
        )


def name_of(source, split, i):
    """What an error calls the picture `i` of a split: its path, where it has one."""
    return str(source) if isinstance(source, (str, os.PathLike)) else f"{split}[{i}]"


def bytes_needed(files):
    """How much memory the decoded pictures of a dict of `ImageFiles` take."""
    return sum(part.nbytes for part in files.values())


def check_memory(files, processes=1):
    """Refuses what would not fit.

    Args:
        files: dict of `ImageFiles`, by split.
        processes: how many keep them, each for itself.

    Raises:
        UserError: the decoded pictures need more memory than is free.
    """
    needed, free = bytes_needed(files), memory.free()
    if needed * processes > free:
        each = f" for each of {processes} workers" if processes > 1 else ""
        raise UserError(
            f"the decoded pictures need {needed / 1e9:.1f} GB of memory{each}, {free / 1e9:.1f} GB are free:"
            " expected less; use --cache disk, fewer pictures (--max_dataset_size) or a smaller --load_size"
        )
