"""The folder `checkpoints` of a run: names of checkpoints, and recovery after a kill; no TensorFlow.

The name of a checkpoint is its position: `epoch_0012`, or within an epoch `epoch_0012_pair_00345` (12 whole epochs and 345
training pairs) and `epoch_0012_pair_01067_test_0008` (all training pairs and 8 test pairs).
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from cyclegan.run import files, manifest
from cyclegan.run.files import PARTIAL, REMOVED
from cyclegan.run.train_state import TrainState
from cyclegan.whole_file import sync

logger = logging.getLogger(__name__)

NAME = re.compile(r"epoch_(\d{1,15})(?:_pair_(\d{1,15})(?:_test_(\d{1,15}))?)?")
ALIAS = re.compile("best-(x2y|y2x)")


class Position(NamedTuple):
    """Position in training, which orders the checkpoints.

    Attributes:
        epoch: Whole epochs done.
        train_pairs: Training pairs done in the current epoch.
        test_pairs: Test pairs done in the current epoch.
    """

    epoch: int
    train_pairs: int
    test_pairs: int

    @classmethod
    def of(cls, train_state: TrainState) -> Position:
        """Return the position of a training state."""
        return cls(train_state.epoch, train_state.train.pairs_done, train_state.test.pairs_done)

    @classmethod
    def parse(cls, name: str) -> Position | None:
        """Parse the name of a checkpoint; return `None` for any other name."""
        match = NAME.fullmatch(name)
        return cls(*(int(number or 0) for number in match.groups())) if match else None

    @property
    def name(self) -> str:
        """Name of a checkpoint at this position."""
        pairs = f"_pair_{self.train_pairs:05d}" if self.train_pairs else ""
        return f"epoch_{self.epoch:04d}{pairs}" + (f"_test_{self.test_pairs:04d}" if self.test_pairs else "")


def position_of(path: pathlib.Path) -> Position:
    """Return the position of a checkpoint, parsed from its final or hidden name."""
    position = Position.parse(files.final(path).name)
    assert position is not None, path
    return position


def checkpoints(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return all checkpoints in a folder, ordered by their positions in training; a folder of foreign files alone is none."""
    found = (path for path in folder.glob("epoch_*") if NAME.fullmatch(path.name) and path.is_dir())
    return sorted((path for path in found if not _is_foreign(path)), key=position_of)


def names(folder: pathlib.Path) -> list[str]:
    """Return the names of all checkpoints, ordered by their positions in training; then names such as best-x2y."""
    best = sorted(path.name for path in folder.glob("best-*") if path.is_dir())
    return [*(path.name for path in checkpoints(folder)), *best]


def _is_foreign(path: pathlib.Path) -> bool:
    try:
        names = os.listdir(path)
    except OSError:
        return False
    return bool(names) and not any(files.OWN.fullmatch(name) for name in names)


def describe_last(run: pathlib.Path) -> str:
    """Describe the newest checkpoint of the folder of a run, for a message about the end of training."""
    saved = checkpoints(run / "checkpoints")
    return (
        f"the last checkpoint is {saved[-1]}, and the same command resumes" if saved else "there is no checkpoint yet"
    )


def candidates(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the checkpoints to restore from, the newest first; then the complete ones with hidden names, if none could be read."""
    yield from reversed(checkpoints(folder))
    yield from reversed(_interrupted(folder))


def listing(folder: pathlib.Path) -> set[tuple[str, tuple[int, int] | None]]:
    """Return the names in a folder, with the identities of the checkpoints; it changes whenever another process saves."""
    hidden = ((path.name, None) for prefix in (REMOVED, PARTIAL) for path in folder.glob(f"{prefix}epoch_*"))
    return {*hidden, *((path.name, identity(path)) for path in checkpoints(folder))}


def identity(path: pathlib.Path) -> tuple[int, int] | None:
    """Return numbers that a checkpoint does not share with another one of the same name; `None` if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def adopt(path: pathlib.Path) -> pathlib.Path:
    """Give a complete checkpoint its final name, in place of one that cannot be read; return its path."""
    if path != files.final(path):
        files.move_foreign(files.final(path), path)
        files.discard(files.final(path))
        _show(path)
    return files.final(path) if files.final(path).is_dir() else path


def _interrupted(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the complete checkpoints with hidden names, ordered by position and then by age, the newest last."""
    found = []
    for prefix in (REMOVED, PARTIAL):
        for path in folder.glob(f"{prefix}epoch_*"):
            position = Position.parse(path.name[len(prefix) :])
            if position and manifest.is_complete(path):
                found.append((position, prefix == PARTIAL, path))
    return [path for *_, path in sorted(found)]


def recover(folder: pathlib.Path) -> None:
    """Finish a save that was interrupted, so that no checkpoint is lost.

    If both folders of a replacement have hidden names, the new one gets the final name. If no checkpoint has a final name, the
    newest complete one with a hidden name gets it. Only the process that holds the lock of the run may call this.
    """
    for old in folder.glob(f"{REMOVED}*"):
        new = old.with_name(PARTIAL + old.name[len(REMOVED) :])
        if not files.final(old).exists() and manifest.is_complete(new):
            _show(new)
    if not checkpoints(folder):
        for path in _interrupted(folder)[-1:]:
            _show(path)


def _show(path: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        os.rename(path, files.final(path))
        sync(path.parent)
        logger.info(f"Recovered {files.final(path)} from an interrupted save")


def clean_up(folder: pathlib.Path) -> None:
    """Recover checkpoints from an interrupted save, and remove everything else under hidden names."""
    recover(folder)
    for prefix in (PARTIAL, REMOVED):
        for path in folder.glob(f"{prefix}*"):
            name = files.final(path).name
            if NAME.fullmatch(name) or ALIAS.fullmatch(name):  # else it is the user's
                files.discard_hidden(path)
