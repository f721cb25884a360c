"""Requests of the user by signals: to stop, or to save a checkpoint."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from types import TracebackType
from typing import Any

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A second Ctrl-C within this time may be the first one again, as when `kill` and `supervisor` both send it.
REPEATED_SECONDS = 0.3


def ignore_save_signal() -> None:
    """Ignore SIGUSR1, which would end the program, until `Signals` handles it."""
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, lambda *_: None)


class Signals:
    """Context manager that turns signals into requests, which training checks after each call.

    SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal) ask to stop, SIGUSR1 asks to save a checkpoint and continue. A second
    Ctrl-C, `REPEATED_SECONDS` later, ends the process at once, even in the middle of a step: a thread reads the signals, because
    Python's own handlers run only between two calls of TensorFlow. A signal that was ignored when the program started stays
    ignored, as under `nohup` or in the background of a shell.

    Attributes:
        stop_signal: Number of the signal that asked to stop; 0 if none did.
        save_requested: Whether a checkpoint was asked for. The policy that saves it resets this.
    """

    def __init__(self) -> None:
        self.stop_signal = 0
        self.save_requested = False
        self._ctrl_c = float("-inf")  # time of the first
        self._handlers: dict[signal.Signals, Any] = {}
        self._thread: threading.Thread | None = None
        self._write_end = self._previous_wakeup = -1

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread may handle signals
        read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._previous_wakeup = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for signum in (*STOP_SIGNALS, signal.SIGUSR1):
            if signal.getsignal(signum) != signal.SIG_IGN:
                self._handlers[signum] = signal.signal(signum, lambda *_: None)
        self._thread = threading.Thread(target=self._listen, args=(read_end,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._thread is None:
            return
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._previous_wakeup)
        os.close(self._write_end)  # ends the thread
        self._thread.join()

    def _listen(self, read_end: int) -> None:
        with open(read_end, "rb", buffering=0) as pipe:
            while received := pipe.read(1):
                self._receive(received[0])

    def _receive(self, signum: int) -> None:
        if signum == signal.SIGUSR1:
            self.save_requested = True
        elif signum in STOP_SIGNALS:
            if self.stop_signal and signum == signal.SIGINT and time.monotonic() > self._ctrl_c + REPEATED_SECONDS:
                os._exit(128 + signum)
            if not self.stop_signal:
                if signum == signal.SIGINT:
                    self._ctrl_c = time.monotonic()
                self.stop_signal = signum
                with contextlib.suppress(Exception):  # the thread must keep listening
                    logger.warning(
                        "Stopping after this step, with a checkpoint; Ctrl-C again leaves at once, without one"
                    )
