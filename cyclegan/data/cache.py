"""Pictures that are decoded when they are asked for and kept from then on; no TensorFlow.

Nothing that is kept outlives the process, however that ends, and nothing is trusted that another one wrote.
"""

import errno
import math
import os
import tempfile
import threading
import weakref

import numpy as np

from cyclegan.errors import TrainingError

RESERVED = 2_000_000_000  # bytes that are left free on the disk: for checkpoints and the log
LOCKS = 64  # pictures that can be decoded at the same time, at most


class OnDemand:
    """Looks like an array [N, h, w, C] to those who take one picture at a time, from any thread.

    `failure` is the text of the first error of all, or `None`.

    Args:
        decode: a function from an index to a picture. The text of what it raises names the picture and the reason.
        shape: (N, h, w, C), with `None` for h and w if the pictures have sizes of their own.
        sizes: int [N, 2], the height and width of each, in pixels.
        dtype: of the pixels.
        store: the `Store` or `Memory` in which they are kept once they are decoded; `None` decodes them each time.
    """

    def __init__(self, decode, shape, sizes, dtype, store=None):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.failure = None
        self._decode = decode
        self._sizes = sizes
        self._store = store
        self._places = np.full(len(self) if store else 0, -1, np.int64)  # in the store; set when a picture is there
        self._locks = [threading.Lock() for _ in range(LOCKS)]

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, index):
        """The picture `index`: [h, w, C].

        Raises:
            TrainingError: it does not decode.
        """
        index = range(len(self))[index]
        if self._store is None:
            return self._decoded(index)
        picture = self._kept(index)
        if picture is None:
            with self._locks[index % LOCKS]:
                picture = self._kept(index)  # by now, perhaps
                if picture is None:
                    picture = self._decoded(index)
                    self._places[index] = self._store.write(picture)
        return picture

    def _kept(self, index):
        shape = (*map(int, self._sizes[index]), self.shape[3])
        place = self._places[index]
        kept = self._store.read(place, math.prod(shape) * self.dtype.itemsize) if place >= 0 else None
        return None if kept is None else np.frombuffer(kept, self.dtype).reshape(shape)

    def _decoded(self, index):
        try:
            return self._decode(index)
        except Exception as error:  # whatever it is, it ends training, and has to name the picture
            text = (
                f"a picture does not decode any more: {error}; repair it or put it back, then the same command resumes"
            )
            self.failure = self.failure or text
            raise TrainingError(text) from error


class Memory:
    """Keeps pictures as `Store` does, in memory. All methods may be called from any thread."""

    def __init__(self):
        self._kept = []
        self._lock = threading.Lock()

    def write(self, picture):
        """Keeps a picture, any array. Returns its place."""
        with self._lock:
            self._kept.append(np.ascontiguousarray(picture))
            return len(self._kept) - 1

    def read(self, place, length):
        """The bytes of a picture at a place that `write` returned; there are `length`."""
        return self._kept[place].data


class Store:
    """A file without a name, made when the first picture is written. All methods may be called from any thread.

    Args:
        folder: where it lies; it has to be there when the first picture is written.
        say: called once, with a text, when no more can be kept: the disk is full, say. Nothing is raised.
    """

    def __init__(self, folder, say):
        self.folder = folder
        self._say = say
        self._lock = threading.Lock()
        self._file = None  # its descriptor
        self._end = 0
        self._given_up = False

    def write(self, picture):
        """Keeps a picture, any array. Returns its place, or -1 if it is not kept."""
        if self._given_up:
            return -1
        rest = memoryview(np.ascontiguousarray(picture)).cast("B")
        try:
            with self._lock:
                if self._file is None:
                    self._file = self._make()
                place, self._end = self._end, self._end + len(rest)
            disk = os.fstatvfs(self._file)
            if disk.f_bavail * disk.f_frsize < RESERVED + len(rest):
                raise OSError(errno.ENOSPC, f"{RESERVED / 1e9:.0f} GB are left free for checkpoints")
            at = place
            while rest:
                written = os.pwrite(self._file, rest, at)
                rest, at = rest[written:], at + written
            return place
        except OSError as error:
            self._give_up(error)
            return -1

    def read(self, place, length):
        """The bytes of a picture at a place that `write` returned; `None` if they can't be read."""
        try:
            kept = os.pread(self._file, length, place)
        except OSError as error:
            self._give_up(error)
            return None
        return kept if len(kept) == length else None

    def _make(self):
        with tempfile.TemporaryFile(dir=self.folder, buffering=0) as file:
            descriptor = os.dup(file.fileno())
        # Not at the program's end, when threads may still read.
        weakref.finalize(self, os.close, descriptor).atexit = False
        return descriptor

    def _give_up(self, error):
        with self._lock:
            first, self._given_up = not self._given_up, True
        if first:
            self._say(
                f"decoded pictures can't be kept in {self.folder} any more ({error}): those that are not there yet"
                f" ({self._end / 1e9:.1f} GB are) are decoded each time they are used, which is slower. To keep more, make"
                " room, or choose a disk with more room by --output_dir (of several workers: TMPDIR), and start again"
            )
