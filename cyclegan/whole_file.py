"""Files that are written completely or not at all, never through a symbolic link, and read if they are regular files."""

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


def make_folder(path: str | os.PathLike[str], parents: bool = False) -> None:
    """Make a folder if there is none.

    Raises:
        OSError: It cannot be made, or is a symbolic link.
    """
    path = pathlib.Path(path)
    path.mkdir(parents=parents, exist_ok=True)
    if path.is_symlink():
        raise OSError(errno.ELOOP, "a symbolic link in the place of a folder", os.fspath(path))


def check_regular(descriptor: int, path: str | os.PathLike[str]) -> int:
    """Return an open descriptor; close it if it is no regular file: reading a pipe or a device may never end.

    Raises:
        OSError: It is no regular file.
    """
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return descriptor


def check_single(descriptor: int, path: str | os.PathLike[str]) -> int:
    """Return the open descriptor of a file to write to; close it if the file is not regular, or has another name.

    Raises:
        OSError: It is no regular file, or a hard link.
    """
    if os.fstat(check_regular(descriptor, path)).st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EMLINK, "the file has another name (a hard link)", os.fspath(path))
    return descriptor


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    return open(path, "rb", opener=lambda path, flags: check_regular(os.open(path, flags | os.O_NONBLOCK), path))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a regular file; raise as `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a regular file in UTF-8; raise as `open_regular`, or `ValueError`."""
    return read_bytes(path).decode("utf-8")


def write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file under a temporary name, then rename it; a link of its name is replaced.

    Args:
        path: The file.
        content: Bytes, or a text to encode as UTF-8.

    Raises:
        OSError: The file cannot be written.
    """
    partial = pathlib.Path(f"{os.fspath(path)}.partial")
    with contextlib.suppress(FileNotFoundError):
        partial.unlink()
    try:
        with open(partial, "xb") as file:  # refuses links
            file.write(content.encode() if isinstance(content, str) else content)
        sync(partial)  # otherwise, a power cut could leave an empty file under the name
        os.replace(partial, path)
        sync(partial.parent)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
