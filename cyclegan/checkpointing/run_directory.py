"""The folder that a run lives in: whether this command may go on with what is there, and starting over."""

import errno
import fcntl
import json
import os
import pathlib
import shutil
import socket

from cyclegan.config import serialization
from cyclegan.config.fields import FIXED, WARN
from cyclegan.config.resume import changed_settings
from cyclegan.errors import TrainingError, UserError

# What a run writes, and so what clearing removes: files, and folders of checkpoints.
WRITTEN = (
    "metrics.jsonl",
    "plugins",
    "events.out.tfevents.*",
    "test/events.out.tfevents.*",
    "steps/events.out.tfevents.*",
    "index.html",
    "samples/epoch_*.png",
    "samples/epoch_*/frames.json",
    "samples/epoch_*/fake_[xy]_*.png",
    "samples/epoch_*/cycle_[xy]_*.png",
    "samples/inputs/[xy]_*.png",
    "checkpoints/epoch_*",
    "checkpoints/.*_epoch_*",
    "checkpoints/best-[xy]2[xy]",
    "checkpoints/.*_best-[xy]2[xy]",
    "config.json",
)
# Removed when that leaves them empty.
FOLDERS = ("test", "steps", "samples/epoch_*", "samples/inputs", "samples", "checkpoints")
OF_PICTURES = ("load_size", "max_dataset_size", "preprocess")  # settings that are fixed once pictures have been seen
BYTES = " bytes"  # ends the names of what a data set may have changed in and still be the same one


def refuse_other_stack(path, saved, stack):
    """Raises UserError where the run in `path` was trained on `saved`, whose checkpoints do not fit `stack`; see `layers.stack`."""
    if saved.get("keras") != stack["keras"]:
        raise UserError(
            f"{path} was trained with TensorFlow {saved.get('tensorflow')} (Keras {saved.get('keras')}), this is"
            f" {stack['tensorflow']} (Keras {stack['keras']}): its checkpoints fit only there; use that Python, or another folder"
        )


