"""Training starts; `tests/system/` trains with this command."""

import pytest

from cyclegan.cli import train
from cyclegan.errors import MissingPackageError
from cyclegan.run import trackers


def test_a_missing_tracker_is_reported_before_anything_else(monkeypatch):
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(train.terminal, "start", None)  # of TensorFlow
    with pytest.raises(MissingPackageError, match="^--wandb needs the package wandb: pip install wandb$"):
        train.main(["--wandb", "p"])
