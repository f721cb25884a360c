"""Run scripts/launch_local.sh with a fake train.py, which records its start and its signals."""

import contextlib
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Exits as the test says, or after a time limit.
TRAIN = """
import json, os, pathlib, signal, sys, time

config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
plan = json.loads(pathlib.Path(os.environ["PLAN"]).read_text()).get(str(index), {})
records = pathlib.Path(os.environ["RECORDS"])

def record(name, content):
    (records / ".new").with_suffix(f".{index}").write_text(json.dumps(content))
    (records / ".new").with_suffix(f".{index}").rename(records / f"{name}{index}")

signals = []
usual = [signal.getsignal(each) == signal.SIG_DFL for each in (signal.SIGTERM, signal.SIGHUP)]
usual.append(signal.getsignal(signal.SIGINT) == signal.default_int_handler)

for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(each, lambda number, _: signals.append(number))
record("start", {
    "config": config, "flags": sys.argv[1:], "pid": os.getpid(), "folder": os.getcwd(), "usual": usual,
    "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
})
end = time.monotonic() + plan.get("seconds", 20)
while time.monotonic() < end and len(signals) < plan.get("signals", 1):
    time.sleep(0.005)
    record("signals", signals)
record("signals", signals)
os._exit(plan["code"] if "code" in plan else 128 + signals[-1] if signals else 0)
"""

