import pytest

from tests.config.helpers import refusal_of


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--lambda_cycle -1", "--lambda_cycle -1.0: expected a finite number of at least 0"),
        ("--r1 -1", "--r1 -1.0: expected a finite number of at least 0"),
        ("--pool_size -1", "--pool_size -1: expected at least 0"),
        ("--diffaugment color,zoom", "--diffaugment color,zoom: zoom: expected any of color,translation,cutout"),
        ("--diffaugment ,", "--diffaugment ,: an empty name: expected any of color,translation,cutout"),
    ],
)
def test_impossible_values_are_refused(flags, text):
    assert text in refusal_of(flags)
