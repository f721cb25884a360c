"""Programs under limits, in a process of their own."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from cyclegan import supervisor

ROOT = pathlib.Path(__file__).resolve().parents[1]


def start(code, before="pass"):
    """Start a supervised program in a session of its own; return it and its inner process, whose number it prints first."""
    program = f"""
import os, signal, sys, time
from cyclegan import terminal, supervisor

def main():
    {before}
    supervisor.supervise(lambda: "the last checkpoint is X")
    print(os.getpid(), flush=True)
    {code}

terminal.leave(terminal.run(main))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    inner = int(process.stdout.readline())
    assert inner != process.pid
    return process, inner


@pytest.mark.parametrize(
    "code, expected",
    [
        ("pass", 0),
        ("return 3", 3),
        ("sys.exit(2)", 2),
        ("os.kill(os.getpid(), 9)", 137),
        ("os.abort()", 1),
        ("os.kill(os.getpid(), 11)", 1),
    ],
)
def test_exit_codes(code, expected):
    process, _ = start(code)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == expected and "Traceback" not in errors
    crashes = [
        line
        for line in errors.splitlines()
        if "training was ended by SIG" in line
        and "which happens when memory or threads run out; the last checkpoint is X" in line
    ]
    assert len(crashes) == (expected == 1)


@pytest.mark.parametrize("signum", supervisor.FORWARDED)
def test_signals_are_forwarded_once(signum):
    count = f"got = []; signal.signal({int(signum)}, lambda *_: got.append(1)); print('ready', flush=True)"
    process, _ = start(f"{count}; time.sleep(0.5); time.sleep(0.2); return 10 + len(got)")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signum)
    process.communicate(timeout=60)
    assert process.returncode == 11


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_process_group_asks_to_stop_once(signum):
    process, _ = start("""from cyclegan.training.signals import Signals
    with Signals() as signals:
        print("ready", flush=True)
        time.sleep(0.5)
    return signals.stop_signal""")
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signum)
    process.communicate(timeout=60)
    assert process.returncode == signum


def test_an_end_is_noticed_where_the_parent_ignored_ends():
    process, _ = start("return 3", "signal.signal(signal.SIGCHLD, signal.SIG_IGN)")
    try:
        assert process.wait(20) == 3
    finally:
        process.kill()
        process.communicate()


def test_a_killed_supervisor_leaves_no_process():
    process, inner = start("time.sleep(60)")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    for _ in range(100):
        try:
            os.kill(inner, 0)
            state = pathlib.Path(f"/proc/{inner}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return
        if state == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("it still runs")


@pytest.mark.parametrize(
    "limits, limited",
    [((-1, -1), False), ((10**10, -1), True), ((-1, 100), True), ((-1, 100_000), False)],
)
def test_only_limits_need_a_supervisor(monkeypatch, limits, limited):
    by_number = dict(zip((supervisor.resource.RLIMIT_AS, supervisor.resource.RLIMIT_NPROC), limits))
    monkeypatch.setattr(supervisor.resource, "getrlimit", lambda number: (by_number[number], -1))
    assert supervisor.is_limited() == limited
