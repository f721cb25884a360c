import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cyclegan.config import Config
from cyclegan.config.command_line import parse_args
from cyclegan.config.performance import CALL_SECONDS, MAX_STEPS_PER_CALL, choose_steps_per_call
from cyclegan.errors import UserError
from tests.config.helpers import refusal_of

FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)


@pytest.mark.parametrize("text, steps", [("0:1", (0, 1)), ("3:20", (3, 20)), ("007:999999999999", (7, 999999999999))])
def test_profile_is_two_numbers(text, steps):
    assert parse_args(["--profile", text]).performance.profile_steps == steps


def test_profile_is_off_by_default():
    assert parse_args([]).performance.profile_steps is None
    with pytest.raises(UserError, match="--profile '': expected START:END"):
        parse_args(["--profile", ""])


@pytest.mark.parametrize("text", ["3", "3:", ":3", "5:3", "3:3", "1:2:3", "1.5:3", "a:b", "1:٣", "1:1234567890123"])
def test_other_profiles_are_refused(text):
    expected = f"--profile {text}: expected START:END, two numbers of steps with START < END"
    assert expected in refusal_of(f"--profile {text}")


@pytest.mark.parametrize(
    "name, values", [("precision", "auto float32 bfloat16 float16"), ("xla", "auto on off"), ("tf32", "on off")]
)
def test_choices(name, values):
    default, *_ = values.split()
    assert getattr(Config().performance, name) == default
    for value in values.split():
        assert getattr(parse_args([f"--{name}", value]).performance, name) == value


@pytest.mark.parametrize(
    "seconds, log_every, steps",
    [
        (0.01, 100, 10),
        (0.011, 100, 5),  # 9 would do, but 5 is a divisor
        (0.02, 100, 5),
        (0.021, 100, 4),
        (0.06, 100, 1),
        (30.0, 100, 1),
        (1e-9, 100, 10),
        (1e-9, 7, 7),
        (1e-9, 13, 1),
        (1e-9, 1, 1),
        (1e-9, 36, 9),
    ],
)
def test_short_steps_share_a_call(seconds, log_every, steps):
    assert choose_steps_per_call(seconds, log_every) == steps


@given(seconds=st.floats(0, 1e6), log_every=st.integers(1, 10_000))
@FUZZ
def test_steps_per_call_divide_log_every(seconds, log_every):
    steps = choose_steps_per_call(seconds, log_every)
    assert 1 <= steps <= MAX_STEPS_PER_CALL and log_every % steps == 0
    assert steps == 1 or steps * seconds <= CALL_SECONDS
