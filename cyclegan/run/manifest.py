"""manifest.json of a checkpoint: the training state, and the size and CRC-32 of every file; no TensorFlow."""

from __future__ import annotations

import json
import os
import pathlib
import zlib
from typing import Any

from cyclegan import whole_file
from cyclegan.errors import UserError
from cyclegan.run.files import crc32
from cyclegan.run.train_state import TrainState

NAME = "manifest.json"
# Errors that `verify` raises, whatever the manifest holds.
INVALID = (OSError, ValueError, KeyError, TypeError, AttributeError, UserError)


def write(folder: pathlib.Path, train_state: TrainState) -> None:
    """Write the manifest of a checkpoint whose other files are complete."""
    files = {path.name: [path.stat().st_size, crc32(path)] for path in sorted(folder.iterdir())}
    manifest: dict[str, Any] = {"train_state": train_state.to_dict(), "files": files}
    manifest["crc32"] = checksum(manifest)
    (folder / NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def verify(folder: pathlib.Path) -> TrainState:
    """Compare the files of a checkpoint with its manifest, and return the training state.

    Raises:
        One of `INVALID`: the checkpoint is damaged, incomplete or not of this version.
    """
    try:
        manifest = json.loads(whole_file.read_text(folder / NAME))
        unknown = sorted(map(repr, set(manifest) - {"train_state", "files", "crc32"}))
        intact = manifest["crc32"] == checksum(manifest)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{NAME} is damaged") from None
    if unknown:
        raise ValueError(f"{NAME} has unknown fields {', '.join(unknown)}")
    if not intact:
        raise ValueError(f"{NAME} is damaged")
    if "state.index" not in manifest["files"]:
        raise ValueError(f"{NAME} names no state.index")
    for name, (size, crc) in manifest["files"].items():
        file = folder / os.path.basename(name)
        if file.stat().st_size != size or crc32(file) != crc:
            raise ValueError(f"{file.name} is damaged")
    return TrainState.from_dict(manifest["train_state"])


def is_complete(folder: pathlib.Path) -> bool:
    """Return whether a folder holds a whole checkpoint."""
    try:
        verify(folder)
    except INVALID:
        return False
    return True


def checksum(manifest: dict[str, Any]) -> int:
    """Return the CRC-32 of a manifest's content."""
    content = {key: manifest[key] for key in ("train_state", "files")}
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())
