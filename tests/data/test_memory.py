"""Free memory on machines with and without control groups."""

import os

import pytest

from cyclegan.data import memory

GB = 10**9


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function that fakes a machine with 64 GB free, lines of /proc/self/cgroup and files of control groups."""
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "cgroup")

    def make(groups, **files):
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {64 * GB // 1024} kB\n")
        (tmp_path / "proc/self/cgroup").write_text(groups)
        for folder, texts in files.items():
            group = tmp_path / "cgroup" / folder.replace("__", "/")
            group.mkdir(parents=True, exist_ok=True)
            for name, text in texts.items():
                (group / name).write_text(f"{text}\n")

    return make


def unified(limit, used, inactive=0):
    stat = f"anon 5\ninactive_file {inactive}\nactive_file 7"
    return {"memory.max": limit, "memory.current": used, "memory.stat": stat}


def test_without_a_limit_all_available_memory_is_free(machine):
    machine("0::/user.slice\n", **{"user.slice": unified("max", 3 * GB)})
    assert memory.free_bytes() == pytest.approx(64 * GB, abs=1024)


def test_reclaimable_pages_of_files_are_free(machine):
    machine("0::/\n", **{".": unified(16 * GB, 15 * GB, 10 * GB)})  # just unpacked a dataset
    assert memory.free_bytes() == 11 * GB


def test_the_tightest_of_nested_limits_counts(machine):
    machine(
        "0::/slurm/job_7/step_0\n",
        slurm__job_7__step_0=unified("max", 1 * GB),
        slurm__job_7=unified(10 * GB, 4 * GB),
        slurm=unified(50 * GB, 4 * GB),
    )
    assert memory.free_bytes() == 6 * GB


def test_control_groups_of_version_1(machine):
    machine(
        "4:cpu,memory:/docker/abc\n3:cpuset:/\n",
        memory__docker__abc={
            "memory.limit_in_bytes": 8 * GB,
            "memory.usage_in_bytes": 3 * GB,
            "memory.stat": f"total_inactive_file {GB}",
        },
        memory={"memory.limit_in_bytes": 2**63 - 4096, "memory.usage_in_bytes": 9 * GB, "memory.stat": ""},
    )
    assert memory.free_bytes() == 6 * GB


def test_a_group_hidden_by_a_container_is_ignored(machine):
    machine("0::/../../outside\n4:memory:/elsewhere\n", **{".": unified(8 * GB, 3 * GB)})
    assert memory.free_bytes() == 5 * GB


def test_usage_above_the_limit_leaves_nothing(machine):
    machine("0::/\n", **{".": unified(GB, 2 * GB)})
    assert memory.free_bytes() == 0


def test_without_proc_all_memory_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "PROC", tmp_path / "no such folder")
    assert memory.free_bytes() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_this_machine_has_free_memory():
    assert 0 < memory.free_bytes() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
