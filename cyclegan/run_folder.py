"""The folder that a run lives in: whether this command may go on with what is there, and starting over."""

import json
import os
import pathlib
import shutil

from cyclegan.config import FIXED, WARN, Config
from cyclegan.errors import UserError

# What a run writes, and so what clearing removes: files, and folders of checkpoints.
WRITTEN = (
    "metrics.jsonl",
    "events.out.tfevents.*",
    "test/events.out.tfevents.*",
    "samples/epoch_*.png",
    "checkpoints/epoch_*",
    "checkpoints/.*_epoch_*",
    "config.json",
)
FOLDERS = ("test", "samples", "checkpoints")  # removed when that leaves them empty


class RunFolder:
    """The folder of a run, looked at but not changed until `start`.

    Args:
        config: the `Config` of this start; `output_dir` and `clear_output_dir` say where and whether to start over.
        stack: see `layers.stack`.

    Raises:
        UserError: the folder can't be written to, or holds a run that this command can't go on with: of other networks, of
            another stack. It lists what differs.
    """

    def __init__(self, config, stack):
        self.path = pathlib.Path(config.output_dir)
        self.config, self.stack = config, stack
        self.warnings = []  # what changes in this run from here on, texts
        self._saved_data = None
        nearest = next(path for path in (self.path, *self.path.absolute().parents) if path.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise UserError(
                f"--output_dir {self.path}: {nearest} is not a folder that can be written to; expected one that can"
            )
        written = [path for pattern in WRITTEN for path in self.path.glob(pattern)]
        if written and not self._holds_a_run():
            raise UserError(
                f"{self.path} holds {written[0].relative_to(self.path)}, but no config.json of a run; expected a run of this"
                " program, or an empty folder: use another --output_dir"
            )
        if config.clear_output_dir or not any(self.path.glob("checkpoints/epoch_*")):
            return  # nothing to go on with
        saved, saved_stack, self._saved_data = Config.load(self.path / "config.json")
        if saved_stack.get("keras") != stack["keras"]:
            raise UserError(
                f"{self.path} was trained with TensorFlow {saved_stack.get('tensorflow')} (Keras {saved_stack.get('keras')}), this"
                f" is {stack['tensorflow']} (Keras {stack['keras']}): its checkpoints fit only there; use that Python, or another"
                " --output_dir"
            )
        self._refuse(config.changes(saved, FIXED))
        self.warnings = [f"{change} from here on" for change in config.changes(saved, WARN)]

    def check_data(self, fingerprint):
        """Raises UserError if the run was trained on other data than that of `fingerprint` (see `sources.Domains`)."""
        saved = fingerprint if self._saved_data is None else self._saved_data
        splits = sorted(set(saved) | set(fingerprint))
        self._refuse(
            [f"{s} {saved.get(s)} -> {fingerprint.get(s)}" for s in splits if saved.get(s) != fingerprint.get(s)]
        )

    def start(self, fingerprint):
        """Makes the folder, or clears it if that was asked for, and writes config.json.

        Raises:
            UserError: that failed.
        """
        try:
            if self.config.clear_output_dir:
                for path in (path for pattern in WRITTEN for path in self.path.glob(pattern)):
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                for path in (self.path / name for name in FOLDERS):
                    if path.is_dir() and not any(path.iterdir()):
                        path.rmdir()
            self.path.mkdir(parents=True, exist_ok=True)
            self.config.save(self.path / "config.json", self.stack, fingerprint)
        except OSError as error:
            raise UserError(f"--output_dir {self.path}: {error}; expected a folder that can be written to") from error

    def _holds_a_run(self):
        """Whether config.json is one of ours, even of another version."""
        try:
            return {"config", "stack", "data"} <= set(
                json.loads((self.path / "config.json").read_text(encoding="utf-8"))
            )
        except (OSError, ValueError, TypeError):
            return False

    def _refuse(self, differences):
        if differences:
            raise UserError(
                f"{self.path} holds a run that differs: {', '.join(differences)}. Use the values it was started with,"
                " another --output_dir, or --clear_output_dir to start over"
            )
