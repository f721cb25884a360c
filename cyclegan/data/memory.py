"""Free memory within the limits of the machine, a container or a batch system; without Linux, all memory of the machine."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

PROC = pathlib.Path("/proc")
CGROUP = pathlib.Path("/sys/fs/cgroup")


class GroupFiles(NamedTuple):
    """Names of the files of a control group.

    Attributes:
        limit: File of the limit.
        usage: File of the memory in use.
        reclaimable: Entry of memory.stat for cached files that were not read lately; the system can free their memory at once.
    """

    limit: str
    usage: str
    reclaimable: str


VERSION_1 = GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
VERSION_2 = GroupFiles("memory.max", "memory.current", "inactive_file")


def free_bytes() -> int:
    """Return the bytes of memory that this process may still take; all memory of the machine if that is unknown."""
    try:
        lines = (PROC / "meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    left = [_free_in_group(folder, files) for root, group, files in _groups() for folder in _with_parents(root, group)]
    return max(0, min([available, *(value for value in left if value is not None)]))


def _groups() -> Iterator[tuple[pathlib.Path, str, GroupFiles]]:
    """Yield (folder of all groups, path of the group of this process, names of its files) for both versions of cgroups."""
    try:
        lines = (PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            yield CGROUP, group, VERSION_2
        elif "memory" in controllers.split(","):
            yield CGROUP / "memory", group, VERSION_1


def _with_parents(root: pathlib.Path, group: str) -> list[pathlib.Path]:
    """Return the folders of a group and of its parent groups, which have limits, too; a container may hide some of them."""
    folder = root / group.strip("/")
    return [folder, *(parent for parent in folder.parents if parent == root or root in parent.parents)]


def _free_in_group(folder: pathlib.Path, files: GroupFiles) -> int | None:
    """Return the bytes that a group may still take; `None` if it has no limit."""
    try:
        left = int((folder / files.limit).read_text()) - int((folder / files.usage).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return left + int(stat.get(files.reclaimable, 0))
    except (OSError, ValueError):  # no such file, or "max"
        return None
