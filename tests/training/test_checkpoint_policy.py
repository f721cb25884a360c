"""Saving and stopping with several workers; tests/system/resume tests one process."""

import itertools
import signal
import types

import pytest

from cyclegan.distribution.workers import Watchdog
from cyclegan.errors import Stopped, UserError
from cyclegan.run.train_state import TrainState
from cyclegan.training import checkpoint_policy
from cyclegan.training.checkpoint_policy import REQUESTS, CheckpointPolicy
from tests.thread_workers import in_threads


class Saved:
    """Stand in for the checkpoints and the log, and count the calls."""

    log_bytes = 0

    def __init__(self, failures=0):
        self.saves, self.failures = 0, failures

    def save(self, state, best):
        self.saves += 1
        if self.failures:
            self.failures -= 1
            raise UserError("no room")
        return "epoch_0001"

    def flush(self):
        return True


def make_policy(workers, minutes=60.0, stop_signal=0, save_requested=False, failures=0):
    saved, divergence = Saved(failures), types.SimpleNamespace(is_sound=True)
    policy = CheckpointPolicy(saved, saved, divergence, workers, Watchdog(None, lambda: None), minutes)
    policy.signals = types.SimpleNamespace(stop_signal=stop_signal, save_requested=save_requested)
    return policy, saved


def merge(workers, policy):
    """Merge the requests of all workers, as from the metrics of a step."""
    sums = workers.all_gather([int(request) for request in policy.requests().values()]).sum(axis=0)
    policy.merge_requests(dict(zip(REQUESTS, sums)))


def test_all_workers_stop_on_the_signal_of_one():
    def work(workers):
        policy, saved = make_policy(workers, stop_signal=signal.SIGINT if workers.index == 1 else 0)
        before = policy.is_due(), policy.stop_signal
        merge(workers, policy)
        with pytest.raises(Stopped) as stopped:
            policy.save_and_obey(TrainState())
        return before, policy.is_due(), saved.saves, stopped.value.exit_code, "of another worker" in str(stopped.value)

    signalled, others = ((False, 0), True, 1, 130, False), ((False, 0), True, 1, 143, True)
    assert in_threads(3, work) == [others, signalled, others]


def test_a_signal_waits_until_the_requests_are_merged():
    def work(workers):
        policy, _ = make_policy(workers)
        merge(workers, policy)
        policy.signals.stop_signal = signal.SIGTERM
        policy.save_and_obey(TrainState())
        return policy.is_due(), policy.stop_signal

    assert in_threads(2, work) == [(False, 0)] * 2


def test_only_the_timer_of_the_chief_counts():
    def work(workers, chief_minutes, minutes):
        policy, _ = make_policy(workers, chief_minutes if workers.is_chief else minutes)
        merge(workers, policy)
        due = policy.is_due()
        policy.save(TrainState())
        return due, policy.is_due()

    assert in_threads(2, lambda workers: work(workers, 0.0, 60.0)) == [(True, False)] * 2
    assert in_threads(2, lambda workers: work(workers, 60.0, 0.0)) == [(False, False)] * 2


def test_any_worker_may_be_asked_for_a_checkpoint():
    def work(workers):
        policy, saved = make_policy(workers, save_requested=workers.index == 1)
        merge(workers, policy)
        due = policy.is_due()
        policy.save_and_obey(TrainState())
        return due, policy.is_due(), saved.saves, policy.signals.save_requested

    assert in_threads(2, work) == [(True, False, 1, False)] * 2


def test_all_wait_at_the_end_until_the_chief_has_room(monkeypatch):
    monkeypatch.setattr(checkpoint_policy, "RETRY_SECONDS", 0.05)

    def work(workers):
        policy, saved = make_policy(workers, failures=2)
        policy.save_final(TrainState())
        return saved.saves

    assert in_threads(2, work) == [3, 3]


def test_a_signal_at_one_worker_ends_the_wait_of_all(monkeypatch):
    monkeypatch.setattr(checkpoint_policy, "RETRY_SECONDS", 60)

    def work(workers):
        policy, _ = make_policy(workers, failures=100, stop_signal=signal.SIGTERM if workers.index == 1 else 0)
        with pytest.raises(Stopped, match="everything since the last checkpoint is lost"):
            policy.save_final(TrainState())

    assert in_threads(2, work) == [None, None]


def test_the_wait_for_the_log_is_explained(monkeypatch, caplog):
    monkeypatch.setattr(checkpoint_policy, "RETRY_SECONDS", 0.01)
    results, saves = itertools.chain([False] * 4, itertools.repeat(True)), []

    def work(workers):
        policy, saved = make_policy(workers)
        saved.flush = lambda: next(results)
        policy.save_final(TrainState())
        saves.append(saved.saves)

    assert in_threads(1, work) == [None]
    assert len(caplog.messages) == 4 and saves == [1]
    assert "no checkpoint epoch_0000 without its lines of the log" in caplog.text and "the program waits" in caplog.text
