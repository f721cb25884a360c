import types

import pytest

from cyclegan.config import Config, serialization
from cyclegan.config.command_line import parse_args
from cyclegan.config.presets import PRESETS
from cyclegan.errors import UserError


def flat(config):
    """All settings of a configuration as attributes of one object."""
    return types.SimpleNamespace(**config.settings())


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_sets_what_it_says(preset):
    config = flat(parse_args(["--preset", preset]))
    assert config.preset == preset
    assert {name: getattr(config, name) for name in PRESETS[preset]} == PRESETS[preset]
    assert any(getattr(config, name) != getattr(flat(Config.from_settings()), name) for name in PRESETS[preset])


def test_the_presets_are_the_published_settings():
    paper, tutorial = (flat(parse_args(["--preset", name])) for name in ("paper", "tutorial"))
    assert (paper.variant, paper.generator, paper.pool_size, paper.epochs, paper.decay_from) == (
        *("paper", "resnet_9blocks", 50, 200, 100),
    )
    assert (tutorial.variant, tutorial.pool_size, tutorial.lr_schedule, tutorial.beta_2) == (
        "keras",
        0,
        "constant",
        0.9,
    )


def test_flags_win_over_a_file_and_that_over_a_preset(tmp_path):
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


def test_a_file_alone_gives_the_same_training_in_another_folder(tmp_path):
    saved = Config.from_settings(
        filters=8, generator="resnet_2blocks", lr=0.5, image_size=128, clear_output_dir=True, output_dir="there"
    )
    serialization.save(tmp_path / "config.json", saved, {}, {})
    config = flat(parse_args(["--config", str(tmp_path / "config.json")]))
    differ = {name for name, value in vars(config).items() if value != getattr(flat(saved), name)}
    assert differ == {"output_dir", "clear_output_dir"}


def test_a_file_that_is_no_configuration_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="can't be read as the configuration of a run"):
        parse_args(["--config", str(tmp_path / "config.json")])


def test_an_unknown_preset_is_refused(capsys):
    with pytest.raises(SystemExit):
        parse_args(["--preset", "best"])
    assert "invalid choice: 'best'" in capsys.readouterr().err


@pytest.mark.parametrize("steps", ["x", "0", "-1", "1.5", "", "lambda"])
def test_a_number_of_steps_that_is_none_is_refused_in_words(steps, capsys):
    with pytest.raises(SystemExit):
        parse_args([f"--steps_per_call={steps}"])
    message = capsys.readouterr().err
    assert f"{steps!r}: expected auto, or a whole number of at least 1" in message and message.count("\n") == 1
    assert flat(parse_args(["--steps_per_call=auto"])).steps_per_call is None


def test_a_generator_is_named_the_same_however_it_was_asked_for():
    for flags in ([], ["--generator", "resnet_9blocks"], ["--residual_blocks", "9"]):
        config = flat(parse_args(flags))
        assert (config.generator, config.residual_blocks) == ("resnet_9blocks", 9)
    small = flat(parse_args(["--image_size", "128"]))
    assert (small.generator, small.residual_blocks) == ("resnet_6blocks", 6)
    unet = flat(parse_args(["--generator", "unet_256"]))
    assert (unet.generator, unet.residual_blocks) == ("unet_256", None)
    assert flat(parse_args(["--dataset", "stripes"])).generator == "resnet_3blocks"


def test_the_affinity_of_normalizations_is_the_variants():
    assert Config.from_settings().norm_affine == "yes" and Config.from_settings(variant="paper").norm_affine == "no"
    assert Config.from_settings(variant="paper", norm_affine="yes").norm_affine == "yes"


def test_sizes_that_are_not_square():
    config = Config.from_settings(image_size=128, image_width=256)
    assert config.image_shape == (128, 256) and config.load_shape == (143, 286)


@pytest.fixture
def saved(tmp_path):
    """A function that saves a configuration and gives the flags that take it over."""

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
            {"image_width": 128, "load_size": 143, "generator": "resnet_9blocks", "residual_blocks": 9},  # as it was
        ),
        ("--generator unet_256", {"generator": "unet_256", "residual_blocks": None}),
        ("--residual_blocks 3", {"generator": "resnet_3blocks"}),
        ("--variant paper", {"norm_affine": "no"}),
        ("--dataset stripes", {"image_size": 256, "filters": 64, "residual_blocks": 9, "lr": 2e-4, "load_size": 256}),
    ],
)
def test_what_follows_from_a_flag_follows_from_the_one_given_by_hand(saved, flags, expected):
    for first in (saved(), ["--preset", "paper"]):
        config = flat(parse_args([*first, *flags.split(), "--output_dir", "elsewhere"]))
        for name, value in expected.items():
            if first[0] == "--config" or name not in PRESETS["paper"]:
                assert getattr(config, name) == value, name


def test_what_was_chosen_stays_whatever_else_is_given(saved):
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
def test_another_generator_replaces_a_chosen_one(saved, flags):
    config = flat(parse_args([*saved(generator="resnet_2blocks"), *flags]))
    assert (config.generator, config.residual_blocks) in (("unet_256", None), ("resnet_4blocks", 4))


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_asked_for_once_does_not_become_a_presets(saved, preset):
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
def test_a_presets_folder_is_for_the_presets_pictures(flags, folder):
    assert flat(parse_args(flags.split())).output_dir == folder


def test_a_preset_tells_what_of_it_is_in_effect():
    config = flat(parse_args(["--preset", "tutorial", "--pool_size", "3"]))
    assert "--beta_2 0.9" in config.preset_flags and "pool_size" not in config.preset_flags
    assert Config.from_settings().preset_flags == ""
