import pytest

from tests.config.helpers import refusal_of


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--devices 0", "--devices 0: expected at least 1 device"),
        ("--start_timeout 0", "--start_timeout 0: expected at least 1 second"),
        ("--step_timeout 0", "--step_timeout 0: expected at least 1 second"),
        ("--port 0", "--port 0: expected at least 1"),
    ],
)
def test_impossible_values_are_refused(flags, text):
    assert text in refusal_of(flags)
