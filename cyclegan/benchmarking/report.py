"""Tables and the JSON file of the benchmark."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import subprocess
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import cyclegan
from cyclegan import whole_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
CPU_INFO = pathlib.Path("/proc/cpuinfo")
COLUMNS = {
    "steps": (
        *("form", "size", "batch", "precision", "xla", "replicas", "identity", "steps_per_call"),
        *("ms", "best_ms", "spread", "images_per_second", "TFLOP_per_second", "share_of_peak", "ratio"),
        *("objective", "of_cyclegan", "traces", "memory_GB", "first_seconds"),
    ),
    "data": (
        *("form", "cache", "elsewhere", "size", "batch", "precision", "xla", "replicas", "identity", "steps_per_call"),
        *("pipeline_images_per_second", "step_images_per_second", "data_wait"),
        *("ms", "best_ms", "spread", "relative", "traces"),
    ),
    "scaling": (
        *("size", "batch", "precision", "xla", "identity", "steps_per_call", "replicas"),
        *("ms", "best_ms", "spread", "relative", "traces", "first_seconds"),
    ),
    "census": (
        *("size", "batch", "precision", "variant", "identity", "architecture", "kernels", "GB"),
        *("kernels_without_views", "GB_without_views", "hidden_GB", "conv_TFLOP", "transposes", "serial_sums"),
        *("modelled_ms", "hidden_ms"),
    ),
    "gpu_day": (
        *("group", "environment", "form", "size", "batch", "precision", "xla", "replicas", "steps_per_call"),
        *("ms", "best_ms", "spread", "images_per_second", "TFLOP_per_second", "share_of_peak", "ratio"),
        *("memory_GB", "first_seconds"),
    ),
}
PERCENT = ("spread", "share_of_peak", "data_wait")


class Report:
    """The command, the machine and the rows of each part, written to a file after each turn.

    Args:
        command: The command line.
        path: File to write as JSON, or `None`.

    Attributes:
        content: Content of the file.
    """

    def __init__(self, command: str, path: pathlib.Path | None) -> None:
        self.content: dict[str, Any] = {"command": command, "machine": describe_machine()}
        self._path = path

    def keep(self, part: str, rows: list[dict[str, Any]]) -> None:
        """Replace the rows of a part; write the file, so that an interrupted measurement keeps its turns."""
        self.content[part] = rows
        if self._path:
            whole_file.write(self._path, json.dumps(self.content, indent=2) + "\n")


def describe_machine() -> dict[str, Any]:
    """Return facts about the machine and the software that measurements depend on."""
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return {
        "commit": _commit(),
        "cpu": next(models, "unknown"),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "gpus": [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")],
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS"),
    }


def _commit() -> str:
    """Return the commit of the clone; the version if the package is installed."""
    if not (ROOT / ".git").exists():
        return cyclegan.__version__
    git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return git.stdout.strip() or "unknown"


def format_table(part: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows of a part as a Markdown table."""
    columns = (*COLUMNS[part], "error") if any("error" in row for row in rows) else COLUMNS[part]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_format_cell(name, row.get(name)) for name in columns) + " |" for row in rows]
    return "\n".join(lines)


def _format_cell(column: str, value: Any) -> str:
    """Return a value as text with three significant digits."""
    if isinstance(value, dict):
        return " ".join(f"{name}={each}" for name, each in value.items())
    if not isinstance(value, float):
        return "" if value is None else str(value).replace("|", "/")
    if column in PERCENT:
        return f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
