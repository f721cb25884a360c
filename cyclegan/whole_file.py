"""Files that are written completely or not at all, and never through a symbolic link."""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import Union


def sync(path: Union[str, os.PathLike[str]]) -> None:
    """Write a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: Union[str, os.PathLike[str]], content: Union[str, bytes]) -> None:
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
