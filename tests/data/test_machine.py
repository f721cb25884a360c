"""Cores and free memory of this process."""

import os

import psutil
import pytest

from cyclegan.data import loading

GB = 10**9


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Return a function that fakes a machine with 64 GB free, /proc/self/cgroup and files of control groups."""
    monkeypatch.setattr(loading, "PROC", tmp_path / "proc")
    monkeypatch.setattr(loading, "CGROUP", tmp_path / "cgroup")
    memory = psutil.virtual_memory()._replace(available=64 * GB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)

    def make_groups(groups, **files):
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
        for folder, texts in files.items():
            group = tmp_path / "cgroup" / folder.replace("__", "/")
            group.mkdir(parents=True, exist_ok=True)
            for name, text in texts.items():
                (group / name).write_text(f"{text}\n")

    return make_groups


def unified(limit, used, inactive=0):
    stat = f"anon 5\ninactive_file {inactive}\nactive_file 7"
    return {"memory.max": limit, "memory.current": used, "memory.stat": stat}


@pytest.mark.parametrize(
    "groups, files, free",
    [
        ("0::/user.slice\n", {"user.slice": unified("max", 3 * GB)}, 64 * GB),  # no limit
        ("0::/\n", {".": unified(16 * GB, 15 * GB, 10 * GB)}, 11 * GB),  # just unpacked a dataset
        (
            "0::/slurm/job_7/step_0\n",
            {
                "slurm__job_7__step_0": unified("max", 1 * GB),
                "slurm__job_7": unified(10 * GB, 4 * GB),
                "slurm": unified(50 * GB, 4 * GB),
            },
            6 * GB,
        ),
        ("0::/../../outside\n4:memory:/elsewhere\n", {".": unified(8 * GB, 3 * GB)}, 5 * GB),  # hidden by a container
        (
            "4:cpu,memory:/docker/abc\n3:cpuset:/\n",  # version 1
            {
                "memory__docker__abc": {
                    "memory.limit_in_bytes": 8 * GB,
                    "memory.usage_in_bytes": 3 * GB,
                    "memory.stat": f"total_inactive_file {GB}",
                }
            },
            6 * GB,
        ),
    ],
)
def test_the_tightest_limit_counts(make, groups, files, free):
    make(groups, **files)
    assert loading.free_bytes() == free


def test_only_cores_of_this_process_count(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 60}, raising=False)
    assert loading.available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert loading.available_cores() == 64
