import re

import pytest
import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.run.throughput import Profiler, Throughput


@pytest.fixture
def two_gigabytes(monkeypatch):
    monkeypatch.setattr(hardware, "peak_memory", lambda: 2e9)


def counted(**settings):
    """Return the throughput of two calls: 3 steps in 0.5 s, 0.1 s of them waiting, and 1 in 1.5 s; 4 images a step."""
    throughput = Throughput(**settings)
    throughput.add(images=12, steps=3, seconds=0.5, waited=0.1)
    throughput.add(images=4, steps=1, seconds=1.5, waited=0.0)
    return throughput


def test_metrics_by_hand(two_gigabytes):
    throughput = counted(flops=1e12, peak=8e12)
    assert throughput.metrics() == {
        "speed/images_per_second": pytest.approx(8),
        "speed/ms_per_step": pytest.approx(500),
        "speed/data_wait": pytest.approx(0.05),
        "speed/TFLOP_per_second": pytest.approx(2),
        "speed/share_of_peak": pytest.approx(0.25),
        "speed/memory_GB": pytest.approx(2),
    }
    throughput.reset()
    assert throughput.metrics() == {} and str(throughput) == ""


def test_text_for_the_progress_bar_leaves_out_what_was_not_measured(two_gigabytes):
    assert str(counted()) == "8 images/s, 500 ms, data 5.0%, 2 GB"
    assert str(counted(flops=1.234e12)) == "8 images/s, 500 ms, data 5.0%, 2 GB, 2.47 TFLOP/s"
    assert str(counted(flops=1e12, peak=8e12)) == "8 images/s, 500 ms, data 5.0%, 2 GB, 2 TFLOP/s (25%)"
    slow = Throughput(flops=8.6e12)
    slow.add(2, 1, 12.3456, 0.0)
    assert str(slow) == "0.162 images/s, 12300 ms, data 0.0%, 2 GB, 0.697 TFLOP/s"  # without exponents


@pytest.fixture
def calls(monkeypatch, caplog):
    """Return a growing list of the calls of TensorFlow's profiler."""
    caplog.set_level("INFO")
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
        ((3, 5), 4, 1, [(4, "start there"), (5, "stop")]),  # resumed in the middle
        ((3, 5), 5, 1, []),  # resumed after it
        (None, 0, 1, []),
    ],
)
def test_profiles_the_requested_steps_once(calls, caplog, steps, first, steps_per_call, expected):
    profiler = Profiler(steps, "there")
    assert train(profiler, first, 20, steps_per_call, calls) == expected
    if expected:
        assert train(profiler, 2, 10, 1, calls) == []  # training went back
        steps = " to ".join(str(step + (call != "stop")) for step, call in expected)
        assert caplog.messages == [f"Profile of steps {steps} written to there/plugins/profile"]


def test_a_profile_ends_with_training(calls, caplog):
    profiler = Profiler((3, 50), "there")
    train(profiler, 0, 10, 1, calls)
    profiler.stop()
    assert calls == ["stop"]
    assert caplog.messages == ["Profile of steps 4 to 10 written to there/plugins/profile"]


def test_the_profile_is_in_tensorboards_folder(tmp_path):
    profiler = Profiler((0, 1), tmp_path)
    profiler.start(0)
    tf.reduce_sum(tf.ones([10, 10])).numpy()
    assert profiler.should_stop(1)
    profiler.stop()
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written and all(re.match("plugins/profile/", str(path.relative_to(tmp_path))) for path in written)


@pytest.mark.parametrize("when, text", [("start", "started (a full disk)"), ("stop", "written (a full disk)")])
def test_a_profile_that_fails_does_not_stop_training(monkeypatch, calls, caplog, when, text):
    def fail(*args):
        raise tf.errors.ResourceExhaustedError(None, None, "a full disk\nand more")

    monkeypatch.setattr(tf.profiler.experimental, when, fail)
    profiler = Profiler((3, 5), "there")
    profiler.start(3)
    profiler.stop()
    assert not profiler.should_stop(9) and not profiler.should_start(4, 1)
    assert caplog.messages == [f"the profile could not be {text}; training continues without it"]
