"""What several workers agree on before they save or leave; test_resume.py has saving by one process."""

import signal
import types

import pytest

from cyclegan.checkpointing.train_state import TrainState
from cyclegan.errors import Stopped, UserError
from cyclegan.training import checkpoint_policy
from cyclegan.training.checkpoint_policy import WISHES, CheckpointPolicy
from tests.thread_workers import in_threads


class Saved:
    """Checkpoints and a log that only count."""

    log_bytes = 0

    def __init__(self, failures=0):
        self.saves, self.failures = 0, failures

    def save(self, progress, sound, names):
        self.saves += 1
        if self.failures:
            self.failures -= 1
            raise UserError("no room")
        return "epoch_0001"

    def flush(self):
        return True


def saver(workers, minutes=60.0, stop=0, save=False, failures=0):
    signals = types.SimpleNamespace(stop=stop, save=save)
    saved = Saved(failures)
    return CheckpointPolicy(saved, signals, saved, minutes, lambda text: None, lambda: None, workers), saved


def exchanged(workers, each):
    """All hear what all wish for, as from the figures of a step."""
    sums = workers.all_gather([int(wish) for wish in each.wishes().values()]).sum(axis=0)
    each.hear(dict(zip(WISHES, sums)))


def test_what_one_worker_is_told_is_done_by_all_once_all_have_heard():
    def work(workers):
        each, saved = saver(workers, stop=signal.SIGINT if workers.index == 1 else 0)
        before = each.due(), each.stopping
        exchanged(workers, each)
        with pytest.raises(Stopped) as stopped:
            each.save_and_obey(TrainState(), sound=True)
        return before, each.due(), saved.saves, stopped.value.exit_code, "of another worker" in str(stopped.value)

    told, others = ((False, False), True, 1, 130, False), ((False, False), True, 1, 143, True)
    assert in_threads(3, work) == [others, told, others]


def test_a_signal_that_the_others_have_not_heard_of_waits():
    def work(workers):
        each, _ = saver(workers)
        exchanged(workers, each)
        each.signals.stop = signal.SIGTERM  # after the last word between the workers
        return each.due(), each.stopping, each.save_and_obey(TrainState(), sound=True)

    assert in_threads(2, work) == [(False, False, "epoch_0001")] * 2


def test_it_is_the_chief_s_clock_that_counts():
    def work(workers, chief_minutes, minutes):
        each, _ = saver(workers, chief_minutes if workers.is_chief else minutes)
        exchanged(workers, each)
        due = each.due()
        each.save(TrainState(), sound=True)
        return due, each.due()

    assert in_threads(2, lambda workers: work(workers, 0.0, 60.0)) == [(True, False)] * 2
    assert in_threads(2, lambda workers: work(workers, 60.0, 0.0)) == [(False, False)] * 2


def test_any_worker_may_be_asked_for_a_checkpoint():
    def work(workers):
        each, saved = saver(workers, save=workers.index == 1)
        exchanged(workers, each)
        due = each.due()
        return due, each.save_and_obey(TrainState(), sound=True), each.due(), saved.saves, each.signals.save

    assert in_threads(2, work) == [(True, "epoch_0001", False, 1, False)] * 2


def test_all_wait_at_the_end_until_the_chief_has_room(monkeypatch):
    monkeypatch.setattr(checkpoint_policy, "RETRY_SECONDS", 0.05)

    def work(workers):
        each, saved = saver(workers, failures=2)
        each.save_the_end(TrainState(), sound=True)
        return saved.saves

    assert in_threads(2, work) == [3, 3]


def test_a_signal_at_one_worker_ends_the_wait_of_all(monkeypatch):
    monkeypatch.setattr(checkpoint_policy, "RETRY_SECONDS", 60)

    def work(workers):
        each, _ = saver(workers, failures=100, stop=signal.SIGTERM if workers.index == 1 else 0)
        with pytest.raises(Stopped, match="what came after the last checkpoint is lost"):
            each.save_the_end(TrainState(), sound=True)

    assert in_threads(2, work) == [None, None]
