"""Stores of decoded images, in memory or in a nameless file. Nothing in them outlives the process."""

from __future__ import annotations

import errno
import logging
import os
import tempfile
import threading
import weakref
from typing import Protocol

import numpy as np

RESERVED_BYTES = 2_000_000_000  # left free on the disk, for checkpoints and logs
logger = logging.getLogger(__name__)


class Store(Protocol):
    """Store of decoded images. All methods may be called from any thread."""

    def write(self, image: np.ndarray) -> int:
        """Store an image; return the key to read it with, or -1 if it is not stored."""

    def read(self, key: int, length: int) -> bytes | memoryview | None:
        """Return the bytes of an image, or `None` if they cannot be read.

        Args:
            key: Key that `write` returned.
            length: Number of bytes of the image.
        """


class MemoryStore:
    """Store of decoded images in memory."""

    def __init__(self) -> None:
        self._images: list[np.ndarray] = []
        self._lock = threading.Lock()

    def write(self, image: np.ndarray) -> int:
        """Store an image; return the key to read it with."""
        with self._lock:
            self._images.append(np.ascontiguousarray(image))
            return len(self._images) - 1

    def read(self, key: int, length: int) -> memoryview:
        """Return the bytes of an image."""
        return self._images[key].data


class DiskStore:
    """Store of decoded images in a file without a name, which the system removes when the process ends.

    Errors of the disk are not raised. The first one is logged, and nothing more is stored.

    Args:
        folder: Folder of the file, which has to exist when the first image is written; `None` for the temporary folder.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._file: int | None = None  # descriptor
        self._end = 0
        self._gave_up = False

    def write(self, image: np.ndarray) -> int:
        """Store an image; return its offset in the file, or -1 if it is not stored."""
        if self._gave_up:
            return -1
        rest = np.ascontiguousarray(image).data.cast("B")
        try:
            with self._lock:
                if self._file is None:
                    self._file = self._create_file()
                file, offset = self._file, self._end
                self._end += len(rest)
            disk = os.fstatvfs(file)
            if disk.f_bavail * disk.f_frsize < RESERVED_BYTES + len(rest):
                raise OSError(errno.ENOSPC, f"{RESERVED_BYTES / 1e9:.0f} GB are left free for checkpoints")
            at = offset
            while rest:
                written = os.pwrite(file, rest, at)
                rest, at = rest[written:], at + written
            return offset
        except OSError as error:
            self._give_up(error)
            return -1

    def read(self, key: int, length: int) -> bytes | None:
        """Return the bytes of an image, or `None` if they cannot be read."""
        assert self._file is not None  # there is no key before the first image
        try:
            content = os.pread(self._file, length, key)
        except OSError as error:
            self._give_up(error)
            return None
        return content if len(content) == length else None

    def _create_file(self) -> int:
        with tempfile.TemporaryFile(dir=self.folder, buffering=0) as file:
            descriptor = os.dup(file.fileno())
        # Not at the end of the program, when threads may still read.
        weakref.finalize(self, os.close, descriptor).atexit = False  # type: ignore[misc]
        return descriptor

    def _give_up(self, error: OSError) -> None:
        with self._lock:
            first, self._gave_up = not self._gave_up, True
        if first:
            logger.warning(
                "decoded images cannot be kept in %s any more (%s). The %.1f GB so far stay there; the other images are decoded"
                " at every use, which is slower. To keep more, make room, or choose a larger disk by --output_dir (several"
                " workers: TMPDIR), and start again",
                self.folder,
                error,
                self._end / 1e9,
            )
