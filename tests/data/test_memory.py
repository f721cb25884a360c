import os

import pytest

from cyclegan.data import memory

GB = 10**9


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function that makes a machine of 64 GB free, with the lines of /proc/self/cgroup and files of control groups."""
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "cgroup")

    def make(groups, **files):
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {64 * GB // 1024} kB\n")
        (tmp_path / "proc/self/cgroup").write_text(groups)
        for folder, texts in files.items():
            place = tmp_path / "cgroup" / folder.replace("__", "/")
            place.mkdir(parents=True, exist_ok=True)
            for name, text in texts.items():
                (place / name).write_text(f"{text}\n")

    return make


def unified(limit, used, inactive=0):
    stat = f"anon 5\ninactive_file {inactive}\nactive_file 7"
    return {"memory.max": limit, "memory.current": used, "memory.stat": stat}


def test_without_a_limit_it_is_what_the_system_says(machine):
    machine("0::/user.slice\n", **{"user.slice": unified("max", 3 * GB)})
    assert memory.free() == pytest.approx(64 * GB, abs=1024)


def test_pages_of_files_that_can_be_had_back_count_as_free(machine):
    machine("0::/\n", **{".": unified(16 * GB, 15 * GB, 10 * GB)})  # just unpacked a data set
    assert memory.free() == 11 * GB


def test_the_closest_of_all_limits_around_the_process_holds(machine):
    machine(
        "0::/slurm/job_7/step_0\n",
        slurm__job_7__step_0=unified("max", 1 * GB),
        slurm__job_7=unified(10 * GB, 4 * GB),
        slurm=unified(50 * GB, 4 * GB),
    )
    assert memory.free() == 6 * GB


def test_version_1_of_control_groups(machine):
    machine(
        "4:cpu,memory:/docker/abc\n3:cpuset:/\n",
        memory__docker__abc={
            "memory.limit_in_bytes": 8 * GB,
            "memory.usage_in_bytes": 3 * GB,
            "memory.stat": f"total_inactive_file {GB}",
        },
        memory={"memory.limit_in_bytes": 2**63 - 4096, "memory.usage_in_bytes": 9 * GB, "memory.stat": ""},
    )
    assert memory.free() == 6 * GB


def test_a_group_that_is_not_seen_from_inside_a_container_is_passed_over(machine):
    machine("0::/../../outside\n4:memory:/elsewhere\n", **{".": unified(8 * GB, 3 * GB)})
    assert memory.free() == 5 * GB


def test_more_used_than_allowed_leaves_nothing(machine):
    machine("0::/\n", **{".": unified(GB, 2 * GB)})
    assert memory.free() == 0


def test_where_nothing_is_known_it_is_all_that_there_is(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "PROC", tmp_path / "no such folder")
    assert memory.free() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_of_this_machine():
    assert 0 < memory.free() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
