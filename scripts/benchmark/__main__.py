"""Time training on synthetic images, or count its kernels: `python scripts/benchmark --help`, docs/performance.md.

All rows of a table are built first and then timed in turns, call by call, so that other load on the machine slows all
of them. Therefore compare only rows of one table.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from cyclegan import terminal  # noqa: E402
from cyclegan.errors import UserError  # noqa: E402

PARTS = ("steps", "data", "scaling", "census")
PERCENT = ("spread", "data_wait")
HIDDEN = ("seconds", "filters", "residual_blocks", "runs")  # columns of the file that a table does not show


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="scripts/benchmark", description="Time training on synthetic images.")
    parts = parser.add_argument_group("parts, each of which prints a table; --steps if none is given")
    parts.add_argument("--steps", action="store_true", help="training steps, in all combinations of the flags below")
    parts.add_argument("--data", action="store_true", help="the input pipeline alone, and steps that it feeds")
    parts.add_argument("--scaling", action="store_true", help="the same global batch on several numbers of devices")
    parts.add_argument("--census", action="store_true", help="kernels of a step on one GPU, counted without a GPU")
    values = parser.add_argument_group("what is timed: one value or several")
    values.add_argument("--size", type=int, nargs="+", default=[128], help="sides of the images (default: 128)")
    values.add_argument("--batch", type=int, nargs="+", help="global batches in pairs (default: 1; --scaling: 6)")
    text = "auto is the choice of train.py here (default: auto and float32; --census: bfloat16)"
    values.add_argument("--precision", nargs="+", choices=("auto", "float32", "bfloat16", "float16"), help=text)
    values.add_argument("--xla", nargs="+", choices=("off", "on"), default=["off"], help="default: off")
    values.add_argument("--replicas", type=int, nargs="+", help="devices (default: 1; --scaling: 1 2 3)")
    values.add_argument("--steps_per_call", type=int, nargs="+", default=[1], help="times stay per step (default: 1)")
    values.add_argument("--objective", nargs="+", default=["cyclegan"], help="hdce is cut with --nce hdce")
    values.add_argument("--variant", nargs="+", choices=("keras", "paper"), default=["keras"], help="default: keras")
    group = parser.add_argument_group("how")
    group.add_argument("--filters", type=int, default=64, help="default: 64")
    group.add_argument("--residual_blocks", type=int, help="default: 9, and 6 below 256 pixels")
    group.add_argument("--antialias", action="store_true", help="networks that blur, see train.py")
    group.add_argument("--runs", type=int, default=5, help="timed calls of each row (default: 5)")
    group.add_argument("--warmup", type=int, default=1, help="untimed calls before them (default: 1)")
    group.add_argument("--deterministic", action="store_true", help="only operations that give the same bits each time")
    group.add_argument("--no_plain", action="store_true", help="leave the plain form out")
    group.add_argument("--json", type=pathlib.Path, help="also write the rows and the machine to this file")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Time the parts that the command line names; return the content of the file of --json."""
    options = parse(argv)
    asked = [part for part in PARTS if getattr(options, part)] or ["steps"]
    replicas = options.replicas or ([1, 2, 3] if "scaling" in asked else [1])
    if wrong := [f"{b} on {r}" for b in options.batch or [6] for r in replicas if b % r]:
        raise UserError(f"--batch and --replicas: {wrong[0]}; expected a multiple of the replicas")
    with terminal.start():
        import tensorflow as tf

        from cyclegan.distribution import hardware
        from cyclegan.distribution.strategy import make_strategy
        from scripts.benchmark import census, steps
    tf.get_logger().setLevel("ERROR")  # TensorFlow mistakes the many functions for one that is traced again and again
    make_strategy(max(replicas))
    if options.deterministic:
        hardware.set_arithmetic(tf32=True, deterministic=True)
        tf.random.set_seed(0)  # without it, TensorFlow refuses the random weights of the plain form
    functions = (steps.measure_steps, steps.measure_data, steps.measure_scaling, census.measure_census)
    measure = dict(zip(PARTS, functions))
    content: dict[str, Any] = {"command": shlex.join(["python", "scripts/benchmark", *(argv or sys.argv[1:])])}
    content["machine"] = describe_machine()
    for part in asked:
        for rows in measure[part](options):
            content[part] = rows
            if options.json:
                options.json.write_text(json.dumps(content, indent=2) + "\n")
        print(f"\n{format_table(rows)}", flush=True)
    if all("error" in row for part in asked for row in content[part]):
        raise SystemExit("scripts/benchmark: nothing could be timed, see the errors in the table")
    return content


def describe_machine() -> dict[str, Any]:
    """Return facts about the machine and the software that measurements depend on."""
    import tensorflow as tf

    file = pathlib.Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return {
        "commit": git.stdout.strip() or "unknown",
        "cpu": next(models, "unknown"),
        "cores": os.cpu_count(),
        "gpus": [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")],
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
    }


def format_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as a Markdown table."""
    columns = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in HIDDEN]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_format_cell(name, row.get(name)) for name in columns) + " |" for row in rows]
    return "\n".join(lines)


def _format_cell(column: str, value: Any) -> str:
    if not isinstance(value, float):
        return "" if value is None else str(value).replace("|", "/")
    if column in PERCENT:
        return f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


if __name__ == "__main__":
    sys.exit(terminal.run(main, "stopped; the file of --json has the turns until then"))
