"""Run scripts/launch_local.sh with fake workers."""

import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Fake train.py: records its start and its signals, and exits as the test says, or after a time limit.
TRAIN = """
import json, os, pathlib, signal, sys, time

config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
plan = json.loads(pathlib.Path(os.environ["PLAN"]).read_text()).get(str(index), {})
said = pathlib.Path(os.environ["SAID"])

def say(name, content):
    (said / ".new").with_suffix(f".{index}").write_text(json.dumps(content))
    (said / ".new").with_suffix(f".{index}").rename(said / f"{name}{index}")

signals = []
usual = [signal.getsignal(each) == signal.SIG_DFL for each in (signal.SIGTERM, signal.SIGHUP)]
usual.append(signal.getsignal(signal.SIGINT) == signal.default_int_handler)

for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(each, lambda number, _: signals.append(number))
say("start", {
    "config": config, "flags": sys.argv[1:], "pid": os.getpid(), "folder": os.getcwd(), "usual": usual,
    "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
})
end = time.monotonic() + plan.get("seconds", 20)
while time.monotonic() < end and len(signals) < plan.get("signals", 1):
    time.sleep(0.005)
    say("signals", signals)
say("signals", signals)
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
    """Make a clone with a space in its name and a finished environment."""

    def __init__(self, folder):
        self.folder, self.clone, self.said, self.bin = (folder / name for name in ("other", "a clone", "said", "bin"))
        for path in (self.folder, self.clone / "env" / "bin", self.said, self.bin):
            path.mkdir(parents=True)
        shutil.copytree(ROOT / "scripts", self.clone / "scripts", ignore=shutil.ignore_patterns("*.py", "tutorials"))
        for name in ("requirements.txt", "requirements-gpu.txt"):
            shutil.copy(ROOT / name, self.clone)
        (self.clone / "train.py").write_text(TRAIN)
        (self.clone / "env" / "bin" / "python").symlink_to(sys.executable)
        self.command("nvidia-smi", "exit 9")
        self.installed("requirements.txt")
        self.process = None

    def command(self, name, text):
        """Put a command before the commands of the machine."""
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def installed(self, requirements):
        """Make setup.sh find all packages installed."""
        cksum = subprocess.run(
            "cat requirements.txt requirements-gpu.txt | cksum", shell=True, cwd=self.clone, capture_output=True
        )
        (self.clone / "env" / ".installed").write_text(f"{requirements} {cksum.stdout.decode()}")

    def start(self, *arguments, plan=None, environment=None, before=(), **options):
        """Start the script with a plan per worker: {index: {"signals": least number, "seconds": limit, "code": exit code}}."""
        (self.said / "plan").write_text(json.dumps(plan or {}))
        every = {
            key: value
            for key, value in os.environ.items()
            if key not in ("CUDA_VISIBLE_DEVICES", "PYTHON", "TF_CONFIG")
        }
        every.update(VENV="env", PLAN=str(self.said / "plan"), SAID=str(self.said), PATH=f"{self.bin}:{every['PATH']}")
        command = [*before, str(self.clone / "scripts" / "launch_local.sh"), *arguments]
        options = {"cwd": self.folder, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        self.process = subprocess.Popen(command, env={**every, **(environment or {})}, **options)

    def run(self, *arguments, **options):
        """Run the script to its end; return (exit code, standard output, standard error)."""
        self.start(*arguments, **options)
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err

    def wait(self, name, count, enough=lambda _: True):
        """Wait for the files of a name by `count` workers; return their contents."""
        end = time.monotonic() + 15
        while time.monotonic() < end:
            paths = [self.said / f"{name}{index}" for index in range(count)]
            if all(path.exists() for path in paths):
                contents = [json.loads(path.read_text()) for path in paths]
                if all(map(enough, contents)):
                    return contents
            time.sleep(0.005)
        raise AssertionError(f"{name}: {sorted(path.name for path in self.said.iterdir())}")

    def pass_on(self, *numbers, count=2):
        """Send signals, each after the last one reached all workers; return the signals by worker."""
        for done, number in enumerate(numbers, start=1):
            self.process.send_signal(number)
            got = self.wait("signals", count, lambda signals, done=done: len(signals) >= done)
        return got

    def pids(self):
        return [json.loads(path.read_text())["pid"] for path in self.said.glob("start*")]


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


def alive(pid):
    """Return whether a process is running."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text() if os.path.isdir("/proc/self") else ""
        os.kill(pid, 0)
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state.rpartition(")")[2].split()[:1] != ["Z"]


def gone(pids, seconds):
    """Return whether all processes end within a number of seconds."""
    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    return not any(map(alive, pids))


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
