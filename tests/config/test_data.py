import pytest

from cyclegan.config import Config
from cyclegan.config.command_line import parse_args
from cyclegan.errors import UserError
from tests.config.helpers import refusal_of


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--image_size 8", "--image_size 8: expected at least 16 pixels"),
        ("--image_size 64 --load_size 60", "--load_size 60: expected at least 64 pixels (--image_size)"),
        ("--cache_gb -1", "--cache_gb -1.0: expected a finite number of at least 0"),
        ("--cache_gb nan", "--cache_gb nan: expected a finite number of at least 0"),
        ("--cache_gb inf", "--cache_gb inf: expected a finite number of at least 0"),
        ("--channels_x 0", "--channels_x 0: expected at least 1"),
        ("--value_range_x 5", "--value_range_x 5: expected LO:HI, two numbers with LO < HI, or auto"),
        ("--value_range_y 5:5", "--value_range_y 5:5: expected LO:HI, two numbers with LO < HI, or auto"),
        ("--value_range_y=-inf:5", "--value_range_y -inf:5: expected LO:HI, two numbers with LO < HI, or auto"),
        ("--value_range_x a:b:c", "--value_range_x a:b:c: expected LO:HI"),
        ("--paired_share 0", "--paired_share 0.0: expected above 0 and at most 1"),
        ("--paired_share 1.5", "--paired_share 1.5: expected above 0 and at most 1"),
        ("--max_dataset_size 0", "--max_dataset_size 0: expected at least 1"),
    ],
)
def test_impossible_values_are_refused(flags, text):
    assert text in refusal_of(flags)


def test_shapes_of_images_that_are_not_square():
    config = Config.from_settings(image_size=128, image_width=256)
    assert config.data.image_shape == (128, 256) and config.data.load_shape == (143, 286)


@pytest.mark.parametrize("flag", ["--dataset", "--data_dir"])
def test_empty_names_are_refused(flag):
    with pytest.raises(UserError, match=f"{flag} '': expected"):
        parse_args([flag, ""])


def test_value_ranges_may_begin_below_0():
    data = parse_args(["--value_range_x", "-1000:2e3", "--value_range_y", "-.5:.5"]).data
    assert data.value_range("x") == (-1000, 2000) and data.value_range("y") == (-0.5, 0.5)
    assert Config().data.value_range("x") is None
    with pytest.raises(UserError, match="--value_range_x auto: expected LO:HI, because no training has measured"):
        Config.from_settings(value_range_x="auto").data.value_range("x")
