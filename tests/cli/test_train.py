"""Training starts; `tests/system/` trains with this command."""

import pytest

from cyclegan.cli import train
from cyclegan.config import Config, serialization
from cyclegan.errors import MissingPackageError, UserError
from cyclegan.run import trackers
from cyclegan.run.run_directory import RunDirectory


def test_a_missing_tracker_is_reported_before_anything_else(monkeypatch):
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(train.terminal, "start", None)  # of TensorFlow
    with pytest.raises(MissingPackageError, match="^--wandb needs the package wandb: pip install "):
        train.main(["--wandb", "p"])


@pytest.mark.parametrize(
    "dataset, output, text",
    [
        ("absent", "run", "--dataset .*absent: no such folder"),
        ("data", "data/run", "--output_dir .* lies in the folder"),
    ],
)
def test_folders_are_checked_before_tensorflow_starts(monkeypatch, tmp_path, dataset, output, text):
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(train.terminal, "start", None)
    with pytest.raises(UserError, match=text):
        train.main(["--dataset", str(tmp_path / dataset), "--output_dir", str(tmp_path / output)])


def test_a_saved_configuration_does_not_choose_trackers(tmp_path):
    stranger = Config.from_settings(wandb="stranger", mlflow="http://stranger.example", lr=0.5)
    serialization.save(tmp_path / "config.json", stranger, {}, {})
    config, _ = train.configure(["--config", str(tmp_path / "config.json"), "--wandb", "mine"])
    assert (config.run.wandb, config.run.mlflow, config.optimization.lr) == ("mine", None, 0.5)


def test_a_finished_run_is_finished_until_epochs_are_given(tmp_path):
    def epochs(*flags):
        return train.configure(["--output_dir", str(tmp_path), *flags])[0].optimization.epochs

    serialization.save(tmp_path / "config.json", Config.from_settings(epochs=7), {}, {})
    assert epochs() == 200  # no checkpoint yet
    (tmp_path / "checkpoints" / "epoch_0007-8").mkdir(parents=True)
    assert (epochs(), epochs("--epochs", "9"), epochs("--clear_output_dir"), epochs("--preset", "fast")) == (
        7,
        9,
        200,
        100,
    )
    (tmp_path / "config.json").write_text("damaged")
    assert epochs() == 200  # `RunDirectory` reports it


def test_an_output_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(UserError, match="--output_dir .*run is a file; expected a folder that can be written to"):
        RunDirectory(Config.from_settings(output_dir=str(tmp_path / "run")), {})
