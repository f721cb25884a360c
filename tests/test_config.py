import json

import pytest

from cyclegan.config import FIXED, FREE, WARN, Config
from cyclegan.errors import UserError


def test_defaults_are_those_of_the_paper_on_horse2zebra():
    config = Config.from_args([])
    assert config.dataset == "cycle_gan/horse2zebra" and config.output_dir == "runs/horse2zebra"
    assert (config.epochs, config.batch_size, config.image_size, config.load_size) == (200, 1, 256, 286)
    assert (config.filters, config.residual_blocks) == (64, 9)
    assert (config.lr, config.beta_1, config.beta_2) == (2e-4, 0.5, 0.999)
    assert (config.lambda_cycle, config.lambda_identity, config.adversarial) == (10, 5, "lsgan")
    assert (config.plot_every, config.checkpoint_every, config.keep) == (10, 1, 3)


def test_defaults_follow_the_data_set_and_the_size():
    stripes = Config.from_args(["--dataset", "stripes"])
    assert (stripes.image_size, stripes.load_size, stripes.output_dir) == (64, 64, "runs/stripes")
    assert Config.from_args(["--dataset", "stripes", "--image_size", "128"]).load_size == 128
    small = Config.from_args(["--image_size", "128"])
    assert (small.load_size, small.residual_blocks) == (143, 6)
    assert Config.from_args(["--dataset", "/data/my pictures/"]).output_dir == "runs/my pictures"


def test_flags_given_by_hand_win():
    assert Config.from_args(["--dataset", "stripes", "--lr", "0.5", "--filters", "7"]).lr == 0.5


def test_flags_take_dashes_and_underscores():
    assert Config.from_args(["--batch-size", "3", "--clear-output-dir"]) == Config.from_args(
        ["--batch_size", "3", "--clear_output_dir"]
    )


@pytest.mark.parametrize("verbose", ["0", "1", "2"])
def test_every_verbosity_is_accepted(verbose):
    assert Config.from_args(["--verbose", verbose]).verbose == int(verbose)


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--batch_size 0", "--batch_size 0: expected at least 1 image pair per replica"),
        ("--epochs 0", "--epochs 0: expected at least 1"),
        ("--devices 0", "--devices 0: expected at least 1 device"),
        ("--image_size 258", "--image_size 258: expected a multiple of 4"),
        ("--image_size 8", "--image_size 8: expected at least 16 pixels"),
        ("--image_size 64 --load_size 60", "--load_size 60: expected at least 64 pixels (--image_size)"),
        ("--lr 0", "--lr 0.0: expected a finite number above 0"),
        ("--lr nan", "--lr nan: expected a finite number above 0"),
        ("--lr 1e400", "--lr inf: expected a finite number above 0"),
        ("--lambda_cycle -1", "--lambda_cycle -1.0: expected a finite number of at least 0"),
        ("--seed 4294967296", "--seed 4294967296: expected at most 4294967295"),
        ("--beta_1 1", "--beta_1 1.0: expected at least 0 and less than 1"),
        ("--seed -1", "--seed -1: expected at least 0"),
        ("--keep 0", "--keep 0: expected at least 1"),
    ],
)
def test_values_that_cannot_work_are_refused(flags, text):
    with pytest.raises(UserError) as error:
        Config.from_args(flags.split())
    assert text in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("flag", ["--dataset", "--output_dir", "--data_dir"])
def test_empty_names_are_refused(flag):
    with pytest.raises(UserError, match=f"{flag} '': expected"):
        Config.from_args([flag, ""])


def test_a_tilde_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    config = Config.from_args(["--output_dir=~/runs", "--data_dir=~/data"])
    assert (config.output_dir, config.data_dir) == ("/home/me/runs", "/home/me/data")


@pytest.mark.parametrize("flags", ["--epochs ten", "--adversarial wgan", "--verbose 3", "--no_such_flag", "--epoch 3"])
def test_what_argparse_refuses_is_one_line_and_code_2(flags, capsys):
    with pytest.raises(SystemExit) as exit:
        Config.from_args(flags.split())
    message = capsys.readouterr().err
    assert exit.value.code == 2 and message.count("\n") == 1 and flags.split()[0] in message


def test_help_groups_the_flags_and_shows_defaults_and_units(capsys):
    with pytest.raises(SystemExit) as exit:
        Config.from_args(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert exit.value.code == 0
    for part in (
        "data:",
        "networks:",
        "training:",
        "output:",
        "default: 256; stripes: 64",
        "in pixels",
        "(default: 200)",
    ):
        assert part in text
    assert "None" not in text


def test_a_saved_configuration_comes_back(tmp_path):
    config = Config.from_args(["--dataset", "stripes", "--lr", "1", "--data_dir", "é\n\"'"])
    config.save(tmp_path / "config.json", {"keras": 2}, {"trainA": "3 pictures"})
    assert Config.load(tmp_path / "config.json") == (config, {"keras": 2}, {"trainA": "3 pictures"})
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda saved: saved["config"].update(pool_size=50), "unknown fields 'pool_size'"),
        (
            lambda saved: saved["config"].update(epochs="__import__('os')"),
            "epochs is \"__import__('os')\", expected int",
        ),
        (lambda saved: saved["config"].update(epochs=True), "epochs is True, expected int"),
        (lambda saved: saved["config"].update(epochs=-1), "config.json: --epochs -1: expected at least 1"),
        (lambda saved: saved.pop("config"), "can't be read as the configuration of a run"),
        (lambda saved: saved.update(config=[1]), "can't be read as the configuration of a run"),
    ],
)
def test_a_configuration_of_someone_else_is_refused(tmp_path, change, text):
    path = tmp_path / "config.json"
    Config().save(path, {}, {})
    saved = json.loads(path.read_text())
    change(saved)
    path.write_text(json.dumps(saved))
    with pytest.raises(UserError) as error:
        Config.load(path)
    assert text in str(error.value)


def test_a_configuration_that_is_missing_or_no_json_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        Config.load(tmp_path / "config.json")
    (tmp_path / "config.json").write_bytes(b"\xff{")
    with pytest.raises(UserError, match="can't be read"):
        Config.load(tmp_path / "config.json")


def test_changes_are_told_by_what_they_mean_for_a_run():
    old, new = Config(filters=8, lr=1.0, epochs=2), Config(filters=9, lr=2.0, epochs=3)
    assert new.changes(old, FIXED) == ["filters 8 -> 9"]
    assert new.changes(old, WARN) == ["lr 1.0 -> 2.0"]
    assert new.changes(old, FREE) == ["epochs 2 -> 3"]
