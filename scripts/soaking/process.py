"""Start train.py, as one process or two workers, and disturb it while it runs."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "train.py"
POLL_SECONDS = 0.01
LIMIT_SECONDS = 3600  # of a start, on a busy machine
END_SECONDS = 1500  # between a fault and the end of all workers
FULL_BYTES = (0, 1000, 20_000)  # at which writing a file fails, as on a full disk
DEADLY = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGINT twice", "full disk and SIGKILL", "full disk and SIGTERM")
FAULTS = ("SIGKILL", "SIGKILL", "SIGKILL", *DEADLY[1:], "SIGUSR1", "full disk", "full disk", "pause")
MOMENTS = ("start", "training", "steps", "steps", "save", "save")


class Start:
    """One start of a run.

    Args:
        run: Folder of the run.
        flags: Flags of train.py.
        workers: Number of processes.
        log: File that gets the output.

    Attributes:
        processes: The workers.
        allowed: Exit codes that the faults so far explain.
    """

    def __init__(self, run: pathlib.Path, flags: Sequence[str], workers: int, log: pathlib.Path) -> None:
        self._run = run
        self._before = self._progress()
        self._log = log
        self._log_begin = log.stat().st_size if log.exists() else 0
        self.allowed = {0}
        temporary = run.parent / "tmp"
        temporary.mkdir(exist_ok=True)
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TMPDIR": str(temporary)}
        command = [sys.executable, str(PROGRAM), *flags, "--output_dir", str(run)]
        self.processes, self._copies = [], []
        for config in cluster(workers):
            with open(log, "ab") as output:  # written by another process: a full disk must not hide messages
                copy = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=output, start_new_session=True)
            process = subprocess.Popen(
                command,
                env={**environment, **config},
                stdin=subprocess.DEVNULL,
                stdout=copy.stdin,
                stderr=subprocess.STDOUT,
            )
            assert copy.stdin
            copy.stdin.close()
            self.processes.append(process)
            self._copies.append(copy)

    def is_running(self) -> bool:
        """Return whether a worker has not ended."""
        return any(process.poll() is None for process in self.processes)

    def output(self) -> str:
        """Return what the workers have printed."""
        return self._log.read_bytes()[self._log_begin :].decode(errors="replace")

    def _progress(self) -> tuple[int, list[str]]:
        log, checkpoints = self._run / "metrics.jsonl", self._run / "checkpoints"
        try:
            return log.stat().st_size if log.exists() else 0, sorted(path.name for path in checkpoints.glob("epoch_*"))
        except OSError:
            return self._before

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        """Wait until a condition holds; return False if all workers have ended before."""
        end = time.monotonic() + LIMIT_SECONDS
        while self.is_running() and time.monotonic() < end:
            if condition():
                return True
            time.sleep(POLL_SECONDS)
        return False

    def wait_for_training(self, changes: int = 1) -> bool:
        """Wait until this start has written a number of checkpoints or parts of the log."""
        before = self._before
        for _ in range(changes):
            if not self.wait_for(lambda seen=before: self._progress() != seen):
                return False
            before = self._progress()
        return True

    def wait_for_moment(self, moment: str, share: float, start_seconds: float, training_seconds: float) -> bool:
        """Wait for a moment; return False if all workers have ended before.

        Args:
            moment: One of `MOMENTS`.
            share: Random number in [0, 1).
            start_seconds: What the start of an undisturbed run takes.
            training_seconds: What the rest of it takes, building the training step included.
        """
        changes, rest = divmod(6 * share, 1)
        if moment != "start" and not self.wait_for_training(1 if moment == "training" else 2 + int(changes)):
            return False
        if moment == "save" and not self.wait_for(lambda: any(self._run.glob("checkpoints/.*"))):
            return False
        seconds = {
            "start": (0.03 + share) * start_seconds,  # at first, Python itself prints a traceback for Ctrl-C
            "training": share * training_seconds / 2,
            "steps": rest,
            "save": rest * 0.03,
        }
        end = time.monotonic() + seconds[moment]
        return self.wait_for(lambda: time.monotonic() >= end)

    def disturb(self, fault: str, rng: random.Random, together: bool) -> None:
        """Make one of the `FAULTS`.

        Args:
            fault: Name of the fault.
            rng: Random numbers for details.
            together: Whether all workers get it; otherwise one of several.
        """
        targets = self.processes if together else [rng.choice(self.processes)]
        if len(self.processes) > 1 and fault != "SIGUSR1":
            self.allowed |= {1, 128 + signal.SIGTERM}  # the others lose a worker, or stop with it as if by SIGTERM
        seconds = rng.uniform(0.3, 6)
        if fault.startswith("full disk"):
            self.allowed |= {1, 2}
            self._limit_files(rng.choice(FULL_BYTES))
            end = time.monotonic() + seconds
            self.wait_for(lambda: time.monotonic() >= end)
            fault = fault.partition(" and ")[2]
            if not fault:
                self._limit_files(resource.RLIM_INFINITY)
                return
        if fault == "pause":
            self._send(targets, signal.SIGSTOP)
            time.sleep(min(seconds, 2))
            self._send(targets, signal.SIGCONT)
            return
        name, *twice = fault.split()
        number = signal.Signals[name]
        # A signal before the program handles it ends the process.
        self.allowed |= {-number, 128 + number}
        self._send(targets, number)
        if twice:
            time.sleep(rng.uniform(0, 0.6))  # the second is ignored if it comes early
            self._send(targets, number)

    def is_training(self) -> bool:
        """Return whether this start has begun an epoch, so that it handles signals."""
        return "Epoch " in self.output()

    def has_logged(self, epoch: int) -> bool:
        """Return whether the log may have the losses of an epoch; a full disk delays them."""
        try:
            text = (self._run / "metrics.jsonl").read_text(errors="replace")
        except OSError:
            text = ""
        return 2 in self.allowed or f'"split": "train", "epoch": {epoch},' in text

    def demand_stop(self, fault: str) -> None:
        """Allow no other end after a signal to stop that came between two steps than by the code of this signal."""
        if fault in ("SIGTERM", "SIGHUP"):
            self.allowed -= {0, -signal.Signals[fault]}

    def _limit_files(self, size: int) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, hard))

    def _send(self, processes: Sequence[subprocess.Popen[bytes]], number: int) -> None:
        for process in processes:
            process.send_signal(number)

    def wait(self, seconds: float = LIMIT_SECONDS) -> list[int] | None:
        """Return the exit codes of all workers; kill them and return `None` if one does not end in time."""
        end = time.monotonic() + seconds
        while self.is_running() and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        ended = not self.is_running()
        self.kill()
        return [process.returncode for process in self.processes] if ended else None

    def kill(self) -> None:
        """End all workers."""
        for process in [*self.processes, *self._copies]:
            if process in self.processes:
                process.kill()
            process.wait()


def cluster(workers: int) -> list[dict[str, str]]:
    """Return the environment variables of each worker, with free ports of this machine."""
    if workers == 1:
        return [{}]
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(workers)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in held]
    for each in held:
        each.close()
    whole = {"cluster": {"worker": addresses}}
    return [
        {"TF_CONFIG": json.dumps({**whole, "task": {"type": "worker", "index": index}})} for index in range(workers)
    ]
