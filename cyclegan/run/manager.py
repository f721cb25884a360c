"""Manager of a run's checkpoints: save, remove the oldest, restore strictly.

A checkpoint is a folder with the files of `tf.train.Checkpoint` and a `manifest.json`. It is written under a hidden name and
renamed when it is complete, so it exists as a whole or not at all. Nothing in it is ever executed: the manifest is JSON, the
state holds arrays.

A checkpoint may be kept under further names, "best-x2y" for example. Each is a whole checkpoint, made of links if the file system
supports them. A later checkpoint may replace it, but none is removed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from cyclegan.distribution.workers import Workers
from cyclegan.errors import UserError, first_line
from cyclegan.run import files, folder, manifest
from cyclegan.run.folder import Position
from cyclegan.run.sharded_state import ShardedState
from cyclegan.run.train_state import TrainState

logger = logging.getLogger(__name__)

# Errors that reading a damaged checkpoint raises.
UNREADABLE = (
    *(*manifest.INVALID, AssertionError, ArithmeticError, EOFError, LookupError, zipfile.BadZipFile, zlib.error),
    tf.errors.OpError,
)
# TensorFlow lists all variables of a checkpoint that could not be read to its end, when Python frees what read it.
UNRESTORED = (
    "Detecting that an object or model or tf.train.Checkpoint is being deleted",
    "Value in checkpoint could not",
)
tf.get_logger().addFilter(lambda record: not record.getMessage().startswith(UNRESTORED))
ATTEMPTS = 100  # to read a checkpoint while another process replaces it


class Restored(NamedTuple):
    """A checkpoint that was restored.

    Attributes:
        train_state: The training state that it was saved with.
        path: Folder of the checkpoint.
    """

    train_state: TrainState
    path: pathlib.Path


class CheckpointManager:
    """The checkpoints of a run.

    If several workers train together, each of them has the whole state and calls `save`, `drop` and `restore` at the same steps.
    The chief writes, and chooses the checkpoint to restore.

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
        self,
        path: str | os.PathLike[str],
        state: Mapping[str, Any],
        keep: int = 3,
        workers: Workers | None = None,
    ) -> None:
        self.folder = pathlib.Path(path)
        self.keep = keep
        self.workers = workers
        self.restored: pathlib.Path | None = None
        self.newest: pathlib.Path | None = None
        self._sharded = [part for part in state.values() if isinstance(part, ShardedState)]
        self._checkpoint = tf.train.Checkpoint(**state)

    @property
    def _writes(self) -> bool:
        return self.workers is None or self.workers.is_chief

    def all(self) -> list[pathlib.Path]:
        """Return the folders of all checkpoints, ordered by their positions in training."""
        return folder.checkpoints(self.folder)

    def save(self, train_state: TrainState, prune: bool = True, aliases: Sequence[str] = ()) -> pathlib.Path:
        """Write a checkpoint, then remove checkpoints of later positions and the oldest ones beyond `keep`.

        After a kill at any moment, the newest checkpoint is either the previous one or the new one.

        Args:
            train_state: Position and sums to save with the state.
            prune: Whether to remove the oldest ones; pass False if the weights may be broken.
            aliases: Further names for the checkpoint; each replaces the checkpoint that had the name before.

        Returns:
            Folder of the checkpoint.

        Raises:
            UserError: The checkpoint could not be written; earlier ones are untouched.
        """
        failure = None
        for part in self._sharded:
            part.before_save()
        if self._writes:
            try:
                self._write(train_state, prune, aliases)
            except UserError as error:
                failure = error
        for part in self._sharded:
            part.after_save()
        # All workers wait here until it is written.
        if self.workers and not self.workers.broadcast_from_chief(failure is None):
            failure = failure or UserError("the chief could not write a checkpoint: see its message")
        if failure:
            raise failure
        self.newest = self.folder / Position.of(train_state).name
        return self.newest

    def _write(self, train_state: TrainState, prune: bool, aliases: Sequence[str]) -> None:
        position = Position.of(train_state)
        target = self.folder / position.name
        partial = files.hidden(target, files.PARTIAL)
        try:
            files.make_folder(self.folder)
            folder.clean_up(self.folder)
            partial.mkdir()
            self._checkpoint.write(os.fspath(partial / "state"))
            manifest.write(partial, train_state)
            files.sync_folder(partial)
            # Before the checkpoint itself: after a kill here, the run resumes earlier and reaches this position again.
            for alias in aliases:
                copy = files.hidden(self.folder / alias, files.PARTIAL)
                files.copy_linked(partial, copy)
                files.replace(copy, self.folder / alias)
            files.replace(partial, target)
        except (OSError, tf.errors.OpError) as error:
            with contextlib.suppress(OSError):
                if not self.folder.is_symlink():
                    folder.clean_up(self.folder)  # the unfinished checkpoint may be what fills the disk
            older = self.all()
            raise UserError(
                f"{target} could not be written ({first_line(error)}): expected free space and a folder that can be written to; "
                + (f"{older[-1]} is complete" if older else "there is no checkpoint before it")
            ) from error
        others = [path for path in self.all() if path != target]
        # Later positions are obsolete: training went back. The newest is removed last, so that a kill leaves it.
        for path in others:
            if folder.position_of(path) > position:
                self.drop(path)
        older = [path for path in others if folder.position_of(path) < position]
        for path in older[: max(len(older) + 1 - self.keep, 0)] if prune else ():
            self.drop(path)

    def drop(self, path: pathlib.Path) -> None:
        """Remove a checkpoint so that a kill leaves no part of it under its name; ignore errors."""
        if self._writes:
            files.remove(path)

    def restore(self, strict: bool = True) -> Restored | None:
        """Restore the newest readable checkpoint, and warn of each unreadable one.

        Args:
            strict: Whether to refuse a checkpoint that holds more than `state`. A process that reads a run without training it
                passes False; nothing is written then.

        Returns:
            The checkpoint; `None` if there is none.

        Raises:
            UserError: There are checkpoints, but none can be read.
        """
        if strict and self._writes:
            folder.recover(self.folder)
        together = self.workers and self.workers.count > 1
        found = self._restore_together() if together else self._restore_newest(strict)
        self.restored = self.newest = found.path if found else None
        return found

    def restore_from(self, path: pathlib.Path) -> TrainState:
        """Restore `state` from one checkpoint, which may hold more.

        Returns:
            The training state that the checkpoint was saved with.

        Raises:
            UserError: The checkpoint cannot be read.
        """
        for _ in range(ATTEMPTS):
            before = folder.identity(path)
            try:
                return self._read(path, strict=False)
            except UNREADABLE as error:
                reason = error
            if folder.identity(path) == before:  # else another process has replaced it
                break
        raise UserError(
            f"{path} can't be read ({first_line(reason)}): expected a checkpoint that this program wrote; use another one"
        ) from reason

    def _restore_newest(self, strict: bool) -> Restored | None:
        for _ in range(ATTEMPTS):
            before = folder.listing(self.folder)
            found, failed = self._read_newest(strict)
            if (found and not failed) or folder.listing(self.folder) == before:
                break  # else another process has saved meanwhile, and removed what could not be read
        if found:
            for path, reason in failed.items():
                logger.warning(f"Checkpoint {path} can't be read ({reason}); trying the one before")
            return found._replace(path=folder.adopt(found.path)) if strict else found
        if failed:
            fix = "; start over with --clear_output_dir or in another --output_dir" if strict else ""
            reasons = "; ".join(f"{path} ({reason})" for path, reason in failed.items())
            raise UserError(
                f"none of the {len(failed)} checkpoints can be read: {reasons}: expected one that this program wrote{fix}"
            )
        return None

    def _read_newest(self, strict: bool) -> tuple[Restored | None, dict[pathlib.Path, str]]:
        """Return the newest checkpoint that can be read, and the reasons why newer ones cannot."""
        failed: dict[pathlib.Path, str] = {}
        for path in folder.candidates(self.folder):
            try:
                return Restored(self._read(path, strict), path), failed
            except UNREADABLE as error:
                failed[path] = first_line(error)
        return None, failed

    def _restore_together(self) -> Restored | None:
        """Restore, on all workers, the newest checkpoint that the chief can read."""
        assert self.workers is not None
        found, failure = None, None
        if self._writes:
            try:
                found = self._restore_newest(strict=True)
            except UserError as error:
                failure = error
        row = (_identity(found.path), *folder.position_of(found.path)) if found else (0, 0, 0, 0)
        has_found, has_failed, identity, *position = map(
            int, self.workers.all_gather((found is not None, failure is not None, *row))[0]
        )
        if has_found and not self._writes:
            path = self.folder / Position(*position).name
            try:
                if _identity(path) != identity:
                    raise ValueError("it is another checkpoint")
                found = Restored(self._read(path, strict=True), path)
            except UNREADABLE as error:
                failure = UserError(
                    f"{path} can't be read here ({first_line(error)}), only by the chief; expected --output_dir on storage that"
                    " all workers share"
                )
        elif has_failed:
            failure = failure or UserError("the chief could not read a checkpoint: see its message")
        if not self.workers.all_true(failure is None):
            raise failure or UserError(
                "another worker could not read the chief's checkpoint: see its message; expected storage that all workers"
                " share"
            )
        return found

    def _read(self, path: pathlib.Path, strict: bool) -> TrainState:
        before = folder.identity(path)
        train_state = manifest.verify(path)
        if Position.parse(files.final(path).name) not in (None, Position.of(train_state)):
            raise ValueError(f"it is of another position, {Position.of(train_state).name}")
        status = self._checkpoint.read(os.fspath(path / "state"))
        if strict:
            status.assert_consumed()
        else:
            status.assert_existing_objects_matched().expect_partial()
        for part in self._sharded:
            part.after_restore()
        if folder.identity(path) not in (before, None):
            raise ValueError("another process has replaced it")
        return train_state


def _identity(path: pathlib.Path) -> int:
    """Return a number that identifies a checkpoint, so that workers can compare it."""
    return files.crc32(path / manifest.NAME)
