"""Clock of the calls of a pass."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class CallClock:
    """Measure how long calls take, and how much of that is spent waiting for images.

    Attributes:
        waited: Seconds spent waiting for the images of the present call.
    """

    def __init__(self) -> None:
        self.waited = 0.0
        self.restart()

    def restart(self) -> None:
        """Start the next call now; no call includes the time since the last one."""
        self._start = time.perf_counter()

    def lap(self) -> float:
        """End a call and start the next one; return the seconds that the call took."""
        now = time.perf_counter()
        seconds, self._start = now - self._start, now
        return seconds

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time inside the context."""
        began = time.perf_counter()
        yield
        self._start += time.perf_counter() - began

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside the context as waiting for images."""
        began = time.perf_counter()
        yield
        self.waited = time.perf_counter() - began
