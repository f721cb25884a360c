"""The checkpoints of a run: save, keep the newest, restore the newest that can be read.

A checkpoint is a folder with the files of `tf.train.Checkpoint`. It is written as `partial` and gets its name, with a
number of its own, when all of it is on the disk; so it exists as a whole or not at all, and is never replaced.
TensorFlow's files hold checksums, which find damage, and nothing to execute: arrays, and JSON for the training state.

`tf.train.CheckpointManager` does less: its files may be lost in a power cut although its index names them, and it never
removes checkpoints that a killed process did not add to the index.
"""

from __future__ import annotations

import abc
import contextlib
import io
import logging
import os
import pathlib
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from cyclegan.distribution.workers import Workers
from cyclegan.errors import UserError, first_line
from cyclegan.run.run_directory import PATTERN, checkpoint_number, find_checkpoints, saved_checkpoints
from cyclegan.run.train_state import TrainState
from cyclegan.whole_file import sync

logger = logging.getLogger(__name__)

# Errors that reading a damaged checkpoint, or one of other networks, raises.
UNREADABLE = (
    *(OSError, ValueError, TypeError, LookupError, AssertionError, MemoryError),
    *(UserError, DecodeError, tf.errors.OpError),
)
# Messages that TensorFlow logs for each variable of a checkpoint that it could not read to its end.
UNRESTORED = ("Detecting that an object or model or tf.train.Checkpoint is being", "Value in checkpoint could not")


