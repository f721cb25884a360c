"""Training starts; `tests/system/` trains with this command."""

import pytest

from cyclegan.cli import train
from cyclegan.config import Config
from cyclegan.errors import MissingPackageError, UserError
from cyclegan.run import trackers
from cyclegan.run.run_directory import RunDirectory


def test_a_missing_tracker_is_reported_before_anything_else(monkeypatch):
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(train.terminal, "start", None)  # of TensorFlow
    with pytest.raises(MissingPackageError, match="^--wandb needs the package wandb: pip install "):
        train.main(["--wandb", "p"])


def test_an_output_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(UserError, match="--output_dir .*run: a file; expected a folder that can be written to"):
        RunDirectory(Config.from_settings(output_dir=str(tmp_path / "run")), {})
