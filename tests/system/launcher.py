"""Run scripts/launch_local.sh with fake workers, and inspect what they record."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Fake train.py: records its start and its signals, and exits as the test says, or after a time limit.
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
    """Make a clone with a space in its name and a finished environment."""

    def __init__(self, folder):
        self.folder, self.clone, self.records, self.bin = (
            folder / name for name in ("other", "a clone", "records", "bin")
        )
        for path in (self.folder, self.clone / "env" / "bin", self.records, self.bin):
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
        (self.records / "plan").write_text(json.dumps(plan or {}))
        every = {
            key: value
            for key, value in os.environ.items()
            if key not in ("CUDA_VISIBLE_DEVICES", "PYTHON", "TF_CONFIG")
        }
        every.update(
            VENV="env", PLAN=str(self.records / "plan"), RECORDS=str(self.records), PATH=f"{self.bin}:{every['PATH']}"
        )
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
