"""Check the plan of the day on a GPU, and time it on the CPU with tiny settings."""

import json
import subprocess
import time

import pytest

from cyclegan.benchmarking import command_line, gpu_day
from cyclegan.benchmarking.gpu_day import GROUPS, Group, measure_gpu_day
from cyclegan.cli import benchmark
from cyclegan.errors import UserError

TINY = (
    "--steps",
    "--size",
    "16",
    "--batch",
    "2",
    "--filters",
    "2",
    "--residual_blocks",
    "0",
    "--runs",
    "2",
    "--warmup",
    "0",
)


def settings(group):
    (plan,) = command_line.plan_parts(command_line.parse([*gpu_day.BASE, *group.flags]))
    return list(plan.settings(form=plan.forms))


def test_plan_covers_all_forms():
    rows = [(group, setting) for group in GROUPS for setting in settings(group)]
    assert {(each.size, each.batch) for _, each in rows} == {
        (size, batch) for size in (128, 256, 512) for batch in (1, 4)
    }
    assert {each.precision for _, each in rows} == {"float32", "bfloat16", "float16"}
    assert {each.lever for _, each in rows} == {"", "norm", "both", "adam"} and {each.xla for _, each in rows} == {
        "off",
        "on",
    }
    names = {name for group in GROUPS for name in group.environment}
    assert names == {"NVIDIA_TF32_OVERRIDE", "TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT"}
    assert all(each.filters == 64 for _, each in rows) and len({group.name for group in GROUPS}) == len(GROUPS)
    (first,) = settings(GROUPS[0])
    assert (first.form, first.size, first.batch, first.precision, first.residual_blocks) == (
        "default",
        256,
        1,
        "bfloat16",
        9,
    )


def test_several_gpus_share_a_batch():
    assert gpu_day.groups_for(1) == list(GROUPS)
    (added,) = [group for group in gpu_day.groups_for(4) if group not in GROUPS]
    assert [(each.replicas, each.batch, each.form) for each in settings(added)] == [
        (1, 4, "default"),
        (4, 4, "default"),
    ]


def test_groups_stop_with_the_budget(monkeypatch):
    clock, limits = [1000.0], []

    def time_group(group, limit):
        limits.append(limit)
        clock[0] += 30
        return [{"form": "default"}]

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(gpu_day, "time_group", time_group)
    kept = []
    rows = measure_gpu_day(100, lambda rows: kept.append(len(rows)), GROUPS)
    assert limits == [35, 35, 35, 10] and kept == list(range(1, len(GROUPS) + 1))
    assert [row["group"] for row in rows] == [group.name for group in GROUPS]
    assert [row.get("error") for row in rows] == [None] * 4 + ["not started within the budget"] * (len(GROUPS) - 4)


def test_the_start_of_tensorflow_uses_the_budget(tmp_path, monkeypatch):
    clock, budgets = [1000.0], []

    def count_gpus():
        clock[0] += 30
        return 1

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(gpu_day, "count_gpus", count_gpus)
    monkeypatch.setattr(gpu_day, "measure_gpu_day", lambda budget, *_: budgets.append(budget) or [])
    benchmark.main(["--gpu-day", "--json", str(tmp_path / "day.json")])
    assert budgets == [480 - 30]


def test_failures_of_a_process_are_rows(monkeypatch):
    def run(command, env, **options):
        assert env["A"] == "1"
        if error:
            raise error
        return subprocess.CompletedProcess(command, 139, "", "first\nSegmentation fault\n")

    monkeypatch.setattr(subprocess, "run", run)
    error = subprocess.TimeoutExpired("python", 9)
    assert gpu_day.time_group(Group("a", (), {"A": "1"}), 9.4) == [{"error": "stopped after 9 s"}]
    error = None
    assert gpu_day.time_group(Group("a", (), {"A": "1"}), 9) == [{"error": "exit code 139: Segmentation fault"}]


@pytest.mark.slow
def test_tiny_day_on_a_cpu(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_day, "count_gpus", lambda: 2)
    groups = (
        Group("both", ("--precision", "float32", "--deterministic"), {"TF_ENABLE_ONEDNN_OPTS": "0"}),
        Group("impossible", ("--size", "30")),
    )
    monkeypatch.setattr(gpu_day, "GROUPS", groups)
    monkeypatch.setattr(gpu_day, "BASE", TINY)
    path = tmp_path / "day.json"
    result = benchmark.main(["--gpu-day", "--budget", "500", "--json", str(path)])
    plain, default, impossible, one, two = result["gpu_day"]
    assert (plain["form"], default["form"]) == ("plain", "default") and default["ratio"] > 0
    assert default["environment"] == {"TF_ENABLE_ONEDNN_OPTS": "0"} and default["runs"] == 2
    assert impossible["error"].startswith("exit code 2: ") and "--size: 30" in impossible["error"]
    assert [(row["group"], row["replicas"], row["runs"]) for row in (one, two)] == [("all GPUs", n, 2) for n in (1, 2)]
    assert json.loads(path.read_text()) == result
    lines = path.with_suffix(".md").read_text().splitlines()
    assert lines[3].startswith("| both | TF_ENABLE_ONEDNN_OPTS=0 | default | 16 | 2 | float32 | off | 1 | 1 |")
    assert len(lines) == 7 and lines[4].startswith("| impossible |  |  |") and "--size: 30" in lines[4]
    assert capsys.readouterr().out.strip().splitlines() == lines


@pytest.mark.parametrize(
    "flags, text",
    [
        ([], "--gpu_day: TensorFlow sees no GPU: run it on a machine with one, or count without one"),
        (["--size", "64"], "--size has no effect with --gpu_day, which sets it; drop one of the two"),
        (["--steps"], "--steps has no effect with --gpu_day, which sets it; drop one of the two"),
    ],
)
def test_refusals(flags, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=text):
        benchmark.main(["--gpu-day", *flags])
    assert list(tmp_path.iterdir()) == []


def test_budget_needs_the_day():
    with pytest.raises(UserError, match="--budget has no effect with --steps; add --gpu_day, or drop the flag"):
        benchmark.main(["--budget", "10"])
