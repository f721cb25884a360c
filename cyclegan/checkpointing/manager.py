"""Saves and strictly restores the state.

A checkpoint is a folder that holds what `tf.train.Checkpoint` writes and `manifest.json`: the place in training, and the size
and CRC-32 of every file. Its name says how far training was: `epoch_0012`, or inside an epoch `epoch_0012_pair_00345` (12 whole
epochs and 345 training pairs) and `epoch_0012_pair_01067_test_0008` (all training pairs and 8 test pairs). It is written under
another name and renamed when it is complete, so it is there as a whole or not at all. Nothing in it is ever executed: the
manifest is JSON, the state holds arrays.

Beside those that training goes on from there may be others under names of their own, `best-x2y` say: whole checkpoints too, whose
files are those of a checkpoint of the other kind, linked, where the file system can. They are replaced, and never removed.
"""

import contextlib
import ctypes
import json
import logging
import os
import pathlib
import re
import shutil
import zlib

import tensorflow as tf

from cyclegan.checkpointing.train_state import TrainState
from cyclegan.errors import UserError

logger = logging.getLogger(__name__)

NAME = re.compile(r"epoch_(\d+)(?:_pair_(\d+)(?:_test_(\d+))?)?")
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, AssertionError, UserError, tf.errors.OpError)


class CheckpointManager:
    """The checkpoints of a run.

    Args:
        folder: where they are; made when the first one is saved.
        state: dict of all that evolves on the devices: models, optimizers and variables by name. Restoring wants the same names.
        keep: how many to keep, the newest ones.
        workers: the `workers.Workers` that train together, if there are several: each holds all of the state, and calls `save`,
            `drop` and `restore` at the same places. The chief writes, and says which checkpoint is restored.
    """

    def __init__(self, folder, state, keep=3, workers=None):
        self.folder = pathlib.Path(folder)
        self.keep = keep
        self.workers = workers
        self.restored = None  # the checkpoint that `restore` has read
        self._checkpoint = tf.train.Checkpoint(**state)

    def all(self):
        """The folders of all complete checkpoints, the oldest first (by their place in training, not by the clock)."""
        found = (path for path in self.folder.glob("epoch_*") if NAME.fullmatch(path.name) and path.is_dir())
        return sorted(found, key=_place)

    @property
    def _writes(self):
        return self.workers is None or self.workers.is_chief

    def save(self, progress, sound=True, names=()):
        """Writes a checkpoint, then removes the oldest beyond `keep`. Returns its folder.

        Args:
            progress: the place in training, a `TrainState`.
            sound: whether the weights are known to be worth going back to; if not, no older checkpoint is removed.
            names: other names that it is kept under too, in place of what was.

        Raises:
            UserError: it could not be written; those before it are untouched.
        """
        failure = None
        if self._writes:
            try:
                self._write(progress, sound, names)
            except UserError as error:
                failure = error
        if self.workers and not self.workers.broadcast_from_chief(failure is None):  # here all wait until it is there
            failure = failure or UserError("the chief could not write a checkpoint")
        if failure:
            raise failure
        return self.folder / _name(progress)

    def _write(self, progress, sound, names):
        target = self.folder / _name(progress)
        partial = self.folder / f".partial_{target.name}"
        try:
            for left_over in (*self.folder.glob(".partial_*"), *self.folder.glob(".removed_*")):
                _discard(left_over)  # of a process that was killed while it saved
            partial.mkdir(parents=True)
            self._checkpoint.write(os.fspath(partial / "state"))
            files = {path.name: [path.stat().st_size, _crc32(path)] for path in sorted(partial.iterdir())}
            manifest = {"progress": progress.to_dict(), "files": files}
            manifest["crc32"] = _manifest_crc32(manifest)
            (partial / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
            for path in partial.iterdir():
                _sync(path)
            _sync(partial)
            # First, so that a process that is killed here has the better one already, and comes to this place again.
            for name in names:
                self._keep(partial, self.folder / name)
            for path in self.all():
                if _place(path) >= _place(target):  # from before going back to an older one: not what training came by
                    self.drop(path)
            partial.rename(target)
            _sync(self.folder)
        except (OSError, tf.errors.OpError) as error:
            for unfinished in self.folder.glob(".partial_*"):
                _discard(unfinished)  # it may be what fills the disk
            older = self.all()
            raise UserError(
                f"{target} could not be written ({_first_line(error)}): expected room and a folder that can be written to; "
                + (f"{older[-1]} is complete" if older else "there is no checkpoint before it")
            ) from error
        for path in self.all()[: -self.keep] if sound else ():
            self.drop(path)

    def _keep(self, source, target):
        """Puts a copy of a complete checkpoint in the place of `target`."""
        copy = target.with_name(f".partial_{target.name}")
        shutil.copytree(source, copy, copy_function=_link)
        _sync(copy)
        if target.exists() and not _exchange(copy, target):
            self.drop(target)
        if not target.exists():
            copy.rename(target)
        _sync(self.folder)
        _discard(copy)

    def drop(self, path):
        """Removes a checkpoint, so that at no time half of it is there under its name. What can't be removed stays."""
        if not self._writes:
            return
        hidden = path.with_name(f".removed_{path.name}")
        with contextlib.suppress(OSError):
            path.rename(hidden)
        _discard(hidden)

    def restore(self, whole=True):
        """Restores the newest checkpoint that can be read, and says so of each that can't.

        Args:
            whole: whether a checkpoint that holds more than `state` is refused.

        Returns:
            (the `TrainState` that `save` was given, the checkpoint's folder); `None` when there is no checkpoint.

        Raises:
            UserError: there are checkpoints, but none can be read.
        """
        together = self.workers and self.workers.count > 1
        found = self._restore_together() if together else self._restore_newest(whole)
        self.restored = found and found[1]
        return found

    def _restore_together(self):
        """The chief restores the newest that it can read, and the others the same one."""
        found, failure = None, None
        if self._writes:
            try:
                found = self._restore_newest(whole=True)
            except UserError as error:
                failure = error
        row = (1, _crc32(found[1] / "manifest.json"), *_place(found[1])) if found else (2 if failure else 0, 0, 0, 0, 0)
        kind, manifest, *place = map(int, self.workers.all_gather(row)[0])
        if kind == 1 and not self._writes:
            path = self.folder / _name_of(*place)
            try:
                if _crc32(path / "manifest.json") != manifest:
                    raise ValueError("it is another one")
                found = self._read(path, whole=True), path
            except UNREADABLE as error:
                failure = UserError(
                    f"{path} can't be read here ({_first_line(error)}), but by the chief; expected --output_dir on storage that all"
                    " workers share"
                )
        elif kind == 2:
            failure = failure or UserError("the chief could not read a checkpoint")
        if not self.workers.all_true(failure is None):
            raise failure or UserError(
                "another worker could not read the checkpoint that the others have; look at what it printed"
            )
        return found

    def _restore_newest(self, whole):
        failed, checkpoints = [], self.all()
        for path in reversed(checkpoints):
            try:
                return self._read(path, whole), path
            except UNREADABLE as error:
                failed.append(f"{path} ({_first_line(error)})")
                if path != checkpoints[0]:
                    logger.warning(f"Checkpoint {path} can't be read ({_first_line(error)}); trying the one before")
        if failed:
            over = "; start over with --clear_output_dir or in another --output_dir" if whole else ""
            raise UserError(
                f"none of the {len(failed)} checkpoints can be read: {'; '.join(failed)}: expected one that this program"
                f" wrote{over}"
            )
        return None

    def restore_from(self, path):
        """Restores `state` from one checkpoint, which may hold more. Returns the `TrainState` that `save` was given.

        Raises:
            UserError: it can't be read.
        """
        try:
            return self._read(path, whole=False)
        except UNREADABLE as error:
            raise UserError(
                f"{path} can't be read ({_first_line(error)}): expected a checkpoint that this program wrote"
            ) from error

    def _read(self, path, whole):
        progress = _verify(path)
        status = self._checkpoint.read(os.fspath(path / "state"))
        if whole:
            status.assert_consumed()
        else:
            status.assert_existing_objects_matched().expect_partial()
        return progress


def _name(progress):
    return _name_of(progress.epoch, progress.train.pairs_done, progress.test.pairs_done)


def _name_of(epoch, train, test):
    name = f"epoch_{epoch:04d}"
    if train:
        name += f"_pair_{train:05d}"
    return name + (f"_test_{test:04d}" if test else "")


def _place(path):
    """(epochs, training pairs, test pairs) by a checkpoint's name."""
    return tuple(int(number or 0) for number in NAME.fullmatch(path.name).groups())


def _first_line(error):
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"^{{function_node.*?}} | \[Op:\w+\]", "", text)  # TensorFlow's own business


