import re

import pytest
import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.reporting.profiler import Profiler
from cyclegan.reporting.throughput import Throughput


@pytest.fixture
def two_gigabytes(monkeypatch):
    monkeypatch.setattr(hardware, "memory", lambda: 2e9)


def counted(**settings):
    """Two calls: 3 steps of 4 images in 0.5 s, 0.1 s of it waiting; 1 step of 4 in 1.5 s."""
    speed = Throughput(**settings)
    speed.add(images=12, steps=3, seconds=0.5, waited=0.1)
    speed.add(images=4, steps=1, seconds=1.5, waited=0.0)
    return speed


def test_figures_by_hand(two_gigabytes):
    assert counted(flops=1e12, peak=8e12).figures() == {
        "speed/images_per_second": pytest.approx(8),
        "speed/ms_per_step": pytest.approx(500),
        "speed/data_wait": pytest.approx(0.05),
        "speed/TFLOP_per_second": pytest.approx(2),
        "speed/share_of_peak": pytest.approx(0.25),
        "speed/memory_GB": pytest.approx(2),
    }


@pytest.mark.parametrize(
    "settings, missing", [({"flops": 1e12}, {"share_of_peak"}), ({"peak": 1e12}, {"TFLOP_per_second", "share_of_peak"})]
)
def test_what_was_not_measured_is_no_figure(settings, missing):
    everything = counted(flops=1.0, peak=1.0).figures()
    assert set(everything) - set(counted(**settings).figures()) == {f"speed/{name}" for name in missing}


def test_nothing_counted_gives_no_figures_and_no_text():
    speed = counted(flops=1e12, peak=1e12)
    speed.reset()
    for nothing in (Throughput(), Throughput(1e12, 1e12), speed):
        assert nothing.figures() == {} and str(nothing) == ""
    speed.add(images=2, steps=1, seconds=0.0, waited=0.0)  # a clock that has not moved
    assert speed.figures() == {} and str(speed) == ""
    speed.add(images=2, steps=1, seconds=4.0, waited=0.0)
    assert speed.figures()["speed/images_per_second"] == 1


@pytest.mark.parametrize(
    "settings, text",
    [
        ({}, "8 images/s, 500 ms, data 5.0%, 2 GB"),
        ({"flops": 1.234e12}, "8 images/s, 500 ms, data 5.0%, 2.47 TFLOP/s, 2 GB"),
        ({"flops": 1e12, "peak": 8e12}, "8 images/s, 500 ms, data 5.0%, 2 TFLOP/s (25%), 2 GB"),
    ],
)
def test_the_text_of_the_bar(two_gigabytes, settings, text):
    assert str(counted(**settings)) == text


@pytest.mark.parametrize(
    "images, seconds, flops, gigabytes, text",
    [
        (2, 12.3456, 8.6e12, 139.6, "0.162 images/s, 12300 ms, data 0.0%, 0.697 TFLOP/s, 140 GB"),
        (4567, 1.0, 123.4e12, 78.0, "4570 images/s, 1000 ms, data 0.0%, 123 TFLOP/s, 78 GB"),
        (2, 0.0123456, 1e9, 0.5, "162 images/s, 12.3 ms, data 0.0%, 0.081 TFLOP/s, 0.5 GB"),
    ],
)
def test_the_bar_shows_numbers_of_any_size_without_an_exponent(monkeypatch, images, seconds, flops, gigabytes, text):
    monkeypatch.setattr(hardware, "memory", lambda: 1e9 * gigabytes)
    speed = Throughput(flops)
    speed.add(images, 1, seconds, 0.0)
    assert str(speed) == text


@pytest.fixture
def profiler(monkeypatch):
    """What TensorFlow's profiler is told, as it is told."""
    calls = []
    monkeypatch.setattr(tf.profiler.experimental, "start", lambda folder: calls.append(f"start {folder}"))
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: calls.append("stop"))
    return calls


def calls_of(profile, first, last, together, profiler):
    """Trains from one step to another, as many together in a call. Returns what was told to the profiler, with its step."""
    told = []
    for step in range(first, last, together):
        if profile.wanted(step, together):
            profile.begin(step)
        told += [(step, call) for call in profiler]
        profiler.clear()
        if profile.over(step + together):
            profile.finish()
        told += [(step + together, call) for call in profiler]
        profiler.clear()
    return told


@pytest.mark.parametrize(
    "steps, first, together, told",
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
def test_a_profile_is_of_the_steps_asked_for(profiler, steps, first, together, told):
    texts = []
    with Profiler(steps, "there", tell=texts.append) as profile:
        assert calls_of(profile, first, 20, together, profiler) == told
    assert profiler == []
    steps = " to ".join(str(at + (call != "stop")) for at, call in told)
    assert texts == ([f"Profile of steps {steps} written to there/plugins/profile"] if told else [])


def test_going_back_does_not_profile_again(profiler):
    with Profiler((3, 5), "there") as profile:
        assert calls_of(profile, 0, 10, 1, profiler) == [(3, "start there"), (5, "stop")]
        assert calls_of(profile, 2, 10, 1, profiler) == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_profile_ends_with_training(profiler, error):
    texts = []
    with pytest.raises(error), Profiler((3, 50), "there", tell=texts.append) as profile:
        calls_of(profile, 0, 10, 1, profiler)
        raise error
    assert profiler == ["stop"] and not profile.running
    assert texts == ["Profile of steps 4 to 10 written to there/plugins/profile"]


def test_a_call_that_fails_while_it_is_profiled_is_what_is_seen(profiler):
    texts = []
    with pytest.raises(RuntimeError, match="out of memory"), Profiler((0, 5), "there", tell=texts.append) as profile:
        profile.begin(0)
        raise RuntimeError("out of memory")
    assert profiler == ["start there", "stop"] and texts == []


def test_tensorflow_writes_a_profile_where_tensorboard_looks_for_it(tmp_path):
    texts = []
    with Profiler((0, 1), tmp_path, tell=texts.append) as profile:
        assert profile.wanted(0, 1)
        profile.begin(0)
        tf.reduce_sum(tf.ones([10, 10])).numpy()
        assert profile.over(1)
        profile.finish()
        profile.finish()
    assert len(texts) == 1
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written and all(re.match("plugins/profile/", str(path.relative_to(tmp_path))) for path in written)


@pytest.mark.parametrize("when, text", [("start", "begun (a full disk)"), ("stop", "written (a full disk)")])
def test_a_profile_that_fails_is_told_and_training_goes_on(monkeypatch, profiler, when, text):
    def fail(*args):
        raise tf.errors.ResourceExhaustedError(None, None, "a full disk\nand more")

    monkeypatch.setattr(tf.profiler.experimental, when, fail)
    said, told = [], []
    with Profiler((3, 5), "there", said.append, told.append) as profile:
        profile.begin(3)
        profile.finish()
        assert not profile.over(9) and not profile.wanted(4, 1) and not told
    assert said == [f"the profile could not be {text}; training goes on without"]
