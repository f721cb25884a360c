"""CPU cores and free memory of this process, within the limits of the machine, a container or a batch system."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator

import psutil

PROC = pathlib.Path("/proc")
CGROUP = pathlib.Path("/sys/fs/cgroup")
# Files of a control group: its limit, its use, and the entry of memory.stat for cached files, whose memory can be freed at once.
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
VERSION_2 = ("memory.max", "memory.current", "inactive_file")


def available_cores() -> int:
    """Return the number of CPU cores that this process may use: all of the machine, or fewer in a job of a batch system."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_bytes() -> int:
    """Return the bytes of memory that this process may still take."""
    return max(0, min([psutil.virtual_memory().available, *_free_in_groups()]))


def _free_in_groups() -> Iterator[int]:
    """Yield the free bytes of each control group of this process that has a limit; psutil does not know them."""
    try:
        lines = (PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = CGROUP / "memory" if controllers else CGROUP
        limit, used, cached = VERSION_1 if controllers else VERSION_2
        folder = root / group.strip("/")
        for each in (folder, *folder.parents):  # a container may hide some of them
            with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
                left = int((each / limit).read_text()) - int((each / used).read_text())
                stat = dict(line.split() for line in (each / "memory.stat").read_text().splitlines())
                yield left + int(stat.get(cached, 0))