def _manifest_crc32(manifest):
    content = {key: manifest[key] for key in ("progress", "files")}
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _verify(path):
    """Compares a checkpoint's files with its manifest. Returns the place in training."""
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        unknown = sorted(map(repr, set(manifest) - {"progress", "files", "crc32"}))
        whole = manifest["crc32"] == _manifest_crc32(manifest)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("manifest.json is damaged") from None
    if unknown:
        raise ValueError(f"manifest.json has unknown fields {', '.join(unknown)}")
    if not whole:
        raise ValueError("manifest.json is damaged")
    if "state.index" not in manifest["files"]:
        raise ValueError("manifest.json names no state.index")
    for name, (size, crc) in manifest["files"].items():
        file = path / os.path.basename(name)
        if file.stat().st_size != size or _crc32(file) != crc:
            raise ValueError(f"{file.name} is damaged")
    return TrainState.from_dict(manifest["progress"])


def _discard(path):
    """Removes a file or a folder, as far as that can be done."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _link(source, target):
    """Gives a file, which never changes, a second name; where the file system can't, it is copied."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        _sync(target)


def _exchange(one, other):
    """Exchanges the names of two folders at one go, so that both are there at any time. Returns whether the system can."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    return rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0


def _crc32(path):
    value = 0
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return value


def _sync(path):
    """Brings a file or the names in a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
