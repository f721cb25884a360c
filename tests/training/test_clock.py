import time

import pytest

from cyclegan.training.clock import CallClock


@pytest.fixture
def now(monkeypatch):
    """Return the time in seconds, in a list of one number that the test changes."""
    seconds = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: seconds[0])
    return seconds


def test_laps_include_waiting(now):
    clock = CallClock()
    now[0] += 1
    with clock.waiting():
        now[0] += 2
    assert (clock.lap(), clock.waited) == (3, 2)
    now[0] += 5
    assert clock.lap() == 5


def test_pauses_do_not_count(now):
    clock = CallClock()
    now[0] += 1
    with clock.paused():
        now[0] += 10
    assert clock.lap() == 1
    now[0] += 7
    clock.restart()
    now[0] += 2
    assert clock.lap() == 2
