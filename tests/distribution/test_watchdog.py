import threading

from cyclegan import terminal
from cyclegan.distribution import watchdog
from cyclegan.distribution.watchdog import Watchdog


def watch(monkeypatch, seconds, beats, checkpoint="epoch_0001"):
    """Return (message, exit code) of the first end within 0.6 s; `None` if the watchdog stays quiet."""
    ended, found = threading.Event(), []

    def end(*arguments):
        found.append(arguments)
        ended.set()

    monkeypatch.setattr(terminal, "end", end)
    monkeypatch.setattr(watchdog, "INTERVAL", 0.02)
    with Watchdog(seconds, lambda: checkpoint, "worker 1: ") as guard:
        for _ in range(30):
            if ended.wait(0.02):
                break
            if beats:
                guard.beat()
    return found[0] if found else None


def test_stuck_training_ends_with_the_name_of_the_last_checkpoint(monkeypatch):
    text, code = watch(monkeypatch, 0.2, beats=False)
    assert code == 1 and text.startswith(
        "worker 1: no step, evaluation or checkpoint has ended for 0.2 s (--step_timeout)"
    )
    assert "The last checkpoint is epoch_0001, and the same command resumes" in text


def test_stuck_training_ends_before_the_first_checkpoint(monkeypatch):
    text, code = watch(monkeypatch, 0.2, beats=False, checkpoint=None)
    assert code == 1 and text.endswith("is stuck. There is no checkpoint yet")


def test_progress_and_no_limit_keep_training_alive(monkeypatch):
    assert watch(monkeypatch, 0.2, beats=True) is None
    assert watch(monkeypatch, None, beats=False) is None


def test_nothing_ends_after_training(monkeypatch):
    ended = []
    monkeypatch.setattr(terminal, "end", lambda *arguments: ended.append(arguments))
    monkeypatch.setattr(watchdog, "INTERVAL", 0.02)
    with Watchdog(0.1, lambda: None):
        pass
    threading.Event().wait(0.2)
    assert not ended
