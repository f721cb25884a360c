import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from cyclegan.training.signals import Signals

ROOT = pathlib.Path(__file__).resolve().parents[2]
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def send(signum):
    os.kill(os.getpid(), signum)


def until(condition, seconds=5):
    """Whether `condition()` becomes true; another thread receives the signals."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def state():
    """All that entering changes in the process."""
    signal.set_wakeup_fd(descriptor := signal.set_wakeup_fd(-1))
    return (
        [signal.getsignal(signum) for signum in HANDLED],
        descriptor,
        threading.active_count(),
        len(os.listdir("/proc/self/fd")),
    )


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_being_told_to_stop_is_noted_and_said_once(signum):
    said = []
    with Signals(said.append) as signals:
        assert signals.stop == 0 and signals.save is False
        send(signum)
        assert until(lambda: signals.stop == signum and said)
        send(signal.SIGTERM)  # `kill` once more: still one step to go, and no news
        send(signal.SIGUSR1)
        assert until(lambda: signals.save)  # so the one before has been received, too
    assert signals.stop == signum and len(said) == 1
    assert "Stopping after this step" in said[0] and "Ctrl-C again" in said[0]


def test_being_told_to_save_is_no_reason_to_stop():
    said = []
    with Signals(said.append) as signals:
        for _ in range(2):  # the loop sets it back
            send(signal.SIGUSR1)
            assert until(lambda: signals.save)
            signals.save = False
    assert signals.stop == 0 and said == []


def test_afterwards_everything_is_as_before():
    before = state()
    for _ in range(2):
        with Signals():
            assert state() != before
    assert state() == before
    with pytest.raises(ZeroDivisionError), Signals():
        _ = 1 / 0
    assert state() == before
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)
        time.sleep(1)


def test_a_signal_just_before_the_end_is_not_lost():
    with Signals(lambda text: None) as signals:
        send(signal.SIGTERM)
    assert signals.stop == signal.SIGTERM


@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGTERM])
def test_signals_that_were_ignored_stay_ignored(ignored):
    before = signal.signal(ignored, signal.SIG_IGN)
    try:
        with Signals() as signals:
            assert signal.getsignal(ignored) == signal.SIG_IGN
            send(ignored)
            send(signal.SIGUSR1)
            assert until(lambda: signals.save) and signals.stop == 0
        assert signal.getsignal(ignored) == signal.SIG_IGN
    finally:
        signal.signal(ignored, before)


def test_a_thread_that_may_not_handle_signals_changes_nothing():
    before, inside = state(), []

    def enter():
        with Signals() as signals:
            inside.append(([signal.getsignal(signum) for signum in HANDLED], signals.stop, signals.save))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert inside == [(before[0], 0, False)] and state() == before


def start(say):
    """A process that is inside of one long call into C, in which Python runs no handlers; it says "Stopping" on stdout."""
    program = f"""
import hashlib, os
from cyclegan.signals import Signals

def say(text):
    os.write(1, text.encode() + b"\\n")
    {say}

with Signals(say):
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000_000)  # minutes
    print("end", flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return process


@pytest.mark.parametrize(
    "first, say",
    [
        (signal.SIGINT, "pass"),
        (signal.SIGTERM, "pass"),
        (signal.SIGINT, "raise BrokenPipeError"),  # as when Ctrl-C also ended the `tee` behind it
    ],
)
def test_a_second_ctrl_c_leaves_at_once_even_in_the_middle_of_a_step(first, say):
    with start(say) as process:
        killer = threading.Timer(8, process.kill)  # of a process that does not listen
        killer.start()
        try:
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.2)  # now it is in the call
            process.send_signal(first)
            assert process.stdout.readline().startswith("Stopping after this step")  # said from inside the call
            time.sleep(0.2)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130
            assert process.stdout.read() == ""
        finally:
            killer.cancel()
            process.kill()
