"""The checkpoints of a run: save, keep the newest, restore the newest that can be read.

A checkpoint is a folder with the files of `tf.train.Checkpoint`. It is written as `partial` and gets its name, with a number of
its own, when all of it is on the disk; so it exists as a whole or not at all, and no checkpoint is ever replaced. TensorFlow's
files hold checksums, which find damage. Nothing in them is executed: they hold arrays, and JSON for the training state.

`tf.train.CheckpointManager` does less: its files may be lost in a power cut although its index names them, and it never removes
checkpoints that a killed process did not add to the index.
"""

from __future__ import annotations

import abc
import contextlib
import io
import logging
import os
import pathlib
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cyclegan.distribution.workers import Workers
from cyclegan.errors import UserError, first_line
from cyclegan.run.run_directory import find_checkpoints, number_of, saved_checkpoints
from cyclegan.run.train_state import TrainState
from cyclegan.whole_file import sync

logger = logging.getLogger(__name__)

# Errors that reading a damaged checkpoint raises.
UNREADABLE = (
    *(OSError, ValueError, TypeError, LookupError, AssertionError, EOFError, zipfile.BadZipFile, zlib.error),
    *(UserError, tf.errors.OpError),
)
# TensorFlow lists all variables of a checkpoint that could not be read to its end, when Python frees what read it.
UNRESTORED = ("Detecting that an object or model or tf.train.Checkpoint is being", "Value in checkpoint could not")


