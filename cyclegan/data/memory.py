"""How much memory is free, also within the limits of a container or a batch system. Linux; elsewhere, all that there is."""

import os
import pathlib

PROC = pathlib.Path("/proc")
CGROUP = pathlib.Path("/sys/fs/cgroup")
# The limit, what is used, and the name of what of that can be had back at once: pages of files that nobody has read lately.
UNIFIED = ("memory.max", "memory.current", "inactive_file")  # version 2 of Linux's control groups
LEGACY = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")  # version 1


def free():
    """Bytes of memory that this process may still take; all that there is, where that is not known."""
    try:
        lines = (PROC / "meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    left = [_left(folder, names) for root, group, names in _groups() for folder in _upwards(root, group)]
    return max(0, min([available, *(value for value in left if value is not None)]))


def _groups():
    """(folder of all groups, path of the process's group in it, names of its files) for each version of control groups."""
    try:
        lines = (PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, group = line.split(":", 2)
        if not kinds:
            yield CGROUP, group, UNIFIED
        elif "memory" in kinds.split(","):
            yield CGROUP / "memory", group, LEGACY


def _upwards(root, group):
    """The folder of a group and those around it: each has a limit of its own. In a container some may not be seen."""
    folder = root / group.strip("/")
    return [folder, *(parent for parent in folder.parents if parent == root or root in parent.parents)]


def _left(folder, names):
    """Bytes that a group may still take; `None` where it has no limit."""
    limit, used, reclaimable = names
    try:
        left = int((folder / limit).read_text()) - int((folder / used).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return left + int(stat.get(reclaimable, 0))
    except (OSError, ValueError):  # not there, or "max"
        return None
