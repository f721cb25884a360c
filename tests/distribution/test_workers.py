"""Workers as processes on 127.0.0.1 with a tiny step, see `worker.py`: collectives, lost and stuck workers."""

import json
import re
import threading
import time

import pytest

from cyclegan import terminal
from cyclegan.distribution import workers
from cyclegan.distribution.cluster import Cluster
from cyclegan.distribution.workers import Watchdog, Workers
from cyclegan.errors import UserError
from tests.system.worker_processes import WORKER, ended, free_addresses, together
from tests.thread_workers import in_threads


def test_workers_sum_and_agree():
    """Meet and compute although the environment names proxies that do not answer."""
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"), "http://127.0.0.1:9")
    for code, printed in ended(*together(free_addresses(2), "agree", program=WORKER, **proxies)):
        assert code == 0, printed
        assert json.loads(printed.splitlines()[-1]) == {
            "mean": 3.0,
            "weight": 30.0,  # from the chief's 0
            "gathered": [[0, 10**15], [1, 10**15 + 1]],
            "agreed": [True, False, 7],
        }


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGSTOP", "error"])
def test_lost_worker_is_reported_by_the_others(how):
    """tests/system/test_several_workers.py kills workers in training."""
    who, addresses = 1, free_addresses(2)
    others = together(addresses, "lose", program=WORKER, HOW=how, WHO=str(who))
    gone = others.pop(who)
    try:
        assert "gone\n" in iter(gone.stdout.readline, "")
        began = time.monotonic()
        found = ended(*others)
        assert time.monotonic() - began < 120  # TensorFlow misses a silent one after 10 s; the machine may be busy
        for code, printed in found:
            assert code == 1 and "does not answer any more, so this one stops" in printed, printed
            assert "Start all workers again; no checkpoint" in printed
        assert any(f"worker {who} ({addresses[who]}) does not answer" in printed for _, printed in found)
        if how == "error":
            assert gone.wait(60) == 2 and "worker 1: this worker has a problem of its own" in gone.stdout.read()
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


@pytest.mark.parametrize(
    "values, text",
    [({"lr": 2}, r"lr \(\d at worker \d\): expected the same"), ({"lr": 1, "ema": 0}, "the names of the settings")],
)
def test_a_worker_that_differs_is_named_by_all(values, text):
    def check(others):
        one = Workers(None, Cluster(("a:1", "b:1", "c:1"), others.index))
        one.all_gather = others.all_gather
        one.check_equal(values if others.index == 1 else {"lr": 1})

    for error in in_threads(3, check):
        assert isinstance(error, UserError) and re.match(
            rf"worker 1 \(b:1\) differs from the chief in {text}", str(error)
        )


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
