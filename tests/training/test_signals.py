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
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def send(signum):
    os.kill(os.getpid(), signum)


def until(condition, seconds=5):
    """Wait until another thread makes `condition()` true; return whether it does."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def state():
    """Return the state of the process that entering changes."""
    signal.set_wakeup_fd(descriptor := signal.set_wakeup_fd(-1))
    return (
        [signal.getsignal(signum) for signum in HANDLED],
        descriptor,
        threading.active_count(),
        len(os.listdir("/proc/self/fd")),
    )


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_request_to_stop_is_reported_once(signum, caplog):
    with Signals() as signals:
        assert signals.stop_signal == 0 and signals.save_requested is False
        send(signum)
        assert until(lambda: signals.stop_signal == signum and caplog.messages)
        send(signal.SIGTERM)  # a second `kill` changes nothing
        send(signal.SIGUSR1)
        assert until(lambda: signals.save_requested)  # so the second `kill` has been received, too
    assert signals.stop_signal == signum
    (text,) = caplog.messages
    assert "Stopping after this step" in text and "Ctrl-C again" in text


def test_a_request_to_save_does_not_stop(caplog):
    with Signals() as signals:
        for _ in range(2):  # the policy resets it
            send(signal.SIGUSR1)
            assert until(lambda: signals.save_requested)
            signals.save_requested = False
    assert signals.stop_signal == 0 and caplog.messages == []


def test_everything_is_restored():
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
    with Signals() as signals:
        send(signal.SIGTERM)
    assert signals.stop_signal == signal.SIGTERM


@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGTERM])
def test_signals_that_were_ignored_stay_ignored(ignored):
    before = signal.signal(ignored, signal.SIG_IGN)
    try:
        with Signals() as signals:
            assert signal.getsignal(ignored) == signal.SIG_IGN
            send(ignored)
            send(signal.SIGUSR1)
            assert until(lambda: signals.save_requested) and signals.stop_signal == 0
        assert signal.getsignal(ignored) == signal.SIG_IGN
    finally:
        signal.signal(ignored, before)


def test_other_threads_handle_no_signals():
    before, inside = state(), []

    def enter():
        with Signals() as signals:
            inside.append(
                ([signal.getsignal(signum) for signum in HANDLED], signals.stop_signal, signals.save_requested)
            )

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert inside == [(before[0], 0, False)] and state() == before


def start(report):
    """Start a process that stays in a long call into C, where Python runs no handlers; it reports warnings by `report(text)`."""
    program = f"""
import hashlib, logging, os
from cyclegan.training.signals import Signals

class Reporter(logging.Handler):
    def emit(self, record):
        os.write(1, record.getMessage().encode() + b"\\n")
        {report}

logging.getLogger("cyclegan").addHandler(Reporter())
with Signals():
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000_000)  # minutes
    print("end", flush=True)
"""
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


@pytest.mark.parametrize(
    "first, report",
    [
        (signal.SIGINT, "pass"),
        (signal.SIGTERM, "pass"),
        (signal.SIGINT, "raise BrokenPipeError"),  # Ctrl-C also ends a `tee` behind the program
    ],
)
def test_a_second_ctrl_c_ends_the_process_in_the_middle_of_a_step(first, report):
    with start(report) as process:
        killer = threading.Timer(8, process.kill)  # ends a process that ignores the signals
        killer.start()
        try:
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.2)  # the process is in the call now
            process.send_signal(first)
            assert process.stdout.readline().startswith("Stopping after this step")  # printed during the call
            time.sleep(0.4)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130
            assert process.stdout.read() == ""
        finally:
            killer.cancel()
            process.kill()
