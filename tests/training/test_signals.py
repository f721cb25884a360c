"""Signals during training."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from cyclegan import terminal
from cyclegan.training.checkpoint_policy import Signals

ROOT = pathlib.Path(__file__).resolve().parents[2]


def send(signum):
    os.kill(os.getpid(), signum)


def until(condition, seconds=5):
    """Wait until another thread makes `condition()` true; return whether it does."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_request_to_stop_is_reported_once(signum, caplog):
    before = signal.signal(signum, signal.default_int_handler)  # the tests may run under `nohup`
    try:
        with Signals() as signals:
            assert signals.stop_signal == 0 and signals.save_requested is False
            send(signum)
            assert until(lambda: signals.stop_signal == signum and caplog.messages)
            send(signal.SIGTERM)  # a second `kill` changes nothing
            send(signal.SIGUSR1)
            assert until(lambda: signals.save_requested)  # so the second `kill` has been received, too
    finally:
        signal.signal(signum, before)
    assert signals.stop_signal == signum
    (text,) = caplog.messages
    key = "Ctrl-C again" if signum == signal.SIGINT else "Ctrl-C"  # only that stops at once
    assert "Stopping after this step" in text and f"; {key} leaves at once" in text


def test_a_signal_just_before_the_end_is_not_lost():
    with Signals() as signals:
        send(signal.SIGTERM)
    assert signals.stop_signal == signal.SIGTERM


def test_signals_that_were_ignored_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Signals() as signals:
            send(signal.SIGINT)
            send(signal.SIGUSR1)
            assert until(lambda: signals.save_requested) and signals.stop_signal == 0
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_second_ctrl_c_interrupts_a_program_that_is_no_command_of_the_package(monkeypatch):
    monkeypatch.setattr(terminal, "is_command", False)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run under `nohup`
    try:
        with pytest.raises(KeyboardInterrupt), Signals() as signals:
            send(signal.SIGTERM)
            assert until(lambda: signals.stop_signal)
            send(signal.SIGINT)
            until(lambda: False)
    finally:
        signal.signal(signal.SIGINT, before)


def in_a_long_call():
    """Start a process that stays in a long call into C, where Python runs no handlers."""
    program = """
import hashlib, logging, sys
from cyclegan import terminal
from cyclegan.training.checkpoint_policy import Signals

logging.basicConfig(stream=sys.stdout, format="%(message)s")
terminal.is_command = True
with Signals():
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000_000)  # minutes
    print("end", flush=True)
"""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, text=True, **pipes)


def test_a_second_ctrl_c_ends_the_process_in_the_middle_of_a_step():
    with in_a_long_call() as process:
        killer = threading.Timer(30, process.kill)  # ends a process that ignores the signals
        killer.start()
        try:
            assert "ready\n" in iter(process.stdout.readline, "")  # behind notices of TensorFlow
            time.sleep(0.2)  # the process is in the call now
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline().startswith("Stopping after this step")  # printed during the call
            time.sleep(0.4)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130
            end = "stopped at once, without a checkpoint; the same command resumes from the last one\n"
            assert process.stdout.read() == f"\n-c: {end}"
        finally:
            killer.cancel()
            process.kill()