# Run a command as a terminal does.
TERMINAL = """
import fcntl, os, sys, termios

os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Launcher:
    """A clone with a space in its name and a finished environment."""

    def __init__(self, folder):
        names = ("other", "a clone", "records", "bin")
        self.folder, self.clone, self.records, self.bin = (folder / name for name in names)
        for path in (self.folder, self.clone / "env" / "bin", self.records, self.bin):
            path.mkdir(parents=True)
        shutil.copytree(ROOT / "scripts", self.clone / "scripts", ignore=shutil.ignore_patterns("*.py", "tutorials"))
        for name in ("requirements.txt", "requirements-gpu.txt"):
            shutil.copy(ROOT / name, self.clone)
        (self.clone / "train.py").write_text(TRAIN)
        (self.clone / "env" / "bin" / "python").symlink_to(sys.executable)
        self.nvidia_smi("exit 9", "requirements.txt")
        self.process = None

    def nvidia_smi(self, script, requirements):
        """Install an nvidia-smi, and make setup.sh find the packages of a file of requirements installed."""
        (self.bin / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / "nvidia-smi").chmod(0o755)
        command = "cat requirements.txt requirements-gpu.txt | cksum"
        cksum = subprocess.run(command, shell=True, cwd=self.clone, capture_output=True, text=True).stdout
        (self.clone / "env" / ".installed").write_text(f"{requirements} {cksum}")

    def start(self, *arguments, plan=None, environment=None, before=(), **options):
        """Start the script with a plan per worker: {index: {"signals": least, "seconds": limit, "code": code}}."""
        (self.records / "plan").write_text(json.dumps(plan or {}))
        hidden = ("CUDA_VISIBLE_DEVICES", "PYTHON", "TF_CONFIG")
        every = {name: value for name, value in os.environ.items() if name not in hidden}
        every |= {"VENV": "env", "PLAN": str(self.records / "plan"), "RECORDS": str(self.records)}
        every |= {"PATH": f"{self.bin}:{every['PATH']}", **(environment or {})}
        command = [*before, str(self.clone / "scripts" / "launch_local.sh"), *arguments]
        options = {"cwd": self.folder, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        self.process = subprocess.Popen(command, env=every, **options)

    def run(self, *arguments, **options):
        """Run the script to its end; return (exit code, standard output, standard error)."""
        self.start(*arguments, **options)
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err

    def wait(self, name, count, enough=lambda _: True):
        """Wait for the files of a name by `count` workers; return their contents."""
        end = time.monotonic() + 15
        while time.monotonic() < end:
            paths = [self.records / f"{name}{index}" for index in range(count)]
            if all(path.exists() for path in paths):
                contents = [json.loads(path.read_text()) for path in paths]
                if all(map(enough, contents)):
                    return contents
            time.sleep(0.005)
        raise AssertionError(f"{name}: {sorted(path.name for path in self.records.iterdir())}")

    def pass_on(self, *numbers, count=2):
        """Send signals, each after the last one reached all workers; return the signals by worker."""
        for done, number in enumerate(numbers, start=1):
            self.process.send_signal(number)
            got = self.wait("signals", count, lambda signals, done=done: len(signals) >= done)
        return got

    def pids(self):
        return [json.loads(path.read_text())["pid"] for path in self.records.glob("start*")]


def alive(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


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


@pytest.mark.parametrize("dashes", [["--"], []])
def test_workers_get_their_index_and_the_flags(launcher, dashes):
    flags = ["--dataset", "my images", "--", "--epochs=2", ""]
    code, out, err = launcher.run("3", *dashes, *flags, plan={str(index): {"seconds": 0} for index in range(3)})
    assert (code, out, err) == (0, "", "")
    starts = launcher.wait("start", 3)
    for index, start in enumerate(starts):
        assert start["config"]["task"] == {"type": "worker", "index": index}
        assert start["config"]["cluster"] == starts[0]["config"]["cluster"]
        assert (start["flags"], start["folder"], start["gpus"]) == (flags, str(launcher.folder), None)
        assert start["usual"] == [True, True, True], "no signal may be ignored from the start"
    addresses = starts[0]["config"]["cluster"]["worker"]
    assert len(set(addresses)) == 3 and all(address.startswith("127.0.0.1:") for address in addresses)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "numbers", [[signal.SIGTERM], [signal.SIGHUP], [signal.SIGINT], [signal.SIGUSR1, signal.SIGTERM]]
)
def test_signals_reach_each_worker_once(launcher, numbers):
    launcher.start("2", plan={str(index): {"signals": len(numbers)} for index in range(2)})
    launcher.wait("start", 2)
    assert launcher.pass_on(*numbers) == [numbers] * 2
    assert launcher.process.wait(5) == 128 + numbers[-1]
    assert launcher.process.stderr.read() == ""  # nothing holds it open


def test_every_ctrl_c_reaches_each_worker(launcher):
    keyboard, terminal = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    plan = {"0": {"signals": 2}, "1": {"signals": 2}}
    launcher.start("2", plan=plan, before=[sys.executable, "-c", TERMINAL], **streams)
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


def test_killed_worker_fails_and_others_finish(launcher):
    launcher.start("2", plan={"1": {"seconds": 0.5}})
    first, second = (start["pid"] for start in launcher.wait("start", 2))
    os.kill(first, signal.SIGKILL)
    assert launcher.process.wait(10) == 137 and not alive(second)


def test_stubborn_workers_are_killed(launcher):
    launcher.start("2", environment={"GRACE": "1"}, plan={"0": {"signals": 9}, "1": {"signals": 9}})
    launcher.wait("start", 2)
    launcher.pass_on(signal.SIGTERM)
    assert launcher.process.wait(5) == 137 and not any(map(alive, launcher.pids()))
    assert "killing the workers that are still there after 1 s" in launcher.process.stderr.read()


USAGE = "expected a number of workers from 1 to 99; usage: scripts/launch_local.sh N [--] [flags of train.py]"


@pytest.mark.parametrize(
    "arguments, environment, refusal",
    [
        *((arguments, {}, USAGE) for arguments in ([], ["0"], ["two"], ["100"])),
        (["2"], {"GRACE": "1m"}, "launch_local: GRACE=1m: expected a number of seconds"),
        (["2"], {"CUDA_VISIBLE_DEVICES": "0,1,2"}, "0,1,2 lists 3 GPUs, expected a number that 2 divides"),
    ],
)
def test_bad_numbers_are_refused(launcher, arguments, environment, refusal):
    code, out, err = launcher.run(*arguments, environment=environment)
    assert (code, out) == (2, "") and err.count("\n") == 1 and refusal in err and not launcher.pids()


@pytest.mark.sampled
@pytest.mark.parametrize(
    "visible, expected",
    [
        ("0,1,2,3", ["0,1", "2,3"]),
        ("3,2,-1,1", ["3", "2"]),
        (None, ["0,1", "2,3"]),  # as nvidia-smi has them
    ],
)
def test_divides_gpus(launcher, visible, expected):
    if visible is None:
        script = '[ "$1" = -L ] && for i in 0 1 2 3; do echo "GPU $i: NVIDIA (UUID: GPU-$i)"; done'
        launcher.nvidia_smi(script, "requirements-gpu.txt")
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    plan = {"0": {"seconds": 0}, "1": {"seconds": 0}}
    assert launcher.run("2", environment=environment, plan=plan) == (0, "", "")
    assert [start["gpus"] for start in launcher.wait("start", 2)] == expected
