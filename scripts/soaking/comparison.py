"""Compare the ends of two runs bit for bit."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from cyclegan import terminal
from cyclegan.config.sections import DIRECTIONS
from cyclegan.run.run_directory import find_checkpoints
from cyclegan.run.train_state import TrainState

BEST = ("best_epoch", "best_kid")  # fields of the training state
TRAIN_STATE = "train_state/.ATTRIBUTES/py_state"  # has times in it
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # describes the Python objects, not their values


def log_lines(run: pathlib.Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl without the times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in line.items() if not name.startswith("speed/") and "seconds" not in name}
        for line in lines
    ]


def newest(run: pathlib.Path, name: str) -> pathlib.Path | None:
    """Return the newest checkpoint of a run with a name, given without its number."""
    return next(reversed(find_checkpoints(run / "checkpoints", name)), None)


def is_whole(checkpoint: pathlib.Path) -> bool:
    """Return whether everything in a checkpoint can be read."""
    try:
        variables(checkpoint)
        train_state(checkpoint)
    except Exception:  # TensorFlow raises errors of many types
        return False
    return True


def variables(checkpoint: pathlib.Path) -> dict[str, Any]:
    """Return everything in a checkpoint by name: weights, moments, counters, image pools."""
    with terminal.start():
        import tensorflow as tf

    reader = tf.train.load_checkpoint(str(checkpoint / "state"))
    names = reader.get_variable_to_shape_map()
    return {name: reader.get_tensor(name) for name in names if name not in (GRAPH, TRAIN_STATE)}


def read_state(checkpoint: pathlib.Path) -> TrainState:
    """Return the training state of a checkpoint."""
    with terminal.start():
        from cyclegan.run.checkpoints import read_train_state

    return read_train_state(checkpoint)


def train_state(checkpoint: pathlib.Path) -> dict[str, Any]:
    """Return the position in training without times and lengths of files, with the best epoch and KID by direction."""
    state = dataclasses.asdict(read_state(checkpoint))
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
    end = newest(whole, last)
    state = train_state(end) if end else {}
    lost = {direction for direction in DIRECTIONS if state.get(f"best_epoch {direction}") in unsaved}
    not_compared = {f"{name} {direction}" for name in BEST for direction in lost}
    not_compared |= {"evaluations_since_best"} if lost else set()
    for name in (last, *(f"best-{direction}" for direction in DIRECTIONS if direction not in lost)):
        one, other = newest(whole, name), newest(parts, name)
        if not (one and other) and (one or other or name == last):
            found.append(f"{name}: exists in one only")
        elif one and other:
            for kind, read in (("variables", variables), ("training state", train_state)):
                if names := sorted({*different(read(one), read(other))} - not_compared):
                    found.append(f"{name}: {len(names)} {kind} {names[:3]}")
    left = (parts / "checkpoints" / "partial").exists()
    return [*found, *(["left behind: partial"] if left else [])]
