"""Run scripts/launch_local.sh with fake workers."""

import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.system.launcher import TERMINAL, Launcher, alive, gone


@pytest.fixture
def launcher(tmp_path):
    launcher = Launcher(tmp_path)
    yield launcher
    if launcher.process:
        launcher.process.kill()
        launcher.process.communicate()
    for pid in filter(alive, launcher.pids()):
        os.kill(pid, signal.SIGKILL)
        pytest.fail(f"worker {pid} outlived the script")


def test_workers_get_their_index_and_the_flags(launcher):
    flags = ["--dataset", "my images", "--", "--epochs=2", ""]
    code, out, err = launcher.run("3", "--", *flags, plan={str(index): {"seconds": 0} for index in range(3)})
    assert (code, out, err) == (0, "", "")
    starts = launcher.wait("start", 3)
    for index, start in enumerate(starts):
        assert start["config"]["task"] == {"type": "worker", "index": index}
        assert start["config"]["cluster"] == starts[0]["config"]["cluster"]
        assert (start["flags"], start["folder"], start["gpus"]) == (flags, str(launcher.folder), None)
        assert start["usual"] == [True, True, True], "no signal may be ignored from the start"
    addresses = starts[0]["config"]["cluster"]["worker"]
    assert len(set(addresses)) == 3 and all(address.startswith("127.0.0.1:") for address in addresses)


def test_dashes_are_optional(launcher):
    assert launcher.run("1", "--epochs", "2", plan={"0": {"seconds": 0}})[0] == 0
    assert launcher.wait("start", 1)[0]["flags"] == ["--epochs", "2"]


@pytest.mark.sampled
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_stop_signal_reaches_each_worker_once(launcher, number):
    launcher.start("2")
    launcher.wait("start", 2)
    assert launcher.pass_on(number) == [[number]] * 2
    assert launcher.process.wait(5) == 128 + number


def test_sigusr1_reaches_each_worker(launcher):
    launcher.start("2", plan={"0": {"signals": 2, "code": 0}, "1": {"signals": 2, "code": 0}})
    launcher.wait("start", 2)
    usr1 = signal.SIGUSR1
    assert launcher.pass_on(usr1, usr1) == [[usr1, usr1]] * 2
    assert launcher.process.wait(5) == 0


def test_every_ctrl_c_reaches_each_worker(launcher):
    keyboard, terminal = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    launcher.start(
        "2", plan={"0": {"signals": 2}, "1": {"signals": 2}}, before=[sys.executable, "-c", TERMINAL], **streams
    )
    os.close(terminal)
    launcher.wait("start", 2)
    for presses in (1, 2):
        os.write(keyboard, b"\x03")
        got = launcher.wait("signals", 2, lambda signals, presses=presses: len(signals) >= presses)
        assert got == [[signal.SIGINT] * presses] * 2
    assert launcher.process.wait(5) == 130
    os.close(keyboard)


@pytest.mark.parametrize("codes, expected", [((0, 3, 1), 3), ((143, 0, 1), 143)])
def test_first_failure_is_the_exit_code(launcher, codes, expected):
    plan = {str(index): {"seconds": 0.05 * (3 - index), "code": code} for index, code in enumerate(codes)}
    assert launcher.run("3", plan=plan) == (expected, "", "")


def test_exit_code_of_a_forwarded_signal_wins(launcher):
    launcher.start("3", plan={"0": {"code": 1}, "1": {"code": 130}, "2": {"code": 143}})
    launcher.wait("start", 3)
    launcher.pass_on(signal.SIGTERM, count=3)
    assert launcher.process.wait(5) == 143


def test_killed_worker_fails_and_others_finish(launcher):
    launcher.start("2", plan={"1": {"seconds": 0.5}})
    first, second = (start["pid"] for start in launcher.wait("start", 2))
    os.kill(first, signal.SIGKILL)
    assert launcher.process.wait(10) == 137 and not alive(second)


def test_waits_for_a_suspended_worker(launcher):
    launcher.start("2", plan={"0": {"seconds": 0.6, "code": 0}, "1": {"seconds": 0}})
    pid = launcher.wait("start", 2)[0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        launcher.process.wait(0.3)
    os.kill(pid, signal.SIGCONT)
    assert launcher.process.wait(5) == 0


def test_stubborn_workers_are_killed(launcher):
    launcher.start("2", environment={"GRACE": "1"}, plan={"0": {"signals": 9}, "1": {"signals": 9}})
    launcher.wait("start", 2)
    launcher.pass_on(signal.SIGTERM)
    code = launcher.process.wait(5)
    assert code == 137 and gone(launcher.pids(), 0)
    assert "killing the workers that are still there after 1 s" in launcher.process.stderr.read()


def test_killed_script_stops_its_workers(launcher):
    launcher.start("2", environment={"GRACE": "1"}, plan={"0": {"signals": 9}})
    launcher.wait("start", 2)
    launcher.process.kill()
    assert launcher.wait("signals", 2, bool) == [[signal.SIGTERM]] * 2
    assert gone(launcher.pids(), 5)


@pytest.mark.parametrize(
    "arguments", [[], ["0"], ["-1"], ["two"], ["2.5"], ["100"], ["08"], ["--", "2"], ["--dataset", "stripes"], [""]]
)
def test_refuses_bad_numbers(launcher, arguments):
    code, out, err = launcher.run(*arguments)
    assert (
        (code, out) == (2, "") and "expected a number of workers from 1 to 99; usage: " in err and err.count("\n") == 1
    )


def test_help_is_printed_and_a_bad_grace_refused(launcher):
    assert launcher.run("--help") == (0, "usage: scripts/launch_local.sh N [--] [flags of train.py]\n", "")
    assert launcher.run("2", environment={"GRACE": "1m"})[0::2] == (
        2,
        "launch_local: GRACE=1m: expected a number of seconds\n",
    )


@pytest.mark.sampled
@pytest.mark.parametrize(
    "visible, workers, expected",
    [
        ("0,1,2,3", 2, ["0,1", "2,3"]),
        ("GPU-5a,GPU-7", 2, ["GPU-5a", "GPU-7"]),
        ("3,2,-1,1", 2, ["3", "2"]),
        ("", 2, ["", ""]),
        ("-1", 2, ["-1", "-1"]),
        (None, 2, ["0,1", "2,3"]),  # as nvidia-smi has them
    ],
)
def test_divides_gpus(launcher, visible, workers, expected):
    if visible is None:
        launcher.command(
            "nvidia-smi", '[ "$1" = -L ] && for i in 0 1 2 3; do echo "GPU $i: NVIDIA (UUID: GPU-$i)"; done'
        )
        launcher.installed("requirements-gpu.txt")
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    plan = {str(index): {"seconds": 0} for index in range(workers)}
    assert launcher.run(str(workers), environment=environment, plan=plan) == (0, "", "")
    assert [start["gpus"] for start in launcher.wait("start", workers)] == expected


@pytest.mark.sampled
@pytest.mark.parametrize("visible, workers", [("0,1,2", 2), ("0", 2), ("0,1", 4)])
def test_refuses_indivisible_gpus(launcher, visible, workers):
    code, out, err = launcher.run(str(workers), environment={"CUDA_VISIBLE_DEVICES": visible})
    assert (code, out) == (2, "") and err.count("\n") == 1 and not launcher.pids()
    count = visible.count(",") + 1
    assert (
        f"{workers} workers: CUDA_VISIBLE_DEVICES={visible} lists {count} GPUs, expected a number that {workers} divides"
        in err
    )
