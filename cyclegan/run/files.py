"""Atomic replacement and removal of folders, safe against a crash of the machine; no TensorFlow."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import zlib

from cyclegan import whole_file
from cyclegan.whole_file import sync

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # constants of Linux
# Names of the files of a checkpoint; TensorFlow writes those with "temp".
OWN = re.compile(r"manifest\.json(\.partial)?|state\.(index|data-\d{5}-of-\d{5})(\.tempstate\d+)?|state_temp")
PARTIAL, REMOVED = ".partial_", ".removed_"  # prefixes of incomplete folders, and of folders being removed


def hidden(path: pathlib.Path, prefix: str) -> pathlib.Path:
    """Return the name that a folder has while it is written (`PARTIAL`) or removed (`REMOVED`)."""
    return path.with_name(prefix + path.name)


def replace(new: pathlib.Path, target: pathlib.Path) -> None:
    """Give a complete folder its final name, and discard the folder that had this name before.

    After a kill at any moment, the final name belongs to the old or to the new folder. If the file system cannot exchange names,
    a kill can also leave both folders with hidden names; `folder.recover` then completes the replacement. Files that the user has
    put into the old folder move to the new one.

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
    move_foreign(old, target)
    discard(old)


def exchange(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Exchange the names of two folders atomically; return False if the system cannot do this."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    return renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0


def remove(path: pathlib.Path) -> None:
    """Rename a checkpoint, then remove it, so that a kill leaves no part of it under its name; ignore errors.

    If the user has put files into it, the folder stays with these files.
    """
    if foreign(path):
        remove_own(path)
        return
    removed = hidden(path, REMOVED)
    discard(removed)
    with contextlib.suppress(OSError):
        os.rename(path, removed)
    discard(removed)


def foreign(checkpoint: pathlib.Path) -> list[pathlib.Path]:
    """Return the files and folders in the folder of a checkpoint that do not belong to it."""
    return [path for path in checkpoint.iterdir() if not OWN.fullmatch(path.name)] if _is_folder(checkpoint) else []


def move_foreign(old: pathlib.Path, new: pathlib.Path) -> None:
    """Move what does not belong to a checkpoint from its old folder to its new one."""
    for path in foreign(old):
        target = new / path.name
        while os.path.lexists(target):  # the user has made another one since
            target = target.with_name(f"{target.name}_old")
        os.rename(path, target)


def remove_own(checkpoint: pathlib.Path) -> None:
    """Remove the files of a checkpoint, and its folder if nothing else is left; ignore errors."""
    for path in sorted(checkpoint.iterdir()):  # the manifest first: a kill leaves no checkpoint that seems complete
        if OWN.fullmatch(path.name):
            with contextlib.suppress(OSError):
                path.unlink()
    with contextlib.suppress(OSError):
        checkpoint.rmdir()


def _is_folder(path: pathlib.Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def final(path: pathlib.Path) -> pathlib.Path:
    """Return the final name of a checkpoint that may have a hidden name."""
    return path.with_name(path.name.removeprefix(PARTIAL).removeprefix(REMOVED))


def discard_hidden(path: pathlib.Path) -> None:
    """Remove a folder with a hidden name; files of the user in it move to the folder with the final name."""
    if foreign(path):  # a kill has interrupted `replace`
        final(path).mkdir(exist_ok=True)
        move_foreign(path, final(path))
    discard(path)


def discard(path: pathlib.Path) -> None:
    """Remove a file or folder as far as possible."""
    if _is_folder(path):
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
    """Make a folder and its missing parents, and write its name to the disk; raise as `whole_file.make_folder`."""
    if not _is_folder(path):
        whole_file.make_folder(path, parents=True)
        sync(path.parent)


def sync_folder(path: pathlib.Path) -> None:
    """Write the files of a folder and their names to the disk."""
    for file in path.iterdir():
        sync(file)
    sync(path)


def crc32(path: pathlib.Path) -> int:
    """Return the CRC-32 of a file."""
    value = 0
    with whole_file.open_regular(path) as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return value
