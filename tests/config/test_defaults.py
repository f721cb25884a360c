import pytest

from cyclegan.config import Config
from cyclegan.config.command_line import parse_args
from tests.config.helpers import flat


def test_defaults_follow_dataset_and_size():
    stripes = flat(parse_args(["--dataset", "stripes"]))
    assert (stripes.image_size, stripes.load_size, stripes.output_dir) == (64, 64, "runs/stripes")
    for dataset in ("stripes", "scenes"):
        assert flat(parse_args(["--dataset", dataset, "--image_size", "128"])).load_size == 128
    small = flat(parse_args(["--image_size", "128"]))
    assert (small.load_size, small.residual_blocks) == (143, 6)
    assert flat(parse_args(["--dataset", "/data/my images/"])).output_dir == "runs/my images"


def test_flags_win_over_suited_defaults():
    assert flat(parse_args(["--dataset", "stripes", "--lr", "0.5", "--filters", "7"])).lr == 0.5


@pytest.mark.parametrize("preprocess, load_size", [("scale_width", 572), ("scale_width_and_crop", 572)])
def test_load_size_of_scale_width_follows_image_width(preprocess, load_size):
    config = parse_args(["--preprocess", preprocess, "--image_width", "512"])
    assert config.data.load_size == load_size
    assert parse_args(["--preprocess", preprocess]).data.load_size == 286
    assert parse_args(["--image_width", "512"]).data.load_shape == (286, 572)


def test_generator_and_residual_blocks_agree():
    for flags in ([], ["--generator", "resnet_9blocks"], ["--residual_blocks", "9"]):
        config = flat(parse_args(flags))
        assert (config.generator, config.residual_blocks) == ("resnet_9blocks", 9)
    small = flat(parse_args(["--image_size", "128"]))
    assert (small.generator, small.residual_blocks) == ("resnet_6blocks", 6)
    unet = flat(parse_args(["--generator", "unet_256"]))
    assert (unet.generator, unet.residual_blocks) == ("unet_256", None)
    assert flat(parse_args(["--dataset", "stripes"])).generator == "resnet_3blocks"


def test_norm_affine_follows_variant():
    assert (
        Config.from_settings().networks.norm_affine == "yes"
        and Config.from_settings(variant="paper").networks.norm_affine == "no"
    )
    assert Config.from_settings(variant="paper", norm_affine="yes").networks.norm_affine == "yes"


@pytest.mark.parametrize("flags, epsilon", [("", 1e-7), ("--variant paper", 1e-8), ("--preset paper", 1e-8)])
def test_epsilon_follows_variant(flags, epsilon):
    assert parse_args(flags.split()).optimization.epsilon == epsilon
    assert parse_args([*flags.split(), "--epsilon", "1e-7"]).optimization.epsilon == 1e-7


def test_tilde_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    config = flat(parse_args(["--output_dir=~/runs", "--data_dir=~/data"]))
    assert (config.output_dir, config.data_dir) == ("/home/me/runs", "/home/me/data")
