"""Saves and strictly restores the state.

A checkpoint is a folder, `checkpoints/epoch_0012/`, that holds what `tf.train.Checkpoint` writes and `manifest.json`: the
place in training, and the size and CRC-32 of every file. It is written under another name and renamed when it is complete,
so it is there as a whole or not at all.
"""

import json
import os
import pathlib
import shutil
import zlib

import tensorflow as tf

from cyclegan.errors import UserError


class Checkpoints:
    """The checkpoints of a run.

    Args:
        folder: where they are; made when the first one is saved.
        state: dict of all that evolves: models, optimizers and variables by name. Restoring wants the same names.
        keep: how many to keep, the newest ones.
        say: called with a text when something did not go as it should.
    """

    def __init__(self, folder, state, keep=3, say=print):
        self.folder = pathlib.Path(folder)
        self.keep = keep
        self.say = say
        self._checkpoint = tf.train.Checkpoint(**state)

    def all(self):
        """The folders of all complete checkpoints, the oldest first."""
        return sorted(
            (path for path in self.folder.glob("epoch_*") if path.name[len("epoch_") :].isdigit()), key=_epoch
        )

    def save(self, epoch, step):
        """Writes a checkpoint after `epoch` whole epochs and `step` steps, then removes the oldest beyond `keep`.

        Raises:
            UserError: it could not be written; those before it are untouched.
        """
        target = self.folder / f"epoch_{epoch:04d}"
        partial = self.folder / f".partial_{target.name}"
        try:
            for left_over in (*self.folder.glob(".partial_*"), *self.folder.glob(".removed_*")):
                shutil.rmtree(left_over)  # of a process that was killed while it saved
            partial.mkdir(parents=True)
            self._checkpoint.write(os.fspath(partial / "state"))
            files = {path.name: [path.stat().st_size, _crc32(path)] for path in sorted(partial.iterdir())}
            manifest = {"epoch": epoch, "step": step, "files": files}
            (partial / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
            for path in partial.iterdir():
                _sync(path)
            _sync(partial)
            for path in self.all():
                if _epoch(path) >= epoch:  # from before falling back to an older one: they could not be read
                    _remove(path)
            partial.rename(target)
            _sync(self.folder)
        except (OSError, tf.errors.OpError) as error:
            raise UserError(
                f"{target} could not be written ({error}): free some space or make it writable, and start again; the run"
                " resumes from the checkpoint before"
            ) from error
        for path in self.all()[: -self.keep]:
            _remove(path)
        return target

    def restore(self):
        """Restores the newest checkpoint that can be read, and says so of each that can't.

        Returns:
            Its manifest, a dict with "epoch" and "step", and "folder"; `None` when there is no checkpoint.

        Raises:
            UserError: there are checkpoints, but none can be read.
        """
        failed, checkpoints = [], self.all()
        for path in reversed(checkpoints):
            try:
                manifest = _verify(path)
                status = self._checkpoint.read(os.fspath(path / "state"))
                status.assert_consumed()
                return {**manifest, "folder": path}
            except (OSError, ValueError, KeyError, TypeError, AssertionError, tf.errors.OpError) as error:
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                failed.append(f"{path} ({reason})")
                if path != checkpoints[0]:
                    self.say(f"Checkpoint {path} can't be read ({reason}); trying the one before")
        if failed:
            raise UserError(
                f"none of the {len(failed)} checkpoints can be read: {'; '.join(failed)}: expected one that this program"
                " wrote; start over with --clear_output_dir or in another --output_dir"
            )
        return None


def _epoch(path):
    return int(path.name[len("epoch_") :])


def _verify(path):
    """Reads the manifest of a checkpoint and compares the files with it."""
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError("manifest.json is damaged") from None
    for name, (size, crc) in manifest["files"].items():
        file = path / os.path.basename(name)
        if file.stat().st_size != size or _crc32(file) != crc:
            raise ValueError(f"{file.name} is damaged")
    return {"epoch": int(manifest["epoch"]), "step": int(manifest["step"])}


def _remove(path):
    """Removes a checkpoint so that at no time half of it is there under its name."""
    hidden = path.with_name(f".removed_{path.name}")
    path.rename(hidden)
    shutil.rmtree(hidden)


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
