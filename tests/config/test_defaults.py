import types

import pytest

from cyclegan.config.command_line import parse_args


def flat(config):
    """All settings of a configuration as attributes of one object."""
    return types.SimpleNamespace(**config.settings())


def test_defaults_follow_dataset_and_size():
    stripes = flat(parse_args(["--dataset", "stripes"]))
    assert (stripes.image_size, stripes.load_size, stripes.output_dir) == (64, 64, "runs/stripes")
    assert flat(parse_args(["--dataset", "stripes", "--image_size", "128"])).load_size == 128
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
