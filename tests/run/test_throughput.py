import pytest

from cyclegan.distribution import hardware
from cyclegan.run.throughput import Throughput


@pytest.fixture
def two_gigabytes(monkeypatch):
    monkeypatch.setattr(hardware, "peak_memory", lambda: 2e9)


def counted(**settings):
    """Return the throughput of two calls: 3 steps with 4 images in 0.5 s, 0.1 s of them waiting; 1 step with 4 images in 1.5 s."""
    throughput = Throughput(**settings)
    throughput.add(images=12, steps=3, seconds=0.5, waited=0.1)
    throughput.add(images=4, steps=1, seconds=1.5, waited=0.0)
    return throughput


def test_metrics_by_hand(two_gigabytes):
    assert counted(flops=1e12, peak=8e12).metrics() == {
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
def test_metrics_that_were_not_measured_are_left_out(settings, missing):
    everything = counted(flops=1.0, peak=1.0).metrics()
    assert set(everything) - set(counted(**settings).metrics()) == {f"speed/{name}" for name in missing}


def test_nothing_counted_gives_no_metrics():
    throughput = counted(flops=1e12, peak=1e12)
    throughput.reset()
    for empty in (Throughput(), Throughput(1e12, 1e12), throughput):
        assert empty.metrics() == {} and str(empty) == ""
    throughput.add(images=2, steps=1, seconds=0.0, waited=0.0)  # a clock that has not moved
    assert throughput.metrics() == {} and str(throughput) == ""
    throughput.add(images=2, steps=1, seconds=4.0, waited=0.0)
    assert throughput.metrics()["speed/images_per_second"] == 1


@pytest.mark.parametrize(
    "settings, text",
    [
        ({}, "8 images/s, 500 ms, data 5.0%, 2 GB"),
        ({"flops": 1.234e12}, "8 images/s, 500 ms, data 5.0%, 2.47 TFLOP/s, 2 GB"),
        ({"flops": 1e12, "peak": 8e12}, "8 images/s, 500 ms, data 5.0%, 2 TFLOP/s (25%), 2 GB"),
    ],
)
def test_text_for_the_progress_bar(two_gigabytes, settings, text):
    assert str(counted(**settings)) == text


@pytest.mark.parametrize(
    "images, seconds, flops, gigabytes, text",
    [
        (2, 12.3456, 8.6e12, 139.6, "0.162 images/s, 12300 ms, data 0.0%, 0.697 TFLOP/s, 140 GB"),
        (4567, 1.0, 123.4e12, 78.0, "4570 images/s, 1000 ms, data 0.0%, 123 TFLOP/s, 78 GB"),
        (2, 0.0123456, 1e9, 0.5, "162 images/s, 12.3 ms, data 0.0%, 0.081 TFLOP/s, 0.5 GB"),
    ],
)
def test_text_has_no_exponents(monkeypatch, images, seconds, flops, gigabytes, text):
    monkeypatch.setattr(hardware, "peak_memory", lambda: 1e9 * gigabytes)
    throughput = Throughput(flops)
    throughput.add(images, 1, seconds, 0.0)
    assert str(throughput) == text
