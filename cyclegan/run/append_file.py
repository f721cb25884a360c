"""Append-only files that survive a full disk."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pathlib

from cyclegan import whole_file

logger = logging.getLogger(__name__)


class AppendFile:
    """A file to append to. Bytes that cannot be written stay in memory and are written with the next ones.

    The file is opened for each write, never through a link. A write that fails halfway leaves none of its bytes behind.

    A write creates the file, but not its folder unless the folder is inside `run`: a run whose folder was moved does not make
    another one.

    Args:
        path: Path of the file.
        run: Folder of the run; by default the folder of the file.

    Attributes:
        path: Path of the file.
    """

    def __init__(self, path: str | os.PathLike[str], run: str | os.PathLike[str] | None = None) -> None:
        self.path = pathlib.Path(path)
        self._is_inside = run is not None and pathlib.Path(run) in self.path.parent.parents
        self._written = self.path.stat().st_size if self.path.exists() else 0
        self._pending = b""
        self._failing = False

    @property
    def size(self) -> int:
        """Size in bytes, including the bytes that wait to be written."""
        return self._written + len(self._pending)

    def append(self, data: bytes) -> None:
        """Append bytes; warn once while writing fails, and log when it works again."""
        self._pending += data
        try:
            self._write_pending()
        except OSError as error:
            if not self._failing:
                logger.warning(
                    "%s could not be written (%s). The data stays in memory until it can be written: free some space",
                    self.path,
                    error,
                )
            self._failing = True
            with contextlib.suppress(OSError), self._open(os.O_RDWR) as file:
                file.truncate(self._written)  # the program may end before the next write
            return
        if self._failing:
            logger.warning("%s can be written again; nothing is missing", self.path)
        self._failing = False

    def flush(self) -> bool:
        """Try again to write the waiting bytes; return whether all bytes are written."""
        if self._pending:
            self.append(b"")
        return not self._pending

    def truncate(self, size: int) -> None:
        """Cut a file of lines to its first `size` bytes, and to whole lines.

        Args:
            size: Bytes to keep. If the file is shorter, lines are missing, which is logged as a warning.
        """
        if size > self.size:
            logger.warning("%s has %d bytes, expected %d: lines are missing", self.path, self.size, size)
        self._pending = self._pending[: max(0, size - self._written)]
        self._written = min(size, self._written)
        if not self._pending and self._written:
            with contextlib.suppress(OSError):
                self._written = whole_file.read_bytes(self.path)[: self._written].rfind(b"\n") + 1
        if self.path.exists() or self._pending:
            self.append(b"")

    def _open(self, flags: int) -> io.FileIO:
        """Open the file, but not through a link, which may lead out of the folder of the run."""
        descriptor = os.open(self.path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        return io.FileIO(whole_file.check_single(descriptor, self.path), "r+")

    def _write_pending(self) -> None:
        if self._is_inside:
            whole_file.make_folder(self.path.parent)  # the user may remove it, for example to clear TensorBoard
        with self._open(os.O_RDWR | os.O_CREAT) as file:
            self._written = min(self._written, os.fstat(file.fileno()).st_size)  # another program may have cut the file
            file.truncate(self._written)  # drops what a failed write left
            file.seek(self._written)
            count = file.write(self._pending)
            if count < len(self._pending):
                file.write(self._pending[count:])  # raises the reason
            os.fsync(file.fileno())
        self._written += len(self._pending)
        self._pending = b""
