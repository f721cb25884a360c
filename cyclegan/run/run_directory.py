"""Folder of a run: checkpoints by name, lock, checks before training resumes it, removal of its files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import json
import logging
import os
import pathlib
import re
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cyclegan.config import Config, serialization
from cyclegan.config.fields import FIXED
from cyclegan.config.serialization import changed_settings, with_measured_ranges
from cyclegan.errors import EXPECTED, TrainingError, UserError, describe_missing
from cyclegan.run.train_state import BYTES

logger = logging.getLogger(__name__)

# Settings that an imported run may change until it has seen images.
IMAGE_SETTINGS = (
    *("load_size", "max_dataset_size", "preprocess", "value_range_x", "value_range_y", "nodata"),
    *("stacks", "film_every", "slice_axis"),
)
CHECKPOINT = re.compile(r"(epoch_\d+(_pair_\d+)?(_test_\d+)?|best-x2y|best-y2x)-\d+")  # name and number
PATTERN = re.compile(r"[][*?\\]")  # letters that make TensorFlow look for files that match a path
EVENTS = "events.out.tfevents.*"
# Paths that a run writes, without `.lock`, relative to its folder.
WRITTEN = re.compile(
    r"metrics\.jsonl|(config\.json|index\.html|trackers\.json)(\.partial)?|((train|test|steps)/)?events\.out\.tfevents\..*"
    r"|plugins/profile|samples/(inputs|now|epoch_\d+(\.png)?(\.partial)?)"
    rf"|checkpoints/(partial|{CHECKPOINT.pattern})"
)
FOLDERS = ("train", "test", "steps", "plugins", "samples", "checkpoints")
FOREIGN = "{} is no file of this program; expected no such file: move it away, or use another --output_dir"
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # errors of file systems that have no locks


def saved_checkpoints(folder: pathlib.Path, name: str = "epoch_*") -> list[pathlib.Path]:
    """Return the checkpoints with a name: the oldest first, the best ones last.

    The name is one such as "epoch_0010-12", "epoch_0010" or "best-x2y", or a pattern of these.
    """
    found = [path for path in folder.glob("*") if CHECKPOINT.fullmatch(path.name) and path.is_dir()]
    found = [path for path in found if fnmatch.filter((path.name, path.name.rpartition("-")[0]), name)]
    return sorted(found, key=lambda path: (path.name.startswith("best"), checkpoint_number(path), path.name))


def find_checkpoints(folder: pathlib.Path, name: str) -> list[pathlib.Path]:
    """Return `saved_checkpoints`; raise `UserError` if there are none."""
    if found := saved_checkpoints(folder, name):
        return found
    names = ", ".join(path.name for path in saved_checkpoints(folder, "*"))
    expected = f"one of {names}" if names else "a run that has saved checkpoints"
    raise UserError(f"{folder / name}: no such checkpoint; expected {expected}")


def split_checkpoint(path: str | os.PathLike[str]) -> tuple[pathlib.Path, str]:
    """Return (folder of a run, name of a checkpoint) of the path RUN/checkpoints/NAME; no name for other paths."""
    whole = pathlib.Path(path).expanduser()
    is_checkpoint = whole.parent.name == "checkpoints" and (whole.parents[1] / "config.json").is_file()
    return (whole.parents[1], whole.name) if is_checkpoint else (whole, "")


def checkpoint_number(checkpoint: pathlib.Path) -> int:
    """Return the number of a checkpoint, which grows with every save."""
    return int(checkpoint.name.rpartition("-")[2])


def describe_last(run: pathlib.Path) -> str:
    """Describe the newest checkpoint of the folder of a run, for a message about the end of training."""
    saved = saved_checkpoints(run / "checkpoints")
    return (
        f"the last checkpoint is {saved[-1]}, and the same command resumes" if saved else "there is no checkpoint yet"
    )


def check_output_dir(config: Config) -> None:
    """Raise `UserError` if the folder of a run lies among images or in another run, or can't be written to."""
    path = pathlib.Path(config.run.output_dir)
    if config.data.is_inside(path):
        raise UserError(
            f"--output_dir {path}: lies in the folder of the images, {config.data.dataset}; expected a folder"
            " outside of it, because samples would become training images"
        )
    present = next(each for each in (path.absolute(), *path.absolute().parents) if os.path.lexists(each))
    if not present.exists():
        missing = describe_missing(present)
        raise UserError(f"--output_dir {path}: {present}: {missing}; expected a folder that can be written to")
    if not present.is_dir():
        raise UserError(f"--output_dir {path}: {present} is a file; expected a folder that can be written to")
    if not os.access(present, os.W_OK | os.X_OK):
        raise UserError(
            f"--output_dir {path}: {present} can't be written to; expected a folder that can be written to: use another"
            " one"
        )
    parents = pathlib.Path(os.path.realpath(path)).parents
    runs = [each for each in parents if (each / "checkpoints").is_dir() and read_config(each)]
    if runs and not read_config(path):
        run = runs[0] if path.is_absolute() else os.path.relpath(runs[0])
        raise UserError(
            f"--output_dir {path}: lies in the run {run}; resume it with --output_dir {run}, or choose another folder"
        )


