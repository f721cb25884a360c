"""Time training on synthetic images, or count its kernels: `cyclegan-benchmark --help`; docs/performance.md explains the tables.

All rows of a table are built first and then timed in turns, call by call, so that other load on the machine slows all of them.
Therefore compare only rows of one table.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import shlex
import sys
import time
from collections.abc import Sequence
from typing import Any

from cyclegan import terminal
from cyclegan.benchmarking import command_line
from cyclegan.benchmarking.settings import Plan
from cyclegan.errors import UserError


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
    began = time.monotonic()
    with terminal.start():
        from cyclegan.benchmarking.gpu_day import count_gpus, groups_for, measure_gpu_day
        from cyclegan.benchmarking.report import Report, format_table
    groups = groups_for(count_gpus())
    path = options.json or pathlib.Path("gpu_day.json")
    report = Report(command, path)

    def keep(rows: list[dict[str, Any]]) -> None:
        report.keep("gpu_day", rows)
        path.with_suffix(".md").write_text(format_table("gpu_day", rows) + "\n")

    keep([])  # fails now, rather than after the first group, if the files cannot be written
    budget = options.budget - (time.monotonic() - began)  # TensorFlow's start counts, too
    print(f"\n{format_table('gpu_day', measure_gpu_day(budget, keep, groups))}", flush=True)
    return report.content


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Time the parts that the command line names; return the content of the file of `--json`.

    Raises:
        UserError: Some settings are impossible.
        SystemExit: No row could be timed, or a step was traced more than once.
    """
    options = command_line.parse(argv)
    plans = command_line.plan_parts(options)
    command = shlex.join([terminal.command("benchmark"), *(sys.argv[1:] if argv is None else argv)])
    if options.gpu_day:
        return spend_gpu_day(options, command)
    with terminal.start():
        plans = start_tensorflow(options, plans)
        from cyclegan.benchmarking.census import measure_census
        from cyclegan.benchmarking.feeding import measure_data
        from cyclegan.benchmarking.report import Report, format_table
        from cyclegan.benchmarking.turns import measure_scaling, measure_steps

    measure = {"steps": measure_steps, "data": measure_data, "scaling": measure_scaling, "census": measure_census}
    report, rows = Report(command, options.json), []
    for plan in plans:
        keep = functools.partial(report.keep, plan.part)
        rows_of_part = measure[plan.part](plan, keep)
        keep(rows_of_part)
        print(f"\n{format_table(plan.part, rows_of_part)}", flush=True)
        rows += rows_of_part
    if all("error" in row for row in rows):
        raise SystemExit(f"{terminal.program()}: nothing could be timed, see the errors in the table")
    if any(row.get("traces", 1) != 1 for row in rows):
        raise SystemExit(f"{terminal.program()}: a step was traced more than once, see the column traces")
    return report.content


def program() -> int:
    """Run the command in a terminal; return the exit code."""
    return terminal.run(main, "stopped; the file of --json has the turns until then")


if __name__ == "__main__":  # a process of --gpu_day
    sys.exit(program())