class ShardedState(tf.train.experimental.PythonState):
    """State whose parts lie on different replicas; a checkpoint holds all parts as arrays.

    Attributes:
        arrays: The parts of all replicas by name, only while a checkpoint is written.
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
        """Give each replica its part of the arrays in the bytes of an .npz file."""
        with np.load(io.BytesIO(string_value), allow_pickle=False) as arrays:
            self.write(dict(arrays))


class _SavedTrainState(tf.train.experimental.PythonState):
    def __init__(self) -> None:
        self.value = TrainState()

    def serialize(self) -> str:
        return self.value.to_json()

    def deserialize(self, string_value: bytes) -> None:
        self.value = TrainState.from_json(string_value)


class Restored(NamedTuple):
    """The training state and the folder of a checkpoint that was restored."""

    train_state: TrainState
    path: pathlib.Path


class CheckpointManager:
    """The checkpoints of a run.

    If several workers train together, all call `save` and `restore` at the same steps. The chief writes.

    Args:
        path: Folder of the checkpoints, made by the first `save`.
        state: Models, optimizers, variables and all else that changes on the devices, by the same names at each start.
        keep: Number of checkpoints to keep, the newest ones.
        keep_every: Whether to keep each checkpoint of a whole multiple of `keep_every` epochs, too; 0 for none.
        workers: The workers that train together; `None` for a single process.

    Attributes:
        newest: Folder of the checkpoint that was saved or restored last; `None` before.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        state: Mapping[str, Any],
        keep: int = 3,
        workers: Workers | None = None,
        keep_every: int = 0,
    ) -> None:
        self.folder = pathlib.Path(path)
        self.keep, self.keep_every = keep, keep_every
        self.workers = workers or Workers(tf.distribute.get_strategy())
        self.newest: pathlib.Path | None = None
        self._sharded = [part for part in state.values() if isinstance(part, ShardedState)]
        self._train_state = _SavedTrainState()
        self._checkpoint = tf.train.Checkpoint(**state, train_state=self._train_state)
        tf.get_logger().addFilter(_is_shown)

    def all(self) -> list[pathlib.Path]:
        """Return the folders of all checkpoints, the oldest first, without the best ones."""
        return saved_checkpoints(self.folder)

    def save(self, train_state: TrainState, best: Sequence[str] = ()) -> pathlib.Path:
        """Write a checkpoint, then remove the oldest ones beyond `keep`; return its folder.

        After a kill at any moment, the newest checkpoint is either the previous one or the new one.

        Args:
            train_state: Position and sums to save with the state.
            best: Names under which a copy of the checkpoint is kept until the next one of this name: "best-x2y".

        Raises:
            UserError: The checkpoint could not be written; earlier ones are untouched.
        """
        number, failure = 0, None
        for part in self._sharded:
            part.arrays = dict(part.read())
        if self.workers.is_chief:
            self._train_state.value = train_state
            number = 1 + max(map(checkpoint_number, saved_checkpoints(self.folder, "*")), default=0)
            try:
                # A kill between the two loses nothing: the run resumes earlier and comes to this position again.
                for name in (*best, train_state.name):
                    self._write(f"{name}-{number}")
                self._remove_older(best)
            except (OSError, tf.errors.OpError) as error:
                failure = self._clean_up(f"{train_state.name} could not be written ({first_line(error)})", number)
                number = 0
        for part in self._sharded:
            part.arrays = {}
        number = self.workers.broadcast_from_chief(number)  # all workers wait here until it is written
        if not number:
            raise failure or UserError("the chief could not write a checkpoint: see its message")
        self.newest = self.folder / f"{train_state.name}-{number}"
        return self.newest

    def make_partial(self) -> pathlib.Path:
        """Make the empty folder of the next save; raise `OSError` if the checkpoints can't be written to."""
        partial = self.folder / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        return partial

    def _write(self, name: str) -> None:
        """Write a checkpoint to the disk, then give it its name."""
        partial = self.make_partial()
        self._checkpoint.write(os.fspath(partial / "state"))
        for path in (*partial.iterdir(), partial):
            sync(path)
        os.rename(partial, self.folder / name)
        sync(self.folder)

    def _clean_up(self, problem: str, number: int) -> UserError:
        """Remove the files of a failed save, which may fill the disk; return the error to raise."""
        shutil.rmtree(self.folder / "partial", ignore_errors=True)
        _remove([path for path in saved_checkpoints(self.folder, "*") if checkpoint_number(path) == number])
        older = self.all()
        complete = f"{older[-1]} is complete" if older else "there is no checkpoint before it"
        return UserError(
            f"{self.folder / problem}: expected free space and a folder that can be written to; {complete}"
        )

    def _remove_older(self, best: Sequence[str]) -> None:
        """Remove the checkpoints that the newest one replaces."""
        for name in best:
            _remove(saved_checkpoints(self.folder, name)[:-1])
        older = self.all()[:-1]
        # Training went back to a position before the obsolete ones, or could not read them.
        obsolete = [path for path in older if self.newest and checkpoint_number(path) > checkpoint_number(self.newest)]
        kept = older[: len(older) - len(obsolete)]
        _remove([*obsolete, *filter(self._is_temporary, kept[: max(len(kept) + 1 - self.keep, 0)])])

    def _is_temporary(self, path: pathlib.Path) -> bool:
        epoch = int((re.match(r"epoch_(\d+)-", path.name) or "00")[1])  # 0 within an epoch
        return not (self.keep_every and epoch and epoch % self.keep_every == 0)

    def restore(self, name: str = "", strict: bool = True, newest_last: bool = False) -> Restored | None:
        """Restore the newest checkpoint that can be read, and warn of each other one; return `None` if there is none.

        Args:
            name: Only a checkpoint of this name: "epoch_0010-12", "epoch_0010", "best-x2y".
            strict: Whether to refuse a checkpoint that holds more than `state`, as training does.
            newest_last: Whether to prefer any other checkpoint to the newest.

        Raises:
            UserError: There are checkpoints, but none can be read; or there is none of this name.
        """
        found = failure = None
        try:
            found = self._restore_first(name, strict, newest_last)
        except UserError as error:
            failure = error
        if self.workers.count > 1:
            text = f"{found.path.name} {_identity(found.path)}" if found else f"none: {failure}"
            self.workers.check_equal({"its checkpoint, which belongs on storage that all workers share": text})
        if failure:
            raise failure
        self.newest = found.path if found else None
        return found

    def _restore_first(self, name: str, strict: bool, newest_last: bool) -> Restored | None:
        """Restore the first checkpoint that can be read. A training process may save and remove others meanwhile."""
        failed: dict[pathlib.Path, str] = {}
        while True:
            paths = saved_checkpoints(self.folder, name or "epoch_*")[::-1]
            paths = [*paths[1:], *paths[:1]] if newest_last else paths
            failed = {path: failed[path] for path in paths if path in failed}
            path = next((path for path in paths if path not in failed), None)
            if not path:
                break
            try:
                found = Restored(self._read(path, strict), path)
            except UNREADABLE as error:
                failed[path] = f"{path} can't be read ({first_line(error)})"
                continue
            for text in failed.values() if self.workers.is_chief else ():
                logger.warning(f"Checkpoint {text}; trying the one before")
            return found
        if failed:
            fix = "; start over with --clear_output_dir or in another --output_dir" if strict else ""
            raise UserError(f"{'; '.join(failed.values())}: expected a checkpoint that this program wrote{fix}")
        if name:
            find_checkpoints(self.folder, name)  # raises the error
        return None

    def _read(self, path: pathlib.Path, strict: bool) -> TrainState:
        with _without_pattern(path) as plain:
            status = self._checkpoint.read(os.fspath(plain / "state"))
        if strict:
            status.assert_consumed()
        else:
            status.assert_existing_objects_matched().expect_partial()
        return self._train_state.value


@contextlib.contextmanager
def _without_pattern(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a path of a folder that TensorFlow does not take for a pattern: a link, if its own has such letters."""
    if not PATTERN.search(os.fspath(path)):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        link = pathlib.Path(folder) / "checkpoint"
        link.symlink_to(path.resolve())
        yield link


def _is_shown(record: logging.LogRecord) -> bool:
    """Filter the log of TensorFlow: leave out its list of variables that were not restored."""
    return not record.getMessage().startswith(UNRESTORED)


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
