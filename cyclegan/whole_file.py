"""Files that are written completely or not at all, or read only if they are regular files."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import stat
from typing import BinaryIO


def sync(path: str | os.PathLike[str]) -> None:
    """Write a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write bytes, or a text as UTF-8, under a temporary name, then rename the file.

    Raises:
        OSError: The file can't be written, or `refuse_special` refuses its path.
    """
    partial = pathlib.Path(f"{os.fspath(path)}.partial")
    refuse_special(path)
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        sync(partial)  # otherwise, a power cut could leave an empty file under the name
        os.replace(partial, path)
        sync(partial.parent)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def refuse_special(path: str | os.PathLike[str]) -> None:
    """Raise `OSError` if a path is a device, a pipe or a socket, which a rename would replace by a file."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise OSError(errno.EINVAL, "no regular file, so it is not replaced", os.fspath(path))


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file to read; raise `OSError` for a pipe or a device, whose end may never come."""
    return open(path, "rb", opener=_regular)


def _regular(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor
