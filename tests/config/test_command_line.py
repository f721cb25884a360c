import os

import pytest

from cyclegan.config import Config, serialization
from cyclegan.config.command_line import parse_args
from cyclegan.config.presets import PRESETS
from cyclegan.errors import UserError
from tests.config.helpers import flat


def test_flags_win_over_file_over_preset(tmp_path):
    saved = Config.from_settings(filters=8, lr=0.5, epochs=7, pool_size=3, dataset="stripes", output_dir=str(tmp_path))
    serialization.save(tmp_path / "config.json", saved, {}, {})
    flags = [
        "--lr",
        "0.25",
        "--config",
        str(tmp_path / "config.json"),
        "--preset",
        "tutorial",
        "--output_dir",
        "elsewhere",
    ]
    config = flat(parse_args(flags))
    assert (config.lr, config.pool_size, config.output_dir) == (0.25, 3, "elsewhere")
    assert (config.filters, config.epochs, config.dataset, config.preset) == (8, 7, "stripes", "tutorial")


def test_config_file_gives_the_same_training(tmp_path):
    saved = Config.from_settings(
        filters=8, generator="resnet_2blocks", lr=0.5, image_size=128, clear_output_dir=True, output_dir="there"
    )
    serialization.save(tmp_path / "config.json", saved, {}, {})
    config = flat(parse_args(["--config", str(tmp_path / "config.json")]))
    differ = {name for name, value in vars(config).items() if value != getattr(flat(saved), name)}
    assert differ == {"output_dir", "clear_output_dir"}


def test_invalid_config_file_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="can't be read as the configuration of a run"):
        parse_args(["--config", str(tmp_path / "config.json")])


