import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cyclegan.config import Config
from cyclegan.config.command_line import parse_args
from cyclegan.config.performance import CALL_FLOPS, MAX_STEPS_PER_CALL
from cyclegan.errors import UserError
from tests.config.helpers import refusal_of

FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def steps_per_call(config, flops, peak=0.0):
    """Return the steps per call of a configuration."""
    run = config.run
    return config.performance.choose_steps_per_call(flops, run.log_every, run.checkpoint_minutes, peak)


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
    "flops, log_every, steps",
    [
        (0.4e9, 100, 10),  # 10 such steps are 4 GFLOP
        (0.41e9, 100, 5),  # 9 would do, but 5 is a divisor
        (0.8e9, 100, 5),
        (0.81e9, 100, 4),
        (3e9, 100, 1),
        (650e9, 100, 1),  # a pair of 256 pixels
        (0.0, 100, 10),
        (1.0, 7, 7),
        (1.0, 13, 1),
        (1.0, 1, 1),
        (1.0, 6, 6),
        (1.0, 36, 9),
    ],
)
def test_short_steps_share_a_call(flops, log_every, steps):
    assert steps_per_call(parse_args(["--log_every", str(log_every)]), flops) == steps


@given(flops=st.floats(0, 1e18), log_every=st.integers(1, 10_000), minutes=st.sampled_from([0.0, 10.0]))
@FUZZ
def test_steps_per_call_divide_log_every(flops, log_every, minutes):
    steps = steps_per_call(Config.from_settings(log_every=log_every, checkpoint_minutes=minutes), flops)
    assert 1 <= steps <= MAX_STEPS_PER_CALL and log_every % steps == 0
    assert steps == 1 or (steps * flops <= CALL_FLOPS and minutes)


@pytest.mark.parametrize(
    "flops, peak, steps", [(2e9, 0, 2), (2e9, 1e11, 2), (1e11, 1e13, 2), (1e12, 1e13, 1), (1e9, 1e13, 10)]
)
def test_fast_devices_have_more_steps_per_call(flops, peak, steps):
    assert steps_per_call(Config.from_settings(log_every=100), flops, peak) == steps


def test_checkpoint_minutes_0_means_one_step_per_call():
    assert steps_per_call(parse_args(["--checkpoint_minutes", "0"]), 1.0) == 1


@pytest.mark.parametrize("steps", [1, 4, 25, 100])
def test_given_steps_per_call_win(steps):
    config = parse_args(["--steps_per_call", str(steps), "--checkpoint_minutes", "0"])
    assert steps_per_call(config, 1e15) == steps
