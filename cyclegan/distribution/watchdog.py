"""The watchdog, which ends the process if training is stuck."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from cyclegan import terminal

INTERVAL = 0.5  # seconds between two looks


class Watchdog:
    """Context manager that ends the process with exit code 1 if training makes no progress for too long.

    A step waits without end for a worker that is alive but stuck, or for storage that hangs. So a thread ends the process. It
    counts only time in which this process runs: nothing happens after the process was stopped and continued, as by Ctrl-Z and
    `fg`.

    Args:
        seconds: Seconds without a `beat` after which the process ends; `None` for no limit.
        newest_checkpoint: Function that returns the folder of the newest checkpoint, or `None`, for the message; it must not
            wait for storage.
        prefix: Beginning of the message.
    """

    def __init__(self, seconds: int | None, newest_checkpoint: Callable[[], object], prefix: str = "") -> None:
        self._seconds = seconds
        self._newest_checkpoint = newest_checkpoint
        self._prefix = prefix
        self._still = 0.0  # seconds since the last beat
        self._done = threading.Event()

    def beat(self) -> None:
        """Note that training makes progress."""
        self._still = 0.0

    def __enter__(self) -> Watchdog:
        self.beat()
        if self._seconds is not None:
            threading.Thread(target=self._watch, args=(self._seconds,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()

    def _watch(self, seconds: int) -> None:
        while not self._done.wait(INTERVAL):
            self._still += INTERVAL
            if self._still >= seconds:
                newest = self._newest_checkpoint()
                hint = (
                    f"The last checkpoint is {newest}, and the same command resumes"
                    if newest
                    else "There is no checkpoint yet"
                )
                terminal.end(
                    f"{self._prefix}no step, evaluation or checkpoint has ended for {seconds} s (--step_timeout), so training"
                    f" stops: a worker or its storage is stuck. {hint}",
                    1,
                )