def test_unknown_preset_is_refused(capsys):
    with pytest.raises(SystemExit):
        parse_args(["--preset", "best"])
    assert "invalid choice: 'best'" in capsys.readouterr().err


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves a configuration and returns the flags that load it."""

    def save(**values):
        serialization.save(tmp_path / "config.json", Config.from_settings(**values), {}, {})
        return ["--config", str(tmp_path / "config.json")]

    return save


@pytest.mark.parametrize(
    "flags, expected",
    [
        ("--lr 1e-5", {"lr": 1e-5, "lr_discriminator": 1e-5}),
        ("--epochs 400", {"epochs": 400, "decay_from": 200}),
        (
            "--image_size 128",
            {
                "image_width": 128,
                "load_size": 143,
                "generator": "resnet_9blocks",
                "residual_blocks": 9,
            },  # stays as saved
        ),
        ("--generator unet_256", {"generator": "unet_256", "residual_blocks": None}),
        ("--residual_blocks 3", {"generator": "resnet_3blocks"}),
        ("--variant paper", {"norm_affine": "no", "epsilon": 1e-8}),
        ("--dataset stripes", {"image_size": 256, "filters": 64, "residual_blocks": 9, "lr": 2e-4, "load_size": 256}),
    ],
)
def test_derived_settings_follow_the_flags(saved, flags, expected):
    for first in (saved(), ["--preset", "paper"]):
        config = flat(parse_args([*first, *flags.split(), "--output_dir", "elsewhere"]))
        for name, value in expected.items():
            if first[0] == "--config" or name not in PRESETS["paper"]:
                assert getattr(config, name) == value, name


def test_chosen_settings_stay(saved):
    chosen = {
        "lr_discriminator": 0.5,
        "decay_from": 3,
        "image_width": 64,
        "norm_affine": "no",
        "generator": "resnet_2blocks",
    }
    config = flat(parse_args([*saved(**chosen, load_size=300), "--lr", "1", "--epochs", "9", "--image_size", "128"]))
    assert {name: getattr(config, name) for name in chosen} == chosen and config.load_size == 300


@pytest.mark.parametrize("flags", [["--generator", "unet_256"], ["--residual_blocks", "4"]])
def test_generator_flags_replace_the_saved_generator(saved, flags):
    config = flat(parse_args([*saved(generator="resnet_2blocks"), *flags]))
    assert (config.generator, config.residual_blocks) in (("unet_256", None), ("resnet_4blocks", 4))


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_not_modified(saved, preset):
    before = dict(PRESETS[preset])
    parse_args([*saved(beta_1=0.25), "--preset", preset, "--beta_2", "0.5"])
    assert PRESETS[preset] == before


@pytest.mark.parametrize(
    "flags, folder",
    [
        ("--preset demo", "runs/demo"),
        ("--preset demo --dataset stripes", "runs/demo"),
        ("--preset demo --dataset /my/photos", "runs/photos"),
        ("--preset demo --dataset /my/photos --output_dir there", "there"),
    ],
)
def test_output_dir_of_a_preset_is_for_its_dataset(flags, folder):
    assert flat(parse_args(flags.split())).output_dir == folder


def test_flags_take_dashes_and_underscores():
    assert parse_args(["--batch-size", "3", "--clear-output-dir"]) == parse_args(
        ["--batch_size", "3", "--clear_output_dir"]
    )


@pytest.mark.parametrize(
    "flags",
    [
        "--epochs ten",
        "--adversarial wgan",
        "--cache tape",
        "--verbose 3",
        "--precision double",
        "--xla 1",
        "--no_such_flag",
        "--epoch 3",
    ],
)
def test_argparse_errors_are_one_line_with_code_2(flags, capsys):
    with pytest.raises(SystemExit) as exit:
        parse_args(flags.split())
    message = capsys.readouterr().err
    assert exit.value.code == 2 and message.count("\n") == 1 and flags.split()[0] in message


def test_help_has_groups_defaults_and_units(capsys):
    with pytest.raises(SystemExit) as exit:
        parse_args(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert exit.value.code == 0
    for part in (
        "data:",
        "networks:",
        "optimization:",
        "run:",
        "default: 256; stripes, scenes: 64",
        "in pixels",
        "(default: 200)",
    ):
        assert part in text
    assert "None" not in text


def test_presets_win_over_suited_defaults():
    config = flat(parse_args(["--preset", "paper", "--dataset", "stripes"]))
    assert (config.filters, config.generator, config.image_size, config.lr) == (64, "resnet_9blocks", 256, 2e-4)
    assert flat(parse_args(["--preset", "paper", "--image_size", "128"])).generator == "resnet_9blocks"
    assert flat(parse_args(["--preset", "fast", "--dataset", "stripes", "--filters", "8"])).filters == 8


def test_saved_networks_win_on_another_dataset(tmp_path):
    path = str(tmp_path / "config.json")
    serialization.save(path, Config.from_settings(dataset="stripes"), {}, {})
    config = flat(parse_args(["--config", path, "--dataset", "mine", "--preset", "fast"]))
    assert (config.filters, config.generator, config.image_size, config.lr) == (16, "resnet_3blocks", 64, 1e-3)
    assert config.output_dir == os.path.join("runs", "mine")
    serialization.save(path, Config.from_settings(dataset="mine"), {}, {})
    config = flat(parse_args(["--config", path, "--dataset", "stripes"]))
    assert (config.filters, config.generator, config.image_size, config.lr) == (64, "resnet_9blocks", 256, 2e-4)


@pytest.mark.parametrize(
    "flag, text",
    [
        ("--bach_size", "unrecognized arguments: --bach_size 2 (do you mean --batch_size? --help lists the flags)"),
        ("--xyzzy", "unrecognized arguments: --xyzzy 2 (--help lists the flags)"),
    ],
)
def test_an_unknown_flag_is_one_line_with_a_similar_one(capsys, flag, text):
    with pytest.raises(SystemExit) as end:
        parse_args([flag, "2"])
    assert end.value.code == 2 and capsys.readouterr().err.split(": ", 1)[1] == f"{text}\n"