class RunDirectory:
    """The folder of a run, looked at but not changed until `start`; and, until `close`, closed to other processes.

    Args:
        config: the `Config` of this start; `output_dir` and `clear_output_dir` say where and whether to start over.
        stack: see `layers.stack`.
        writes: whether this process writes it; another worker's process does, if not, and no lock is needed.

    Raises:
        UserError: the folder can't be written to, or holds a run that this command can't go on with: of other networks, of
            another stack. It lists what differs. Or another process trains there.
    """

    def __init__(self, config, stack, writes=True):
        self.path = pathlib.Path(config.run.output_dir)
        self.config, self.stack, self.writes = config, stack, writes
        self.warnings = []  # what changes in this run from here on, texts
        self.saved_config = None  # the `Config` of the run so far, if it has a checkpoint
        self._saved_data = None
        self._lock = None
        nearest = next(path for path in (self.path, *self.path.absolute().parents) if os.path.exists(path))
        if writes and (not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK)):
            raise UserError(
                f"--output_dir {self.path}: {nearest} is not a folder that can be written to; expected one that can"
            )
        if writes and self._saved():
            self._close_to_others()
        try:
            self._look()
        except UserError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise UserError(f"--output_dir {self.path}: {error}; expected a folder that can be written to") from error

    def _look(self):
        written = self._written()
        if written and not self._saved():
            raise UserError(
                f"{self.path} holds {written[0].relative_to(self.path)}, but no config.json of a run, or a damaged one;"
                " expected a run of this program, or an empty folder: bring it back, or use another --output_dir"
            )
        if self.config.run.clear_output_dir:
            return
        if not any(self.path.glob("checkpoints/epoch_*")):
            log = self.path / "metrics.jsonl"
            if log.exists() and log.stat().st_size:
                raise UserError(
                    f"{self.path} holds the log of a run, but no checkpoint in {self.path / 'checkpoints'}; expected one to go on"
                    " from: bring them back, or start over with --clear_output_dir or in another --output_dir"
                )
            if self._saved().get("data") == {}:
                raise UserError(
                    f"{self.path} holds an imported run, but no checkpoint in {self.path / 'checkpoints'}; expected that of the"
                    " imported networks: bring it back, or import them again with --clear_output_dir"
                )
            return  # it was stopped before its first step
        config, stack = self.config, self.stack
        saved, saved_stack, self._saved_data = serialization.load(self.path / "config.json")
        refuse_other_stack(self.path, saved_stack, stack)
        if not self._saved_data:  # imported, and no picture seen yet: what only they depend on may be anything
            saved = saved.replace(**{name: getattr(config, name) for name in OF_PICTURES})
        self._refuse(changed_settings(saved, config, FIXED))
        self.warnings = [f"{change} from here on" for change in changed_settings(saved, config, WARN)]
        self.saved_config = saved

    def check_data(self, fingerprint):
        """Compares the data with what the run was trained on; what `fingerprint` (see `sources.Domains`) says of bytes may differ.

        A picture may have been repaired since, so that is a warning. An imported run has seen no data yet: any will do.

        Raises:
            UserError: the run was trained on other data.
        """
        saved = self._saved_data or fingerprint
        differ = [name for name in sorted(set(saved) | set(fingerprint)) if saved.get(name) != fingerprint.get(name)]
        change = {name: f"{saved.get(name)} -> {fingerprint.get(name)}" for name in differ}
        self._refuse([f"{name} {change[name]}" for name in differ if not name.endswith(BYTES)])
        self.warnings += [
            f"pictures of {name[: -len(BYTES)]} have the same names as before, but other sizes: {change[name]}. Training goes on"
            " with what they are now"
            for name in differ
        ]

    def start(self, fingerprint):
        """Makes the folder, or clears it if that was asked for, and writes config.json.

        Raises:
            UserError: that failed.
        """
        if not self.writes:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if self._lock is None:
                self._close_to_others()
                if self._written():  # since we looked
                    raise UserError(
                        f"{self.path}: another process has trained there in the meantime: start again to go on with it"
                    )
            if self.config.run.clear_output_dir:
                for path in self._written():
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                for path in (path for pattern in FOLDERS for path in self.path.glob(pattern)):
                    if path.is_dir() and not any(path.iterdir()):
                        path.rmdir()
            serialization.save(self.path / "config.json", self.config, self.stack, fingerprint)
        except OSError as error:
            raise UserError(f"--output_dir {self.path}: {error}; expected a folder that can be written to") from error

    def check(self):
        """Raises TrainingError if the folder was removed, moved or given to another run since `start`."""
        if not self.writes:
            return
        try:
            same = os.path.samestat(os.stat(self.path / ".lock"), os.fstat(self._lock))
        except OSError:
            same = False
        if not same:
            raise TrainingError(
                f"{self.path} was removed or moved while it was trained in; expected it to stay: training stops, so as not to write"
                " into another run"
            )

    def close(self):
        """Opens the folder to other processes."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def _written(self):
        return [path for pattern in WRITTEN for path in self.path.glob(pattern)]

    def _close_to_others(self):
        """Locks the file `.lock`. The lock goes with the process, however that ends; the file stays."""
        try:
            self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.truncate(self._lock, 0)
            os.write(self._lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                return  # a file system without locks
            holder = os.read(self._lock, 200).decode(errors="replace").strip() if self._lock is not None else ""
            self.close()
            if error.errno != errno.EWOULDBLOCK:
                raise UserError(
                    f"--output_dir {self.path}: {error}; expected a folder that can be written to"
                ) from error
            raise UserError(
                f"{self.path}: another process trains there ({holder or 'it has just begun'}); expected one at a time: wait for it,"
                " stop it, or use another --output_dir"
            ) from None

    def _saved(self):
        """What config.json holds if it is one of ours, even of another version: a dict; empty if it is not."""
        try:
            saved = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return saved if isinstance(saved, dict) and {"config", "stack", "data"} <= set(saved) else {}

    def _refuse(self, differences):
        if differences:
            raise UserError(
                f"{self.path} holds a run that differs: {', '.join(differences)}. Use the values it was started with,"
                " another --output_dir, or --clear_output_dir to start over"
            )
