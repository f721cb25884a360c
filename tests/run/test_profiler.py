import re

import pytest
import tensorflow as tf

from cyclegan.run.profiler import Profiler


@pytest.fixture(autouse=True)
def info(caplog):
    caplog.set_level("INFO")


@pytest.fixture
def calls(monkeypatch):
    """Return a growing list of the calls of TensorFlow's profiler."""
    calls = []
    monkeypatch.setattr(tf.profiler.experimental, "start", lambda folder: calls.append(f"start {folder}"))
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: calls.append("stop"))
    return calls


def train(profiler, first, last, steps_per_call, calls):
    """Train from one step to another; return the calls of TensorFlow's profiler, each with its step."""
    found = []
    for step in range(first, last, steps_per_call):
        if profiler.should_start(step, steps_per_call):
            profiler.start(step)
        found += [(step, call) for call in calls]
        calls.clear()
        if profiler.should_stop(step + steps_per_call):
            profiler.stop()
        found += [(step + steps_per_call, call) for call in calls]
        calls.clear()
    return found


@pytest.mark.parametrize(
    "steps, first, steps_per_call, expected",
    [
        ((3, 5), 0, 1, [(3, "start there"), (5, "stop")]),
        ((0, 1), 0, 1, [(0, "start there"), (1, "stop")]),
        ((3, 5), 0, 2, [(2, "start there"), (6, "stop")]),  # a call is not split
        ((3, 5), 0, 10, [(0, "start there"), (10, "stop")]),
        ((4, 12), 0, 2, [(4, "start there"), (12, "stop")]),
        ((3, 5), 4, 1, [(4, "start there"), (5, "stop")]),  # resumed in the middle
        ((3, 5), 5, 1, []),  # resumed after it
        ((3, 5), 10, 1, []),
        ((30, 50), 0, 1, []),
        (None, 0, 1, []),
    ],
)
def test_profiles_the_requested_steps(calls, caplog, steps, first, steps_per_call, expected):
    profiler = Profiler(steps, "there")
    assert train(profiler, first, 20, steps_per_call, calls) == expected
    profiler.stop()
    assert calls == []
    steps = " to ".join(str(step + (call != "stop")) for step, call in expected)
    assert caplog.messages == ([f"Profile of steps {steps} written to there/plugins/profile"] if expected else [])


def test_going_back_does_not_profile_again(calls):
    profiler = Profiler((3, 5), "there")
    assert train(profiler, 0, 10, 1, calls) == [(3, "start there"), (5, "stop")]
    assert train(profiler, 2, 10, 1, calls) == []


def test_profile_ends_with_training(calls, caplog):
    profiler = Profiler((3, 50), "there")
    train(profiler, 0, 10, 1, calls)
    profiler.stop()
    assert calls == ["stop"] and not profiler.running
    assert caplog.messages == ["Profile of steps 4 to 10 written to there/plugins/profile"]


def test_no_profile_is_reported_if_its_first_step_fails(calls, caplog):
    profiler = Profiler((0, 5), "there")
    profiler.start(0)
    profiler.stop()
    assert calls == ["start there", "stop"] and caplog.messages == []


def test_profile_is_in_tensorboards_folder(tmp_path, caplog):
    profiler = Profiler((0, 1), tmp_path)
    assert profiler.should_start(0, 1)
    profiler.start(0)
    tf.reduce_sum(tf.ones([10, 10])).numpy()
    assert profiler.should_stop(1)
    profiler.stop()
    profiler.stop()
    assert len(caplog.messages) == 1
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written and all(re.match("plugins/profile/", str(path.relative_to(tmp_path))) for path in written)


@pytest.mark.parametrize("when, text", [("start", "started (a full disk)"), ("stop", "written (a full disk)")])
def test_failed_profile_does_not_stop_training(monkeypatch, calls, caplog, when, text):
    def fail(*args):
        raise tf.errors.ResourceExhaustedError(None, None, "a full disk\nand more")

    monkeypatch.setattr(tf.profiler.experimental, when, fail)
    profiler = Profiler((3, 5), "there")
    profiler.start(3)
    profiler.stop()
    assert not profiler.should_stop(9) and not profiler.should_start(4, 1)
    assert caplog.messages == [f"the profile could not be {text}; training continues without it"]
