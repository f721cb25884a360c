#!/usr/bin/env python
"""Time training on synthetic images, or count its kernels: `scripts/benchmark.py --help`; docs/performance.md explains the tables.

All rows of a table are built first and then timed in turns, call by call, so that other load on the machine slows all of them.
Therefore compare only rows of one table.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from cyclegan import interrupt  # noqa: F401  first: Ctrl-C during the other imports is one line

# isort: split
import argparse
import functools
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any, Optional

from cyclegan import console
from cyclegan.errors import UserError
from scripts.benchmarking import command_line
from scripts.benchmarking.settings import Plan


def start_tensorflow(options: argparse.Namespace, plans: Sequence[Plan]) -> list[Plan]:
    """Start TensorFlow with as many devices as the plans need; return the plans with the best precision of these devices."""
    import tensorflow as tf

    from cyclegan.distribution import hardware
    from cyclegan.distribution.strategy import make_strategy

    tf.get_logger().setLevel("ERROR")  # TensorFlow mistakes the many functions for one that is traced again and again
    try:
        make_strategy(max(max(plan.values["replicas"]) for plan in plans))
    except UserError as error:
        raise UserError(str(error).replace("--devices", "--replicas")) from None
    if "few" in options.without and hardware.has_accelerator():
        raise UserError("--without few has no effect on a GPU: drop the flag, or hide the GPUs")
    if options.deterministic:
        hardware.set_arithmetic(tf32=True, deterministic=True)
        tf.random.set_seed(0)  # without it, TensorFlow refuses the random weights of the plain form
    best = hardware.best_precision()
    return [plan.resolve_precision("bfloat16" if plan.part == "census" else best) for plan in plans]


def spend_gpu_day(options: argparse.Namespace, command: str) -> dict[str, Any]:
    """Time all forms on a GPU; print and write the table and the JSON file; return the content of the file."""
    with console.start():
        from scripts.benchmarking.gpu_day import count_gpus, groups_for, measure_gpu_day
        from scripts.benchmarking.report import Report, format_table
    groups = groups_for(count_gpus())
    path = options.json or pathlib.Path("gpu_day.json")
    report = Report(command, path)

    def keep(rows: list[dict[str, Any]]) -> None:
        report.keep("gpu_day", rows)
        path.with_suffix(".md").write_text(format_table("gpu_day", rows) + "\n")

    keep([])  # fails now, rather than after the first group, if the files cannot be written
    print(f"\n{format_table('gpu_day', measure_gpu_day(options.budget, keep, groups))}", flush=True)
    return report.content


def main(argv: Optional[Sequence[str]] = None) -> dict[str, Any]:
    """Time the parts that the command line names; return the content of the file of `--json`.

    Raises:
        UserError: Some settings are impossible.
        SystemExit: No row could be timed, or a step was traced more than once.
    """
    options = command_line.parse(argv)
    plans = command_line.plan_parts(options)
    command = shlex.join(["scripts/benchmark.py", *(sys.argv[1:] if argv is None else argv)])
    if options.gpu_day:
        return spend_gpu_day(options, command)
    with console.start():
        plans = start_tensorflow(options, plans)
        from scripts.benchmarking.census import measure_census
        from scripts.benchmarking.feeding import measure_data
        from scripts.benchmarking.report import Report, format_table
        from scripts.benchmarking.turns import measure_scaling, measure_steps

    measure = {"steps": measure_steps, "data": measure_data, "scaling": measure_scaling, "census": measure_census}
    report, rows = Report(command, options.json), []
    for plan in plans:
        keep = functools.partial(report.keep, plan.part)
        rows_of_part = measure[plan.part](plan, keep)
        keep(rows_of_part)
        print(f"\n{format_table(plan.part, rows_of_part)}", flush=True)
        rows += rows_of_part
    if all("error" in row for row in rows):
        raise SystemExit("benchmark.py: nothing could be timed, see the errors in the table")
    if any(row.get("traces", 1) != 1 for row in rows):
        raise SystemExit("benchmark.py: a step was traced more than once, see the column traces")
    return report.content


if __name__ == "__main__":
    sys.exit(console.run(main, "stopped; the file of --json has the turns until then"))
