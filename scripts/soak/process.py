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
DEADLY = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "full disk, SIGKILL", "full disk, SIGTERM")
FAULTS = (*DEADLY, "SIGKILL", "SIGKILL", "SIGUSR1", "full disk", "full disk", "pause")
MOMENTS = ("start", "training", "training", "save", "save")


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
        self.allowed = {0}
        self._run, self._log = run, log
        self._log_begin = log.stat().st_size if log.exists() else 0
        self._seen = self._progress()
        command = [sys.executable, str(PROGRAM), *flags, "--output_dir", str(run)]
        with open(log, "ab") as output:  # written by another process: a full disk must not hide messages
            self._copy = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=output, start_new_session=True)
        assert self._copy.stdin
        self.processes = [
            subprocess.Popen(
                command,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **config},
                stdin=subprocess.DEVNULL,
                stdout=self._copy.stdin,
                stderr=subprocess.STDOUT,
            )
            for config in cluster(workers)
        ]
        self._copy.stdin.close()

    def is_running(self) -> bool:
        """Return whether a worker has not ended."""
        return any(process.poll() is None for process in self.processes)

    def output(self) -> str:
        """Return what the workers have printed."""
        return self._log.read_bytes()[self._log_begin :].decode(errors="replace")

    def _progress(self) -> tuple[int, list[str]]:
        """Return the length of the log and the names in the folder of the checkpoints."""
        log, folder = self._run / "metrics.jsonl", self._run / "checkpoints"
        with contextlib.suppress(OSError):  # a name may vanish meanwhile
            return log.stat().st_size if log.exists() else 0, sorted(map(str, folder.rglob("*")))
        return self._seen

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        """Wait until a condition holds; return False if all workers have ended before."""
        end = time.monotonic() + LIMIT_SECONDS
        while self.is_running() and time.monotonic() < end:
            if condition():
                return True
            time.sleep(POLL_SECONDS)
        return False

    def wait_for_seconds(self, seconds: float) -> bool:
        """Wait for a time; return False if all workers have ended before."""
        end = time.monotonic() + seconds
        return self.wait_for(lambda: time.monotonic() >= end)

    def wait_for_progress(self) -> bool:
        """Wait until the log or the checkpoints change; return False if all workers have ended before."""
        changed = self.wait_for(lambda: self._progress() != self._seen)
        self._seen = self._progress()
        return changed

    def wait_for_moment(self, moment: str, rng: random.Random, start_seconds: float, training_seconds: float) -> bool:
        """Wait for a moment; return False if all workers have ended before.

        Args:
            moment: One of `MOMENTS`.
            rng: Random numbers for the time.
            start_seconds: Duration of the start of an undisturbed run.
            training_seconds: Duration of the rest of it.
        """
        if moment == "start":
            return self.wait_for_seconds(rng.uniform(0.03, 1) * start_seconds)
        if moment == "training":
            return self.wait_for_progress() and self.wait_for_seconds(rng.uniform(0, 0.5) * training_seconds)
        changes = rng.randint(1, 20)  # a save makes several
        return all(self.wait_for_progress() for _ in range(changes)) and self.wait_for_seconds(rng.uniform(0, 0.03))

    def disturb(self, fault: str, rng: random.Random) -> None:
        """Disturb all workers or, with several, one of them by one of the `FAULTS`."""
        targets = self.processes if rng.random() < 0.5 else [rng.choice(self.processes)]
        if len(self.processes) > 1 and fault != "SIGUSR1":
            # The others lose a worker, miss it at the start, or stop with it as if by SIGTERM.
            self.allowed |= {1, 2, 128 + signal.SIGTERM}
        if fault.startswith("full disk"):
            self.allowed |= {1, 2}
            self._limit_files(rng.choice(FULL_BYTES))
            self.wait_for_seconds(rng.uniform(0.3, 6))
            if fault == "full disk":
                self._limit_files(resource.RLIM_INFINITY)
        elif fault == "pause":
            self._send(targets, signal.SIGSTOP)
            time.sleep(rng.uniform(0.3, 2))
            self._send(targets, signal.SIGCONT)
        if "SIG" in fault:
            number = signal.Signals[fault.split()[-1]]
            self.allowed |= {-number, 128 + number}  # a signal before the program handles it ends the process
            self._send(targets, number)

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
        self.wait_for_seconds(seconds)
        ended = not self.is_running()
        self.kill()
        return [process.returncode for process in self.processes] if ended else None

    def kill(self) -> None:
        """End all workers."""
        for process in self.processes:
            process.kill()
            process.wait()
        self._copy.wait()


def cluster(workers: int) -> list[dict[str, str]]:
    """Return the environment variables of each worker, with free ports of this machine."""
    if workers == 1:
        return [{}]
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(workers)]
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in held]
    tasks = [{"type": "worker", "index": index} for index in range(workers)]
    return [{"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})} for task in tasks]
