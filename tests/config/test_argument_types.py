import argparse

import pytest

from cyclegan.config.argument_types import count, protect_ranges, size
from cyclegan.config.command_line import parse_args
from tests.config.helpers import flat


@pytest.mark.parametrize("text, expected", [("256", (256, 256)), ("300x200", (300, 200)), ("1x99999", (1, 99999))])
def test_size_is_width_and_height(text, expected):
    assert size(text) == expected


@pytest.mark.parametrize("text", ["", "0x7", "7x0", "x7", "7x", "1x2x3", "-8", "8.0", "100000", "1٣", "8\n"])
def test_other_sizes_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError) as error:
        size(text)
    assert str(error.value) == f"{text!r}: expected a number of pixels, or WIDTHxHEIGHT"


def test_count_is_at_least_1():
    assert (count("1"), count("007"), count("999999999")) == (1, 7, 999999999)
    for text in ("", "0", "000", "-1", "1.5", "1e3", " 1", "1٣", "1000000000"):
        with pytest.raises(argparse.ArgumentTypeError) as error:
            count(text)
        assert str(error.value) == f"{text!r}: expected a whole number of at least 1"


@pytest.mark.parametrize("steps", ["x", "0", "-1", "1.5", "", "lambda"])
def test_invalid_steps_per_call_is_refused(steps, capsys):
    with pytest.raises(SystemExit):
        parse_args([f"--steps_per_call={steps}"])
    message = capsys.readouterr().err
    assert f"{steps!r}: expected auto, or a whole number of at least 1" in message and message.count("\n") == 1
    assert flat(parse_args(["--steps_per_call=auto"])).steps_per_call is None


def test_negative_ranges_are_no_flags():
    given = ["--value_range_x", "-1000:2000", "-.5:5", "-5", "--size", "a:b"]
    assert protect_ranges(given) == ["--value_range_x", " -1000:2000", " -.5:5", "-5", "--size", "a:b"]