def read_config(folder: pathlib.Path) -> dict[str, Any]:
    """Return the content of config.json if it belongs to a run, even one of another version; else an empty dict."""
    try:
        saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return saved if isinstance(saved, dict) and {"config", "stack", "data"} <= set(saved) else {}


def written_paths(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the paths in the folder of a run that a run writes, without `.lock`."""
    paths = sorted([*folder.glob("*"), *folder.glob("*/*")])
    return [path for path in paths if WRITTEN.fullmatch(path.relative_to(folder).as_posix())]


def refuse_other_stack(path: pathlib.Path, saved: Mapping[str, Any], stack: Mapping[str, Any]) -> None:
    """Raise `UserError` if a run was trained with another Keras, see `networks.compat.stack`."""
    if saved.get("keras") != stack["keras"]:
        raise UserError(
            f"{path} was trained with TensorFlow {saved.get('tensorflow')} (Keras {saved.get('keras')}), this is"
            f" {stack['tensorflow']} (Keras {stack['keras']}); expected the same Keras, because"
            " its checkpoints fit no other: use that Python, or another folder"
        )


def refuse_lost_checkpoints(folder: pathlib.Path, found: Mapping[str, Any]) -> None:
    """Raise `UserError` if the run had a checkpoint, so that it does not start from random weights."""
    log = folder / "metrics.jsonl"
    if found.get("imported") is True:
        kind, fix = "an imported run", "import the networks again with --clear_output_dir"
    elif log.exists() and log.stat().st_size:
        kind, fix = "a run that has begun to train", "start over with --clear_output_dir or in another --output_dir"
    else:
        return
    raise UserError(
        f"{folder} holds {kind}, but no complete checkpoint of this version in {folder / 'checkpoints'};"
        f" expected one to resume from: put it back, or {fix}"
    )


class RunDirectory:
    """Folder of a run: made, locked and inspected at first, written by `start`, and unlocked by `close`.

    The operating system locks the file `.lock`, which names the process. The lock ends with the process.
    A file system without locks is accepted. (`filelock.FileLock` erases the name before it has the lock, and takes such
    a file system for a lock of another process.)

    Args:
        config: Configuration of this start; `config.run` has the folder and whether to start over.
        stack: Versions of TensorFlow and Keras, see `networks.compat.stack`.
        writes: Whether this process is the chief, which writes the folder. The other workers need no lock.

    Attributes:
        path: The folder.
        config: Configuration of this start.
        saved_config: Configuration of the run so far; `None` if there is no checkpoint to resume from.

    Raises:
        UserError: The folder cannot be written or is among images or in another run, or another process trains there,
            or this command cannot resume its run: networks, data or stack differ, or the checkpoints are gone.
    """

    def __init__(self, config: Config, stack: Mapping[str, Any], writes: bool = True) -> None:
        self.path = pathlib.Path(config.run.output_dir)
        self.config = config
        self.saved_config: Config | None = None
        self._stack = dict(stack)
        self._writes = writes
        self._imported = False
        self._saved_data: dict[str, Any] = {}
        self._lock: int | None = None  # the descriptor of its file
        check_output_dir(config)
        try:
            with self.writing():
                if writes:
                    self.path.mkdir(parents=True, exist_ok=True)
                    self._lock = self._acquire_lock()
                self._inspect()
        except UserError:
            self.close()
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Turn an `OSError` inside the context into a `UserError` about the folder."""
        try:
            yield
        except OSError as error:
            reason = " is a file" if isinstance(error, FileExistsError) else f": {error.strerror}"
            expected = EXPECTED.get(error.errno or 0, "a folder that can be written to: use another one")
            where = error.filename or self.path
            raise UserError(f"--output_dir {self.path}: {where}{reason}; expected {expected}") from error

    def _acquire_lock(self) -> int:
        lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        holder, problem = os.pread(lock, 200, 0).decode(errors="replace").strip(), ""
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = (
                f"{self.path}: another process trains there ({holder}); expected one at a time: wait for it, stop it,"
                " or use another --output_dir"
            )
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
        if holder and not holder.startswith("process "):
            problem = FOREIGN.format(self.path / ".lock")
        if problem:
            os.close(lock)
            raise UserError(problem)
        os.truncate(lock, 0)
        os.write(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        return lock

    def _inspect(self) -> None:
        """Refuse a folder that holds something else, or a run that this command cannot resume; collect warnings."""
        found, written = read_config(self.path), written_paths(self.path)
        for path in (self.path / name for name in FOLDERS):
            if path.exists() and not path.is_dir():
                raise UserError(FOREIGN.format(path))
        if written and not found:
            raise UserError(
                f"{self.path} holds {written[0].relative_to(self.path)}, but no config.json of a run, or a damaged one;"
                " expected a run of this program, or an empty folder: put config.json back, or use another --output_dir"
            )
        if self.config.run.clear_output_dir:
            if not found and any(path.name != ".lock" for path in self.path.glob("*")):
                raise UserError(
                    f"--clear_output_dir: {self.path} holds files, but no run; expected the folder of a run, or an"
                    " empty one: use another --output_dir"
                )
            return
        saved = serialization.load(self.path / "config.json") if found else None
        if not saved or not saved_checkpoints(self.path / "checkpoints"):
            refuse_lost_checkpoints(self.path, found)
            return  # a run that was stopped before its first checkpoint
        refuse_other_stack(self.path, saved.stack, self._stack)
        self._saved_data, self._imported = saved.data, saved.imported
        self.saved_config = saved.config
        if not saved.data:
            unseen = {name: getattr(self.config.data, name) for name in IMAGE_SETTINGS}
            self.saved_config = saved.config.replace(**unseen)
        self.config = with_measured_ranges(self.saved_config, self.config)
        self._refuse_differences(
            changed_settings(self.saved_config, self.config, FIXED),
            "the values of its start: drop these flags; or use another --output_dir, or start over with"
            " --clear_output_dir",
        )

    def check_data(self, fingerprint: Mapping[str, Any]) -> None:
        """Raise `UserError` if the run was trained on other data, see `data.sources.Domains.fingerprint`.

        Other file lengths under the same names are allowed: a file may have been repaired.
        """
        saved = self._saved_data or fingerprint
        names = [name for name in sorted({*saved, *fingerprint}) if not name.endswith(BYTES)]
        change = {name: f"{saved.get(name, 'none')} -> {fingerprint.get(name, 'none')}" for name in names}
        folder = self.config.data.folder
        absent = [each for each in "AB" if folder and not (folder / f"test{each}").is_dir()]
        title = {f"test{each}": f"held-out images of train{each}" for each in absent}
        differ = (name for name in names if saved.get(name) != fingerprint.get(name))
        differences = [f"{title.get(name, name)} {change[name]}" for name in differ]
        for each in absent:
            splits = f"train{each}", f"test{each}"
            counts = [sum(int(data.get(split, "0").split(" ")[0]) for split in splits) for data in (saved, fingerprint)]
            if counts[0] != counts[1]:
                differences.insert(0, f"images in train{each} {counts[0]} -> {counts[1]}")
        self._refuse_differences(
            differences,
            "the images and masks of its start. Put them back. If another folder has them, give it as --dataset. To"
            f" train on the present ones from these weights and with these settings, give --config {self.path}"
            f" --init_from {self.path} and another --output_dir",
        )

    def start(self, fingerprint: Mapping[str, Any]) -> None:
        """Clear the folder if --clear_output_dir is given, and write config.json; an imported run has no data.

        Raises:
            UserError: The folder cannot be written.
        """
        if not self._writes:
            return
        with self.writing():
            if self.config.run.clear_output_dir:
                self._clear()
            config = serialization.with_absolute_paths(self.config)
            serialization.save(self.path / "config.json", config, self._stack, dict(fingerprint), self._imported)

    def _clear(self) -> None:
        """Remove what a run has written; other files and their folders stay."""
        for path in written_paths(self.path):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != "config.json":  # a new one replaces it
                path.unlink()
        for path in (self.path / name for name in FOLDERS):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        if read_config(self.path):
            logger.info(f"Removed the run in {self.path}")

    def check(self) -> None:
        """Raise `TrainingError` if the folder was removed, moved or given to another run since `start`."""
        path = self.path / ".lock"
        if self._lock is not None and not (path.exists() and os.path.samestat(path.stat(), os.fstat(self._lock))):
            raise TrainingError(
                f"{self.path} was removed or moved during training; expected the folder to stay: training stops, so"
                " as not to write into another run"
            )

    def close(self) -> None:
        """Release the lock, and remove the folder if nothing was started in it."""
        if self._lock is None:
            return
        if not read_config(self.path):
            with contextlib.suppress(OSError):  # it holds something
                (self.path / ".lock").unlink()
                self.path.rmdir()
        os.close(self._lock)
        self._lock = None

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _refuse_differences(self, differences: Sequence[str], expected: str) -> None:
        if differences:
            raise UserError(f"{self.path} holds a run that differs: {', '.join(differences)}; expected {expected}")
