"""Atomic replacement and removal of folders, safe against a crash of the machine; no TensorFlow."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import shutil
import zlib

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # constants of Linux
PARTIAL, REMOVED = ".partial_", ".removed_"  # prefixes of incomplete folders, and of folders being removed


def hidden(path: pathlib.Path, prefix: str) -> pathlib.Path:
    """Return the name that a folder has while it is written (`PARTIAL`) or removed (`REMOVED`)."""
    return path.with_name(prefix + path.name)


def replace(new: pathlib.Path, target: pathlib.Path) -> None:
    """Give a complete folder its final name, and discard the folder that had this name before.

    After a kill at any moment, the final name belongs to the old or to the new folder. If the file system cannot exchange names,
    a kill can also leave both folders with hidden names; `folder.recover` then completes the replacement.

    Args:
        new: The new folder, named `hidden(target, PARTIAL)`.
        target: Final name.
    """
    old = new
    if not target.is_dir():
        os.rename(new, target)
    elif not exchange(new, target):
        old = hidden(target, REMOVED)
        os.rename(target, old)
        try:
            os.rename(new, target)
        except OSError:
            os.rename(old, target)
            raise
    sync(target.parent)  # before the old folder is removed, so that a crash of the machine does not lose both
    discard(old)


def exchange(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Exchange the names of two folders atomically; return False if the system cannot do this."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    return renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0


def remove(path: pathlib.Path) -> None:
    """Rename a folder, then remove it, so that a kill leaves no part of it under its name; ignore errors."""
    removed = hidden(path, REMOVED)
    discard(removed)
    with contextlib.suppress(OSError):
        os.rename(path, removed)
    discard(removed)


def discard(path: pathlib.Path) -> None:
    """Remove a file or folder as far as possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def copy_linked(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy a folder whose files never change: link them, or copy them if the file system has no links."""
    shutil.copytree(source, target, copy_function=_link)
    sync(target)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        sync(target)


def make_folder(path: pathlib.Path) -> None:
    """Make a folder and its missing parents, and write its name to the disk."""
    if not path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        sync(path.parent)


def sync_folder(path: pathlib.Path) -> None:
    """Write the files of a folder and their names to the disk."""
    for file in path.iterdir():
        sync(file)
    sync(path)


def sync(path: str | os.PathLike[str]) -> None:
    """Write a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def crc32(path: pathlib.Path) -> int:
    """Return the CRC-32 of a file."""
    value = 0
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return value
