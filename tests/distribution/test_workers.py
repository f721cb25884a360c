"""Workers as processes on 127.0.0.1 with a tiny step, see `worker.py`: collectives, lost and stuck workers."""

import json
import threading
import time

import numpy as np
import pytest

from cyclegan import terminal
from cyclegan.distribution import workers
from cyclegan.distribution.cluster import Cluster
from cyclegan.distribution.workers import Watchdog, Workers
from tests.distribution.local_workers import SECONDS, free_ports, outcomes, start, together
from tests.distribution.worker import RANDOM, checksum, first_moments


def test_workers_share_images_and_agree_on_sums():
    found, _ = together("steps", 2)
    assert [code for code, *_ in found] == [0, 0], found
    first, second = (json.loads(out) for _, out, _ in found)
    values = np.arange(12 * 16 * 16 * 3).reshape(12, 16, 16, 3) % 251
    pool, *others = images = values.reshape(3, 4, 16, 16, 3)  # each sample has a slot for one image
    swaps = RANDOM[1:, :, 0] < 0.5
    assert set(swaps[:, :2].flat) == set(swaps[:, 2:].flat) == {False, True}  # on both workers
    shown = [images[0]]
    for new, swap in zip(others, swaps[..., None, None, None]):
        shown.append(np.where(swap, pool, new))
        pool = np.where(swap, new, pool)
    for each in (first, second):
        assert each["replicas"] == 2
        np.testing.assert_allclose(each["totals"]["mean"], 12 * values.mean(), rtol=1e-6)
        np.testing.assert_allclose(each["totals"]["samples"], 12.0)
        np.testing.assert_allclose(each["weight"], values.mean(), rtol=1e-6)  # from the chief's 0
        assert each["shown"] == [[checksum(image) for image in step] for step in shown]  # bit for bit
        assert each["pool"] == [checksum(image) for image in pool]  # slots of both workers
        assert each["stop"] == [0, 1, 0]  # the request of one worker is seen by both, at the same step
        assert each["gathered"] == [[0, 10**15], [1, 10**15 + 1]]
        assert each["agreed"] == [True, False, 7]
    # One worker reads pairs 0, 1, 4, 5, 8, 9, and the first pairs of the next epoch as padding.
    assert {0, 1, 4, 5, 8, 9} <= set(first["read"]) and {2, 3, 6, 7, 10, 11} <= set(second["read"])
    assert not set(first["read"]) & set(second["read"])


@pytest.mark.slow
def test_different_settings_are_reported():
    found, ports = together("differ", 2)
    assert [code for code, *_ in found] == [2, 2], found
    for index, ((_, _, errors), lr) in enumerate(zip(found, ("0.1", "0.2"))):
        differs = f"worker 1 (127.0.0.1:{ports[1]}) differs from the chief in lr ({lr} at worker {index})"
        assert errors.startswith(f"worker {index}: {differs}: expected")  # no warning about retracing comes first


@pytest.mark.slow
def test_gradients_of_three_workers_equal_those_of_three_devices(strategies):
    found, _ = together("gradients", 3)
    assert [code for code, *_ in found] == [0, 0, 0], found
    expected = first_moments(strategies[3])
    for _, out, _ in found:
        np.testing.assert_allclose(json.loads(out), expected, rtol=1e-4, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "who", "count"),
    [("SIGKILL", 2, 3), ("SIGKILL", 0, 2), ("SIGSTOP", 1, 2), ("error", 1, 2)],
)
def test_lost_worker_is_reported_by_the_others(how, who, count):
    ports = free_ports(count)
    processes = [start("lose", index, ports, HOW=how, WHO=str(who)) for index in range(count)]
    gone = processes[who]
    others = [each for each in processes if each is not gone]
    try:
        assert gone.stdout.readline() == "gone\n", gone.communicate()
        began = time.monotonic()
        found = outcomes(others)
        assert time.monotonic() - began < 120  # TensorFlow misses a silent one after 10 s; the machine may be busy
        for code, _, errors in found:
            assert code == 1, errors
            assert "does not answer any more, so this one stops" in errors
            assert "the same command resumes from the last checkpoint" in errors
        assert any(f"worker {who} (127.0.0.1:{ports[who]}) does not answer" in errors for *_, errors in found)
        if how == "error":
            assert gone.wait(SECONDS) == 2
            assert "worker 1: this worker has a problem of its own" in gone.stderr.read()
    finally:
        gone.kill()
        gone.communicate()


def test_single_process_agrees_with_itself():
    alone = Workers(None)
    assert alone.all_gather([3, 4]).tolist() == [[3, 4]]
    assert alone.all_true(True) and not alone.all_true(0) and alone.broadcast_from_chief(5) == 5
    alone.check_equal({"lr": 0.1})
    with alone.chief_first():
        pass


def test_cpu_workers_of_one_machine_share_its_speed():
    addresses = ("a:1", "a:2", "b:1")
    assert Workers(None, Cluster(addresses, 1)).speedup() == 2
    assert Workers(None, Cluster(addresses, 1)).count_on_this_host() == 2


@pytest.mark.parametrize(
    "seconds, beats, checkpoint, text",
    [
        (0.2, False, "epoch_0001", "The last checkpoint is epoch_0001, and the same command resumes"),
        (0.2, False, None, "is stuck. There is no checkpoint yet"),
        (0.2, True, "epoch_0001", None),
        (None, False, "epoch_0001", None),
    ],
)
def test_the_watchdog_ends_training_that_is_stuck(monkeypatch, seconds, beats, checkpoint, text):
    found = []
    monkeypatch.setattr(terminal, "end", lambda *arguments: found.append(arguments))
    monkeypatch.setattr(workers, "WATCH_INTERVAL", 0.02)
    with Watchdog(seconds, lambda: checkpoint, "worker 1: ") as guard:
        for _ in range(30):
            threading.Event().wait(0.02)
            if beats:
                guard.beat()
    threading.Event().wait(0.1)
    ended = len(found)
    threading.Event().wait(0.3)
    assert len(found) == ended, "nothing ends after training"
    if text:
        message, code = found[0]
        assert code == 1 and message.endswith(text)
        assert message.startswith("worker 1: no step, evaluation or checkpoint has ended for 0.2 s (--step_timeout)")
    else:
        assert not found
