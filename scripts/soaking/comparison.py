"""Compare the ends of two runs bit for bit."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from cyclegan import terminal
from cyclegan.config.sections import DIRECTIONS

BEST = ("best_epoch", "best_kid")  # fields of the training state
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # describes the Python objects, not their values


def log_lines(run: pathlib.Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl without the times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in line.items() if not name.startswith("speed/") and "seconds" not in name}
        for line in lines
    ]


def variables(checkpoint: pathlib.Path) -> dict[str, Any]:
    """Return everything in a checkpoint by name: weights, moments, counters, image pools."""
    with terminal.start():
        import tensorflow as tf

    reader = tf.train.load_checkpoint(str(checkpoint / "state"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map() if name != GRAPH}


def train_state(checkpoint: pathlib.Path) -> dict[str, Any]:
    """Return the position in training without times and lengths of files, with the best epoch and KID by direction."""
    state = json.loads((checkpoint / "manifest.json").read_text())["train_state"]
    kept = {name: value for name, value in state.items() if name not in ("train", "test", "log_bytes", *BEST)}
    return {**kept, **{f"{name} {direction}": value for name in BEST for direction, value in state[name].items()}}


def different(values: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """Return the names of the values that are not the same bits in both."""
    return sorted(
        name
        for name in values.keys() | others.keys()
        if name not in values or name not in others or _bits(values[name]) != _bits(others[name])
    )


def _bits(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
        return value.dtype, value.shape, value.tobytes()
    return value


def differences(whole: pathlib.Path, parts: pathlib.Path, epochs: int, unsaved: Collection[int] = ()) -> list[str]:
    """List the differences between the ends of two runs: logs, last and best checkpoints, leftover files.

    Args:
        whole: Folder of the undisturbed run.
        parts: Folder of the disturbed run.
        epochs: Length of the training.
        unsaved: Epochs whose checkpoint the disturbed run could not write, on a full disk. If the best one of a direction is among
            them, the disturbed run has the best of the others, which is not compared.
    """
    found = []
    lines, others = log_lines(whole), log_lines(parts)
    if lines != others:
        number = next(
            (i for i, pair in enumerate(zip(lines, others)) if pair[0] != pair[1]), min(len(lines), len(others))
        )
        found.append(f"metrics.jsonl: line {number + 1} of {len(lines)} and {len(others)}")
    last = f"epoch_{epochs:04d}"
    end = whole / "checkpoints" / last
    state = train_state(end) if end.exists() else {}
    lost = {direction for direction in DIRECTIONS if state.get(f"best_epoch {direction}") in unsaved}
    not_compared = {f"{name} {direction}" for name in BEST for direction in lost}
    not_compared |= {"evaluations_since_best"} if lost else set()
    for name in (last, *(f"best-{direction}" for direction in DIRECTIONS if direction not in lost)):
        one, other = (run / "checkpoints" / name for run in (whole, parts))
        if one.exists() != other.exists() or (not one.exists() and name[0] == "e"):
            found.append(f"{name}: exists in one only")
        elif one.exists():
            for kind, read in (("variables", variables), ("training state", train_state)):
                if names := sorted({*different(read(one), read(other))} - not_compared):
                    found.append(f"{name}: {len(names)} {kind} {names[:3]}")
    left = [path.name for path in parts.glob("checkpoints/.*")]
    return [*found, *([f"left behind: {left}"] if left else [])]
