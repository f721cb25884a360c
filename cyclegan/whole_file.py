"""Files that are written completely or not at all, or read only if they are regular files."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import stat
import tempfile
from typing import BinaryIO

from cyclegan.errors import UserError, describe_missing, printable


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
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        name_final(error, partial, path)
        raise


def refuse_special(path: str | os.PathLike[str]) -> None:
    """Raise `OSError` if a path is a device, a pipe or a socket, which a rename would replace by a file."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise OSError(errno.EINVAL, "no regular file, so it is not replaced", os.fspath(path))


def name_final(error: OSError, partial: pathlib.Path, path: str | os.PathLike[str]) -> None:
    """Let an error name a file, unless it names another one than the temporary file `partial` for it."""
    if error.errno and (error.filename is None or str(error.filename) == str(partial)):
        error.filename, error.filename2 = os.fspath(path), None


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Raise `UserError` if no file can be made in a folder; if it does not exist, in the one in which it will be."""
    path = pathlib.Path(os.path.abspath(folder))
    while not os.path.lexists(path):
        path = path.parent
    try:
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        reason = error.strerror if path.exists() else describe_missing(path)
        raise UserError(f"{printable(path)}: {reason}; expected a folder that can be written to") from error


def check_file(path: str | os.PathLike[str]) -> pathlib.Path:
    """Return the path of a file to write, in a new folder if there is none, with its ~ expanded.

    Raises:
        UserError: The file can't be written.
    """
    path = pathlib.Path(path).expanduser()
    if path.exists() and not path.is_file():
        raise UserError(f"{printable(path)}: not a regular file; expected a file to write or replace")
    check_folder(path.parent)
    return path


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file to read; raise `OSError` for a pipe or a device, whose end may never come."""
    return open(path, "rb", opener=_regular)


def _regular(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor
