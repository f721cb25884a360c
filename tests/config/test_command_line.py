import argparse
import os
import subprocess
import sys

import pytest

from cyclegan.config import Config, serialization
from cyclegan.config.command_line import PRESETS, count, explain, parse_args, size
from cyclegan.errors import UserError


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves a configuration and returns the flags that load it."""

    def save(**values):
        serialization.save(tmp_path / "config.json", Config.from_settings(**values), {}, {})
        return ["--config", str(tmp_path / "config.json")]

    return save


def refusal(capsys, *flags):
    """Return the one line that refuses flags with exit code 2."""
    with pytest.raises(SystemExit) as end:
        parse_args(flags)
    message = capsys.readouterr().err
    assert end.value.code == 2 and message.count("\n") == 1
    return message


def test_flags_win_over_file_over_preset(saved):
    file = saved(filters=8, lr=0.5, epochs=7, pool_size=3, dataset="stripes")
    settings = parse_args(["--lr", "0.25", *file, "--preset", "tutorial", "--output-dir", "elsewhere"]).settings()
    expected = {"lr": 0.25, "pool_size": 3, "output_dir": "elsewhere", "filters": 8, "epochs": 7, "beta_2": 0.999}
    expected |= {"dataset": "stripes", "preset": "tutorial"}
    assert {name: settings[name] for name in expected} == expected


def test_config_file_gives_the_same_training(saved):
    chosen = {"filters": 8, "generator": "resnet_2blocks", "lr": 0.5, "image_size": 128, "objective": "cut"}
    before = Config.from_settings(**chosen, clear_output_dir=True, output_dir="there").settings()
    after = parse_args(saved(**chosen, clear_output_dir=True, output_dir="there")).settings()
    assert {name for name in before if before[name] != after[name]} == {"output_dir", "clear_output_dir"}


@pytest.mark.parametrize(
    "flags, expected",
    [
        ("--lr 1e-5", {"lr_discriminator": 1e-5}),
        ("--epochs 400", {"decay_from": 200}),
        ("--image_size 128", {"image_width": 128, "load_size": 143, "generator": "resnet_9blocks"}),  # as saved
        ("--residual_blocks 3", {"generator": "resnet_3blocks"}),
        ("--generator unet_256", {"generator": "unet_256"}),
        ("--variant paper", {"norm_affine": "no", "epsilon": 1e-8}),
        ("--objective cut", {"pool_size": 0, "norm_affine": "no"}),
        ("--dataset stripes", {"image_size": 256, "filters": 64, "residual_blocks": 9, "lr": 2e-4, "load_size": 256}),
    ],
)
def test_derived_settings_follow_the_flags(saved, flags, expected):
    for first in (saved(), ["--preset", "paper"]):
        settings = parse_args([*first, *flags.split()]).settings()
        for name, value in expected.items():
            assert settings[name] == value, (name, first)


def test_chosen_settings_stay(saved):
    chosen = {"lr_discriminator": 0.5, "decay_from": 3, "image_width": 64, "norm_affine": "no", "load_size": 300}
    chosen["generator"] = "resnet_2blocks"
    settings = parse_args([*saved(**chosen), "--lr", "1", "--epochs", "9", "--image_size", "128"]).settings()
    assert {name: settings[name] for name in chosen} == chosen


@pytest.mark.parametrize(
    "replaced, flags, gone",
    [
        ({"lambda_cycle": 3.0, "lambda_identity": 1.0}, "--objective cut", "lambda_cycle"),
        ({"decay_from": 3}, "--lr_schedule constant", "decay_from"),
        ({"adversarial": "wgan-gp", "lambda_gp": 3.0}, "--adversarial hinge", "lambda_gp"),
        ({"discriminator_layers": 2}, "--discriminator pixel", "discriminator_layers"),
        ({"residual_blocks": 2}, "--generator unet_256", "residual_blocks"),
    ],
)
def test_a_component_of_the_file_may_be_replaced(saved, replaced, flags, gone):
    assert gone not in parse_args([*saved(**replaced), *flags.split()]).settings()
    with pytest.raises(UserError, match=f"--{gone} belongs to --"):
        parse_args([*saved(**replaced), *flags.split(), f"--{gone}", "1"])


@pytest.mark.parametrize(
    "flags, folder",
    [
        ("--preset demo", "runs/demo"),
        ("--preset demo --dataset stripes", "runs/demo"),
        ("--preset demo --dataset /my/photos", "runs/photos"),
        ("--preset demo --dataset /my/photos --output_dir there", "there"),
        ("--output_dir=~/there", os.path.expanduser("~/there")),
    ],
)
def test_output_dir_of_a_preset_is_for_its_dataset(flags, folder):
    before = dict(PRESETS["demo"])
    assert parse_args(flags.split()).run.output_dir == folder
    assert PRESETS["demo"] == before


def test_saved_networks_win_on_another_dataset(saved):
    settings = parse_args([*saved(dataset="stripes"), "--dataset", "mine", "--preset", "fast"]).settings()
    names = ("filters", "generator", "image_size", "lr", "output_dir")
    assert [settings[name] for name in names] == [16, "resnet_3blocks", 64, 1e-3, os.path.join("runs", "mine")]


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--epochs ten", ": --epochs 'ten': expected a whole number; --help"),
        ("--cache tape", ": --cache 'tape': expected one of "),
        ("--steps_per_call 1.5", ": --steps_per_call '1.5': expected a whole number; --help"),
        ("--lr small", ": --lr 'small': expected a number; --help"),
        ("--lr", ": --lr: expected one argument; --help"),
        (
            "--dataroot photos --n-epochs=5 --bach-size 2 --lr 1 --xyzzy --gpu_ids 0,1 --num_threads 4",
            ": unknown arguments: --dataroot (here: --dataset), --n_epochs (here: --epochs, which includes the decay),"
            " --bach_size (do you mean --batch_size?), --xyzzy, --gpu_ids (here: CUDA_VISIBLE_DEVICES=0,1 before the"
            " command), --num_threads (here: not needed); --help lists the flags",
        ),
        ("--resume", ": unknown arguments: --resume (here: the same command again); --help"),
        (
            "--verbose --dataroot a --phase train --init_gain 0.02 --lambda_NCE 1 --Lambda_SRC 1",
            ": unknown arguments: --dataroot (here: --dataset), --phase (here: not needed), --init_gain (here: always"
            " 0.02), --lambda_NCE (here: --lambda_nce with --objective cut), --Lambda_SRC (do you mean --lambda_src?);",
        ),
        ("--batch 2 --quantize", "--batch (do you mean --batch_size?), --quantize; --help"),
        ("photos --lr 1", ": unknown arguments: photos (do you mean --dataset photos?); --help lists the flags"),
    ],
)
def test_a_mistake_is_one_line_with_code_2(capsys, flags, text):
    assert text in refusal(capsys, *flags.split())


def test_config_takes_the_folder_of_a_run(saved, tmp_path):
    flags = saved(dataset="stripes", lr=0.5)
    assert parse_args(["--config", str(tmp_path)]) == parse_args(flags)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty/config\.json: no such file; expected the config\.json of a run"):
        parse_args(["--config", str(tmp_path / "empty")])


def test_the_folder_of_a_run_is_taken_for_no_dataset(capsys, saved, tmp_path):
    saved(dataset="stripes")
    assert f": {tmp_path} (do you mean --output_dir {tmp_path}?); --help" in refusal(capsys, str(tmp_path))
    assert explain(str(tmp_path), ["--dataset"]) == str(tmp_path)


@pytest.mark.parametrize(
    "flags, shown, hidden",
    [
        ([], ["data:", "networks:", "run:", "--lambda_cycle", "stripes, scenes: 64", "(default: 50)"], ["--lambda_gp"]),
        (["--objective", "cut", "--adversarial", "wgan-gp"], ["--lambda_gp", "--lambda_paired"], ["--lambda_cycle"]),
    ],
)
def test_help_shows_the_flags_of_the_chosen_components(capsys, flags, shown, hidden):
    with pytest.raises(SystemExit) as exit:
        parse_args([*flags, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert exit.value.code == 0 and "None" not in text
    assert all(part in text for part in shown) and not any(part in text for part in hidden)


def test_help_says_of_each_objective_what_it_trains(capsys):
    with pytest.raises(SystemExit):
        parse_args(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "; fastcut: One generator X -> Y, as in cut, without the identity loss" in text


def test_flags_are_read_without_tensorflow():
    code = "import sys; from cyclegan.config.command_line import parse_args; parse_args(['--objective', 'cut'])"
    code += "; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_types_of_arguments():
    assert (size("256"), size("300x200"), count("007")) == ((256, 256), (300, 200), 7)
    for text in ("", "0x7", "7x0", "x7", "1x2x3", "-8", "8.0", "100000", "1٣"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a number of pixels, or WIDTHxHEIGHT"):
            size(text)
    for text in ("", "0", "-1", "1.5", "1e3", "1٣"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a whole number of at least 1"):
            count(text)
    assert [parse_args(["--nodata", text]).data.nodata for text in ("-9999", "-3.4e38")] == [-9999, -3.4e38]
    with pytest.raises(UserError, match="--nodata nan: expected a finite number"):
        parse_args(["--nodata", "nan"])
