"""Folder of a run: checks before training resumes it, and removal of its files to start over."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from cyclegan import whole_file
from cyclegan.config import Config, serialization
from cyclegan.config.fields import FIXED, WARN
from cyclegan.config.serialization import changed_settings, with_measured_ranges
from cyclegan.errors import UserError
from cyclegan.run import files, folder, run_files
from cyclegan.run.lock import FolderLock
from cyclegan.run.train_state import TrainState

# Settings that an imported run may change until it has seen images.
IMAGE_SETTINGS = ("load_size", "max_dataset_size", "preprocess", "value_range_x", "value_range_y")
BYTES = " bytes"  # suffix of the fingerprint's entries that may change in the same dataset


def refuse_other_stack(path: pathlib.Path, saved: Mapping[str, Any], stack: Mapping[str, Any]) -> None:
    """Raise `UserError` if a run was trained with another Keras, because its checkpoints do not fit this one.

    Args:
        path: Folder of the run.
        saved: Stack of the run, see `networks.compat.stack`.
        stack: Stack of this process.
    """
    if saved.get("keras") != stack["keras"]:
        raise UserError(
            f"{path} was trained with TensorFlow {saved.get('tensorflow')} (Keras {saved.get('keras')}), this is"
            f" {stack['tensorflow']} (Keras {stack['keras']}); expected the same Keras, as"
            " its checkpoints fit only there: use that Python, or another folder"
        )


class RunDirectory:
    """Folder of a run: inspected at first, written by `start`, and locked until `close`.

    Args:
        config: Configuration of this start; `config.run` has the folder and whether to start over.
        stack: Versions of TensorFlow and Keras, see `networks.compat.stack`.
        writes: Whether this process is the chief, which writes the folder. The other workers need no lock.

    Attributes:
        path: The folder.
        config: Configuration of this start.
        stack: Versions of TensorFlow and Keras of this process.
        saved_config: Configuration of the run so far; `None` if there is no checkpoint to resume from.
        warnings: Descriptions of what changes in this run from here on.

    Raises:
        UserError: The folder cannot be written; or another process trains there; or this command cannot resume its run, because
            the networks, the data or the stack differ, or because the checkpoints are gone.
    """

    def __init__(self, config: Config, stack: Mapping[str, Any], writes: bool = True) -> None:
        self.path = pathlib.Path(config.run.output_dir)
        self.config = config
        self.saved_config: Config | None = None
        self.warnings: list[str] = []
        self.stack = dict(stack)
        self._writes = writes
        self._lock = FolderLock(self.path)
        self._imported = False
        self._saved_data: dict[str, Any] = {}
        self._fingerprint: dict[str, Any] = {}
        nearest = next(path for path in (self.path, *self.path.absolute().parents) if os.path.exists(path))
        if writes and (not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK)):
            raise UserError(
                f"--output_dir {self.path}: {nearest} is not a folder that can be written to; expected one that can"
            )
        if writes and self._read_config():
            self._lock.acquire()
        try:
            self._inspect()
        except OSError as error:
            self.close()
            raise self._not_writable(error) from error
        except UserError:
            self.close()
            raise

    def _inspect(self) -> None:
        """Refuse a folder that holds something else, or a run that this command cannot resume; collect warnings."""
        if self._writes and (link := next(run_files.links(self.path), None)):
            raise UserError(
                f"{link}: a link that a write would follow out of the run; expected a file or folder of the run: replace the link"
                " by a copy, or use another --output_dir"
            )
        written, found = self._written(), self._read_config()
        if written and not found:
            raise UserError(
                f"{self.path} holds {written[0].relative_to(self.path)}, but no config.json of a run, or a damaged one;"
                " expected a run of this program, or an empty folder: put config.json back, or use another --output_dir"
            )
        if self.config.run.clear_output_dir:
            return
        if not any(folder.candidates(self.path / "checkpoints")):
            self._refuse_lost_checkpoints(found)
            return  # a run that was stopped before its first checkpoint
        saved = serialization.load(self.path / "config.json")
        refuse_other_stack(self.path, saved.stack, self.stack)
        self._saved_data, self._imported = saved.data, saved.imported
        self.saved_config = saved.config
        if not saved.data:
            unseen = {name: getattr(self.config.data, name) for name in IMAGE_SETTINGS}
            self.saved_config = saved.config.replace(**unseen)
        self.config = with_measured_ranges(self.saved_config, self.config)
        self._refuse_differences(changed_settings(self.saved_config, self.config, FIXED))
        self.warnings = [f"{change} from here on" for change in changed_settings(self.saved_config, self.config, WARN)]

    def _refuse_lost_checkpoints(self, found: Mapping[str, Any]) -> None:
        """Raise `UserError` if the run had a checkpoint, so that it does not start from random weights."""
        missing = f"but no complete checkpoint in {self.path / 'checkpoints'}"
        if found.get("imported") is True:
            raise UserError(
                f"{self.path} holds an imported run, {missing}; expected the checkpoint of the imported networks: put it back, or"
                " import them again with --clear_output_dir"
            )
        log = self.path / "metrics.jsonl"
        if found.get("has_checkpoint") is True or (log.exists() and log.stat().st_size):
            raise UserError(
                f"{self.path} holds a run that has begun to train, {missing}; expected one to resume from: put it back, or start"
                " over with --clear_output_dir or in another --output_dir"
            )

    def check_restored(self, train_state: TrainState | None) -> None:
        """Check the position that training resumes from.

        Args:
            train_state: The training state of the checkpoint; `None` for a new run.

        Raises:
            UserError: The run has a checkpoint but none was restored, or the checkpoint is beyond the end of the run.
        """
        if not self.saved_config:
            return
        if train_state is None:
            raise UserError(
                f"{self.path} had a checkpoint, which has just disappeared; expected it to stay: put it back, or start over with"
                " --clear_output_dir"
            )
        epochs = max(self.saved_config.optimization.epochs, self.config.optimization.epochs)
        if train_state.epoch > epochs:
            raise UserError(
                f"the checkpoint has done {train_state.epoch} epochs; expected at most {epochs}, as config.json of {self.path}"
                " says: one of the two was changed; put it back, or use another --output_dir"
            )

    def check_data(self, fingerprint: Mapping[str, Any]) -> None:
        """Compare the data with the data that the run was trained on; an imported run accepts any data.

        Other file lengths under the same names only cause a warning: a file may have been repaired.

        Args:
            fingerprint: Description of the data, see `data.sources.Domains.fingerprint`.

        Raises:
            UserError: The run was trained on other data.
        """
        saved = self._saved_data or fingerprint
        differ = [name for name in sorted({*saved, *fingerprint}) if saved.get(name) != fingerprint.get(name)]
        change = {name: f"{saved.get(name)} -> {fingerprint.get(name)}" for name in differ}
        self._refuse_differences([f"{name} {change[name]}" for name in differ if not name.endswith(BYTES)])
        self.warnings += [
            f"images of {name[: -len(BYTES)]} have the same names as before, but other sizes: {change[name]}. Training continues"
            " with the present images"
            for name in differ
        ]

    def start(self, fingerprint: Mapping[str, Any]) -> None:
        """Make the folder, clear it if --clear_output_dir is given, and write config.json.

        Args:
            fingerprint: Description of the data; empty for a run of imported networks.

        Raises:
            UserError: The folder cannot be written, or another process has just started there.
        """
        if not self._writes:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not self._lock.is_held:
                self._lock.acquire()
                if self._written():  # since `_inspect`
                    raise UserError(
                        f"{self.path}: another process has trained there in the meantime; expected a new folder: start again to"
                        " resume that run"
                    )
            if self.config.run.clear_output_dir:
                self._clear()
        except OSError as error:
            raise self._not_writable(error) from error
        self._fingerprint, self._imported = dict(fingerprint), self._imported or not fingerprint
        self._write_config(has_checkpoint=self.saved_config is not None)

    def note_checkpoint(self) -> None:
        """Note in config.json that the run has a checkpoint, so that a start without one is refused.

        Raises:
            UserError: The file cannot be written.
        """
        if self._writes:
            self._write_config(has_checkpoint=True)

    def _write_config(self, has_checkpoint: bool) -> None:
        try:
            serialization.save(
                self.path / "config.json", self.config, self.stack, self._fingerprint, self._imported, has_checkpoint
            )
        except OSError as error:
            raise self._not_writable(error) from error

    def _clear(self) -> None:
        """Remove the files and folders that a run has written; foreign files and their folders stay."""
        for path in sorted(run_files.find(self.path, run_files.CHECKPOINTS)):  # hidden ones first: see `discard_hidden`
            if path.is_dir() and not path.is_symlink():  # else it is the user's
                files.discard_hidden(path) if path.name.startswith(".") else files.remove_own(path)
        for path in run_files.find(self.path, (*run_files.FILES, *run_files.PARTIAL_FILES)):
            if not path.is_dir() or path.is_symlink():
                path.unlink()
        for path in run_files.find(self.path, run_files.FOLDERS):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    def check(self) -> None:
        """Raise `TrainingError` if the folder was removed, moved or given to another run since `start`."""
        if self._writes:
            self._lock.check()

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _written(self) -> list[pathlib.Path]:
        return run_files.find(self.path, (*run_files.FILES, *run_files.CHECKPOINTS))

    def _read_config(self) -> dict[str, Any]:
        """Return the content of config.json if it belongs to a run, even one of another version; else an empty dict."""
        try:
            saved = json.loads(whole_file.read_text(self.path / "config.json"))
        except (OSError, ValueError, RecursionError):
            return {}
        return saved if isinstance(saved, dict) and {"config", "stack", "data"} <= set(saved) else {}

    def _not_writable(self, error: OSError) -> UserError:
        return UserError(
            f"--output_dir {self.path}: {error}; expected a folder that can be written to: use another one"
        )

    def _refuse_differences(self, differences: Sequence[str]) -> None:
        if differences:
            raise UserError(
                f"{self.path} holds a run that differs: {', '.join(differences)}; expected the values of its start: use these,"
                " another --output_dir, or --clear_output_dir to start over"
            )
