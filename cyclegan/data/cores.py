"""CPU cores of this process."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Return the number of CPU cores that this process may use: all of the machine, or fewer in a job of a batch system."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
