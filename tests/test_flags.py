import dataclasses

import pytest

from cyclegan.config import PRESETS, Config
from cyclegan.errors import UserError


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_sets_what_it_says(preset):
    config = Config.from_args(["--preset", preset])
    assert config.preset == preset
    assert {name: getattr(config, name) for name in PRESETS[preset]} == PRESETS[preset]
    assert any(getattr(config, name) != getattr(Config(), name) for name in PRESETS[preset])


def test_the_presets_are_the_published_settings():
    paper, tutorial = (Config.from_args(["--preset", name]) for name in ("paper", "tutorial"))
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
    saved = Config(filters=8, lr=0.5, epochs=7, pool_size=3, dataset="stripes", output_dir=str(tmp_path))
    saved.save(tmp_path / "config.json", {}, {})
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
    config = Config.from_args(flags)
    assert (config.lr, config.pool_size, config.output_dir) == (0.25, 3, "elsewhere")
    assert (config.filters, config.epochs, config.dataset, config.preset) == (8, 7, "stripes", "tutorial")


def test_a_file_alone_gives_the_same_training_in_another_folder(tmp_path):
    saved = Config(
        filters=8, generator="resnet_2blocks", lr=0.5, image_size=128, clear_output_dir=True, output_dir="there"
    )
    saved.save(tmp_path / "config.json", {}, {})
    config = Config.from_args(["--config", str(tmp_path / "config.json")])
    differ = {name for name, value in dataclasses.asdict(config).items() if value != getattr(saved, name)}
    assert differ == {"output_dir", "clear_output_dir"}


def test_a_file_that_is_no_configuration_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="can't be read as the configuration of a run"):
        Config.from_args(["--config", str(tmp_path / "config.json")])


def test_an_unknown_preset_is_refused(capsys):
    with pytest.raises(SystemExit):
        Config.from_args(["--preset", "best"])
    assert "invalid choice: 'best'" in capsys.readouterr().err


def test_a_generator_is_named_the_same_however_it_was_asked_for():
    for flags in ([], ["--generator", "resnet_9blocks"], ["--residual_blocks", "9"]):
        config = Config.from_args(flags)
        assert (config.generator, config.residual_blocks) == ("resnet_9blocks", 9)
    small = Config.from_args(["--image_size", "128"])
    assert (small.generator, small.residual_blocks) == ("resnet_6blocks", 6)
    unet = Config.from_args(["--generator", "unet_256"])
    assert (unet.generator, unet.residual_blocks) == ("unet_256", None)
    assert Config.from_args(["--dataset", "stripes"]).generator == "resnet_3blocks"


def test_the_affinity_of_normalizations_is_the_variants():
    assert Config().norm_affine == "yes" and Config(variant="paper").norm_affine == "no"
    assert Config(variant="paper", norm_affine="yes").norm_affine == "yes"


def test_sizes_that_are_not_square():
    config = Config(image_size=128, image_width=256)
    assert config.image_shape == (128, 256) and config.load_shape == (143, 286)
