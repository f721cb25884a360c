"""Training starts; `tests/system/` trains with this command."""

from unittest import mock

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
    "dataset, output, features, text",
    [
        ("absent", "run", "random", "--dataset .*absent: no such folder; expected"),
        ("date", "run", "random", "--dataset .*date: no such folder [(]do you mean .*/data[?][)]; expected"),
        ("data", "data/run", "random", "--output_dir .* lies in the folder"),
        ("data", "photos", "random", "--output_dir .*photos: is a folder of images; .*, such as .*/photos_run$"),
        ("data", "logs", "randon", "randon: no such file; expected one of random, "),
        ("data", "logs", "random", "TensorFlow is not needed yet"),
        ("logs", "run", "random", "/logs/trainA: no such folder.*; .*/logs has log.txt"),
        ("loop", "run", "random", "--dataset .*loop: a link to loop, and leads back to itself"),
        ("data", "gone", "random", "--output_dir .*gone: a link to nowhere, which does not exist; expected a folder"),
    ],
)
def test_arguments_are_checked_before_tensorflow_starts(monkeypatch, tmp_path, dataset, output, features, text):
    for split in ("trainA", "trainB"):
        (tmp_path / "data" / split).mkdir(parents=True)
        for number in range(2):
            (tmp_path / "data" / split / f"{number}.png").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("nowhere")
    for folder in ("photos", "logs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "photos" / "a.jpg").write_text("")
    (tmp_path / "logs" / "log.txt").write_text("")
    monkeypatch.setattr(train.terminal, "start", mock.Mock(side_effect=UserError("TensorFlow is not needed yet")))
    with pytest.raises(UserError, match=text):
        flags = ["--evaluate_every", "1", "--evaluate_features", features]
        train.main(["--dataset", str(tmp_path / dataset), "--output_dir", str(tmp_path / output), *flags])


def test_a_saved_configuration_chooses_neither_trackers_nor_verbosity(tmp_path):
    stranger = Config.from_settings(wandb="stranger", mlflow="http://stranger.example", lr=0.5, verbose=0)
    serialization.save(tmp_path / "config.json", stranger, {}, {})
    config, _ = train.configure(["--config", str(tmp_path / "config.json"), "--wandb", "mine"])
    assert (config.run.wandb, config.run.mlflow, config.optimization.lr) == ("mine", None, 0.5)
    assert config.run.verbose == 1


@pytest.fixture
def resume(tmp_path):
    """Return a function that begins a run with flags, and returns its settings and those that resume it with others."""
    folder = str(tmp_path / "run")

    def resume(first, then):
        config, _ = train.configure(["--dataset", "photos", *first.split(), "--output_dir", folder])
        serialization.save(tmp_path / "run" / "config.json", config, {}, {})
        return config.settings(), train.configure([*then.split(), "--output_dir", folder])[0].settings()

    (tmp_path / "run" / "checkpoints" / "epoch_0007-8").mkdir(parents=True)
    return resume


@pytest.mark.parametrize(
    "first, then, changed",
    [
        ("--preset fast --lr 0.001 --batch_size 2 --filters 4 --devices 2 --no_flip", "", {}),
        ("--preset fast --filters 4 --objective cut --lambda_nce 3", "--preset fast", {}),
        ("--init_from other --dataset photos --epochs 7", "", {}),
        ("--epochs 8 --lr 0.5", "--epochs 10", {"epochs": 10, "decay_from": 5}),
        ("--lr 0.5 --decay_from 3", "--lr_schedule constant", {"lr_schedule": "constant", "decay_from": None}),
        ("--preset fast --lr 0.5", "--preset paper --filters 32", {"preset": "paper", "image_size": 256}),
        ("--no_flip --devices 2 --lr 0.5", "--no-flip=false --devices auto", {"no_flip": False, "devices": None}),
        ("--devices 2", "--no-flip=true", {"no_flip": True}),
        ("--wandb mine --mlflow mine --profile 1:2", "", {"wandb": None, "mlflow": None, "profile": None}),
        ("--lr 0.5", "--wandb other --residual_blocks 2", {"wandb": "other", "generator": "resnet_2blocks"}),
    ],
)
def test_a_resumed_run_keeps_its_settings_except_for_the_flags(resume, monkeypatch, first, then, changed):
    monkeypatch.setattr("cyclegan.interop.torch_networks.find_files", lambda path: {})  # of --init_from
    before, after = resume(first, then)
    assert {name: after.get(name) for name in changed} == changed
    if not {"preset", "generator"} & set(changed):
        assert {name for name in before if before[name] != after.get(name)} <= set(changed)


def test_a_config_file_wins_over_the_run_that_resumes(resume, tmp_path):
    serialization.save(tmp_path / "other.json", Config.from_settings(lr=0.25, filters=8), {}, {})
    _, after = resume("--lr 0.5 --filters 4", f"--config {tmp_path}/other.json --filters 4")
    assert (after["lr"], after["filters"]) == (0.25, 4)


def test_a_run_that_starts_over_has_the_defaults(resume, tmp_path):
    _, after = resume("--preset fast --lr 0.5", "--clear_output_dir --dataset photos")
    assert (after["lr"], after["filters"], after["preset"]) == (2e-4, 64, None)
    (tmp_path / "run" / "config.json").write_text("damaged")
    config, _ = train.configure(["--output_dir", str(tmp_path / "run")])
    assert config.optimization.lr == 2e-4  # `RunDirectory` reports it
    (tmp_path / "run" / "checkpoints" / "epoch_0007-8").rmdir()
    _, after = resume("--lr 0.5", "--dataset photos")
    assert after["lr"] == 2e-4  # it has not begun to train


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--output_dir runs/w_photso", r"^runs/w_photso holds no run \(do you mean runs/w_photos\?\); a new run needs"),
        ("--output_dir photos --preset fast --clear_output_dir", "^photos holds no run; a new run needs --dataset$"),
        ("--output_dir images", "^images holds no run; a new run needs --dataset images$"),
        ("--output_dir runs/w_photos", "^runs/w_photos holds no run with a checkpoint; a new run needs --dataset$"),
        ("--output_dir runs/w_photos --clear_output_dir", "^runs/w_photos starts over; a new run needs --dataset"),
        ("--output_dir runs/w_photos --clear_output_dir --dataset photos", None),
        ("--dataset photos --init_from runs/w_photos/config.json", "a part of a run; .* --init_from runs/w_photos$"),
        ("--dataset photos --init_from runs/lost/checkpoints", "a part of a run; .* --init_from runs/lost$"),
        ("--output_dir runs/lost", "^runs/lost holds a run that has begun to train, but no complete checkpoint "),
        ("--output_dir runs", "^runs holds no run; expected a run in it: lost, w_photos; or --dataset for a new run$"),
        ("--output_dir runs/new --dataset photos", None),
        ("--output_dir runs/new --config runs/w_photos/config.json", None),
        ("--output_dir runs/new --preset demo", None),
        ("", None),
    ],
)
def test_a_new_run_with_an_output_folder_needs_a_dataset(monkeypatch, tmp_path, flags, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "w_photos").mkdir(parents=True)
    (tmp_path / "images" / "trainA").mkdir(parents=True)
    (tmp_path / "runs" / "lost" / "checkpoints").mkdir(parents=True)
    for name in ("w_photos", "lost"):
        serialization.save(f"runs/{name}/config.json", Config.from_settings(dataset="photos"), {}, {"trainA": "2"})
    (tmp_path / "runs" / "lost" / "metrics.jsonl").write_text("{}")
    if not text:
        train.configure(flags.split())
        return
    with pytest.raises(UserError, match=text) as refused:
        train.configure(flags.split())
    assert refused.value.exit_code == 2


def test_a_run_whose_images_have_moved_names_the_remedy(resume, tmp_path):
    resume("", "")
    with pytest.raises(UserError, match="run: its images, photos: no such folder; expected --dataset with their"):
        train.main(["--output_dir", str(tmp_path / "run")])


def test_an_output_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(UserError, match="--output_dir .*run is a file; expected a folder that can be written to"):
        RunDirectory(Config.from_settings(output_dir=str(tmp_path / "run")), {})