def _is_wanted(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(UNRESTORED)


class ShardedState(tf.train.experimental.PythonState):
    """State whose parts lie on different replicas; a checkpoint holds all parts as arrays.

    Attributes:
        arrays: The parts of all replicas by name, only while a checkpoint is written or read.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    @abc.abstractmethod
    def read(self) -> Mapping[str, np.ndarray]:
        """Return the parts of all replicas, by name; collective: all workers call it at the same step."""

    @abc.abstractmethod
    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give each replica of this worker its part of `arrays`; raise `ValueError` if they do not fit."""

    def serialize(self) -> bytes:
        """Return `arrays` as the bytes of an .npz file."""
        file = io.BytesIO()
        arrays: dict[str, Any] = self.arrays  # NumPy's options are keywords, too
        np.savez(file, **arrays)
        return file.getvalue()

    def deserialize(self, string_value: bytes) -> None:
        """Read `arrays` from the bytes of an .npz file."""
        with np.load(io.BytesIO(string_value), allow_pickle=False) as arrays:
            self.arrays = dict(arrays)


class _SavedTrainState(tf.train.experimental.PythonState):
    def __init__(self) -> None:
        self.value = TrainState()

    def serialize(self) -> str:
        return self.value.to_json()

    def deserialize(self, string_value: bytes) -> None:
        self.value = TrainState.from_json(string_value)


def read_train_state(checkpoint: pathlib.Path) -> TrainState:
    """Read the training state of a checkpoint alone."""
    reader = tf.train.load_checkpoint(os.fspath(checkpoint / "state"))
    return TrainState.from_json(reader.get_tensor("train_state/.ATTRIBUTES/py_state"))


class Restored(NamedTuple):
    """The training state and the folder of a checkpoint that was restored."""

    train_state: TrainState
    path: pathlib.Path


class CheckpointManager:
    """The checkpoints of a run.

    If several workers train together, all call `save` and `restore` at the same steps. The chief writes, and chooses the
    checkpoint to restore.

    Args:
        path: Folder of the checkpoints, made by the first `save`.
        state: Everything that changes on the devices: models, optimizers and variables by name. Restoring expects the same names.
        keep: Number of checkpoints to keep, the newest ones.
        workers: The workers that train together; `None` for a single process.

    Attributes:
        restored: Folder of the checkpoint that `restore` returned last; `None` for a new run.
        newest: Folder of the checkpoint that was saved or restored last; `None` before.
    """

    def __init__(
        self, path: str | os.PathLike[str], state: Mapping[str, Any], keep: int = 3, workers: Workers | None = None
    ) -> None:
        self.folder = pathlib.Path(path)
        self.keep = keep
        self.workers = workers
        self.restored: pathlib.Path | None = None
        self.newest: pathlib.Path | None = None
        self._sharded = [part for part in state.values() if isinstance(part, ShardedState)]
        self._train_state = _SavedTrainState()
        tf.get_logger().addFilter(_is_wanted)
        self._checkpoint = tf.train.Checkpoint(**state, train_state=self._train_state)

    def all(self) -> list[pathlib.Path]:
        """Return the folders of all checkpoints, the oldest first, without the best ones."""
        return saved_checkpoints(self.folder)

    def save(self, train_state: TrainState, prune: bool = True, best: Sequence[str] = ()) -> pathlib.Path:
        """Write a checkpoint, then remove the oldest ones beyond `keep`; return its folder.

        After a kill at any moment, the newest checkpoint is either the previous one or the new one.

        Args:
            train_state: Position and sums to save with the state.
            prune: Whether to remove the oldest ones; pass False if the weights may be broken.
            best: Names under which a further copy of the checkpoint is kept, until the next one of this name: "best-x2y".

        Raises:
            UserError: The checkpoint could not be written; earlier ones are untouched.
        """
        number, failure = 0, None
        for part in self._sharded:
            part.arrays = dict(part.read())
        if self.workers is None or self.workers.is_chief:
            try:
                number = self._write_all(train_state, prune, best)
            except UserError as error:
                failure = error
        for part in self._sharded:
            part.arrays = {}
        if self.workers:
            number = self.workers.broadcast_from_chief(number)  # all workers wait here until it is written
        if not number:
            raise failure or UserError("the chief could not write a checkpoint: see its message")
        self.newest = self.folder / f"{train_state.name}-{number}"
        return self.newest

    def _write_all(self, train_state: TrainState, prune: bool, best: Sequence[str]) -> int:
        """Write a checkpoint, the copies as best ones first, and remove older ones; return the number of the checkpoint."""
        self._train_state.value = train_state
        older = self.all()
        used = [*saved_checkpoints(self.folder, "*"), *([self.newest] if self.newest else [])]
        number = 1 + max(map(number_of, used), default=0)
        try:
            # A kill between the two loses nothing: the run resumes earlier and comes to this position again.
            for name in (*best, train_state.name):
                self._write(f"{name}-{number}")
        except (OSError, tf.errors.OpError) as error:
            shutil.rmtree(self.folder / "partial", ignore_errors=True)  # it may be what fills the disk
            _remove([self.folder / f"{name}-{number}" for name in best])
            raise UserError(
                f"{self.folder / train_state.name} could not be written ({first_line(error)}): expected free space and a folder"
                " that can be written to; "
                + (f"{older[-1]} is complete" if older else "there is no checkpoint before it")
            ) from error
        for name in best:
            _remove(saved_checkpoints(self.folder, name)[:-1])
        if prune:
            # Training went back behind the obsolete ones, or could not read them.
            obsolete = [path for path in older if self.newest and number_of(path) > number_of(self.newest)]
            kept = [path for path in older if path not in obsolete]
            _remove([*obsolete, *kept[: max(len(kept) + 1 - self.keep, 0)]])
        return number

    def _write(self, name: str) -> None:
        """Write a checkpoint to the disk, then give it its name."""
        partial = self.folder / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        self._checkpoint.write(os.fspath(partial / "state"))
        for path in (*partial.iterdir(), partial):
            sync(path)
        os.rename(partial, self.folder / name)
        sync(self.folder)

    def restore(self, strict: bool = True, newest_last: bool = False) -> Restored | None:
        """Restore the newest readable checkpoint, and warn of each unreadable one; return `None` if there is none.

        Args:
            strict: Whether to refuse a checkpoint that holds more than `state`, as training does.
            newest_last: Whether to prefer any other checkpoint to the newest.

        Raises:
            UserError: There are checkpoints, but none can be read.
        """

        def candidates() -> list[pathlib.Path]:
            newest_first = self.all()[::-1]
            return [*newest_first[1:], *newest_first[:1]] if newest_last else newest_first

        found = failure = None
        if self.workers is None or self.workers.is_chief:
            try:
                found = self._restore_first(candidates, strict)
            except UserError as error:
                failure = error
        if self.workers and self.workers.count > 1:
            found = self._follow_chief(self.workers, found, failure)
        elif failure:
            raise failure
        self.restored = self.newest = found.path if found else None
        return found

    def restore_named(self, name: str) -> Restored:
        """Restore a checkpoint, which may hold more than `state`, by name: "epoch_0010-12", "epoch_0010", "best-x2y".

        Raises:
            UserError: The checkpoint does not exist or cannot be read.
        """
        found = self._restore_first(lambda: find_checkpoints(self.folder, name)[::-1], strict=False)
        if not found:
            names = ", ".join(path.name for path in saved_checkpoints(self.folder, "*"))
            raise UserError(
                f"{self.folder / name}: no such checkpoint; expected one of {names or 'none, there are none yet'}"
            )
        return found

    def _restore_first(self, candidates: Callable[[], list[pathlib.Path]], strict: bool) -> Restored | None:
        """Restore the first of the candidates that can be read; start again if another process changes them meanwhile."""
        paths, failed = candidates(), []
        for path in paths:
            try:
                found = Restored(self._read(path, strict), path)
            except UNREADABLE as error:
                if candidates() != paths:
                    return self._restore_first(candidates, strict)
                failed.append(f"{path} can't be read ({first_line(error)})")
                continue
            for text in failed:
                logger.warning(f"Checkpoint {text}; trying the one before")
            return found
        if failed:
            fix = "; start over with --clear_output_dir or in another --output_dir" if strict else ""
            raise UserError(f"{'; '.join(failed)}: expected a checkpoint that this program wrote{fix}")
        return None

    def _follow_chief(self, workers: Workers, found: Restored | None, failure: UserError | None) -> Restored | None:
        """Restore the chief's checkpoint on the other workers, too; raise an error on all workers if one of them fails."""
        name, identity = (found.path.name, _identity(found.path)) if found else ("", 0)
        identity, *letters = map(int, workers.all_gather((identity, *name.encode().ljust(64)))[0])
        path = self.folder / bytes(letters).decode().strip()
        if path != self.folder and not workers.is_chief:
            try:
                if _identity(path) != identity:
                    raise ValueError("it is another checkpoint")
                found = Restored(self._read(path, strict=True), path)
            except UNREADABLE as error:
                failure = UserError(
                    f"{path} can't be read here ({first_line(error)}), only by the chief; expected --output_dir on storage that"
                    " all workers share"
                )
        if not workers.all_true(failure is None):
            raise failure or UserError(
                "another worker could not read the checkpoint: see its message; expected storage that all workers share"
            )
        return found

    def _read(self, path: pathlib.Path, strict: bool) -> TrainState:
        status = self._checkpoint.read(os.fspath(path / "state"))
        if strict:
            status.assert_consumed()
        else:
            status.assert_existing_objects_matched().expect_partial()
        for part in self._sharded:
            part.write(part.arrays)
            part.arrays = {}
        return self._train_state.value


def _remove(checkpoints: Sequence[pathlib.Path]) -> None:
    for path in checkpoints:
        partial = path.with_name("partial")  # so that a kill leaves no part of it under its name
        shutil.rmtree(partial, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rename(path, partial)
        shutil.rmtree(partial, ignore_errors=True)


def _identity(path: pathlib.Path) -> int:
    """Return a checksum of a checkpoint's index, which holds the checksums of all variables."""
    return zlib.crc32((path / "state.index").read_bytes())
