"""Table of all forms of the step on a GPU, the most important ones first, within a time budget.

Each group of rows is timed by a process of its own: settings that TensorFlow reads once differ between groups, and a group that
runs out of memory or time costs no other group.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from cyclegan.benchmarking.turns import Keep, Row, with_bar
from cyclegan.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parents[2]  # has the package
SHARE = 0.35  # of the budget that one group may use, because XLA may compile for minutes
BASE = ("--steps", "--size", "256", "--runs", "20", "--warmup", "3")
BFLOAT16 = ("--precision", "bfloat16")
FLOAT32 = ("--precision", "float32")


class Group(NamedTuple):
    """Rows that one process times in turns.

    Attributes:
        name: Name in the table.
        flags: Flags of `benchmark.py` after `BASE`.
        environment: Environment variables.
    """

    name: str
    flags: Sequence[str]
    environment: dict[str, str] = {}


GROUPS = (  # the most important ones first
    Group("default and plain", BFLOAT16),
    Group("batch 4", (*BFLOAT16, "--batch", "4")),
    Group("XLA", (*BFLOAT16, "--xla", "off", "on")),
    Group("float32 with TF32", FLOAT32),
    Group("float32 without TF32", FLOAT32, {"NVIDIA_TF32_OVERRIDE": "0"}),
    Group("levers", (*BFLOAT16, "--no_plain", "--without", "norm", "both", "adam")),
    Group("deterministic", (*BFLOAT16, "--deterministic")),
    Group(
        "persistent batch normalization",
        ("--precision", "bfloat16", "float16"),
        {"TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT": "1"},
    ),
    Group("512 px", (*BFLOAT16, "--size", "512")),
    Group("128 px", (*BFLOAT16, "--size", "128")),
    Group("float16", ("--precision", "bfloat16", "float16")),
    Group("XLA, batch 4", (*BFLOAT16, "--no_plain", "--batch", "4", "--xla", "off", "on")),
    Group("512 px, batch 4", (*BFLOAT16, "--size", "512", "--batch", "4")),
    Group("128 px, batch 4", (*BFLOAT16, "--size", "128", "--batch", "4")),
    Group("10 steps per call", (*BFLOAT16, "--no_plain", "--steps_per_call", "1", "10")),
)


def count_gpus() -> int:
    """Return the number of GPUs.

    Raises:
        UserError: There is none.
    """
    if gpus := tf.config.list_physical_devices("GPU"):
        return len(gpus)
    raise UserError("--gpu_day: TensorFlow sees no GPU: run it on a machine with one, or count without one (--census)")


def groups_for(gpus: int) -> list[Group]:
    """Return the groups of a machine: `GROUPS` and, if there are several GPUs, the same global batch on one and on all."""
    several = (*BFLOAT16, "--no_plain", "--batch", str(gpus), "--replicas", "1", str(gpus))
    return [*GROUPS[:3], *([Group("all GPUs", several)] if gpus > 1 else []), *GROUPS[3:]]


def measure_gpu_day(budget: float, keep: Keep, groups: Sequence[Group]) -> list[Row]:
    """Return the rows of all groups; a group that did not fit in the budget has one row with an "error".

    Args:
        budget: Seconds for all groups together.
        keep: Function that is called with the rows after each group.
        groups: Groups in the order of their importance.
    """
    rows: list[Row] = []
    end = time.monotonic() + budget
    for group in with_bar(groups, "Groups"):
        limit = min(end - time.monotonic(), SHARE * budget)
        measured = time_group(group, limit) if limit > 0 else [{"error": "not started within the budget"}]
        rows += [{"group": group.name, "environment": group.environment, **row} for row in measured]
        keep(rows)
    return rows


def time_group(group: Group, limit: float) -> list[Row]:
    """Return the rows of a group, from a process that may take `limit` seconds."""
    with tempfile.TemporaryDirectory(prefix="cyclegan-") as folder:
        path = pathlib.Path(folder, "rows.json")
        command = [sys.executable, "-m", "cyclegan.cli.benchmark", *BASE, *group.flags, "--json", str(path)]
        try:
            search = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
            environment = {**os.environ, "PYTHONPATH": search, **group.environment}
            result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
            lines = result.stderr.strip().splitlines()
            failure = f"exit code {result.returncode}: {lines[-1] if lines else ''}"[:200] if result.returncode else ""
        except subprocess.TimeoutExpired:
            failure = f"stopped after {limit:.0f} s"
        rows: list[dict[str, Any]] = json.loads(path.read_text())["steps"] if path.exists() else []
    if failure and not any("error" in row for row in rows):
        rows.append({"error": failure})
    return rows
