"""Find the checkpoints of a run, damage the newest one, and compare the ends of two runs bit for bit."""

from __future__ import annotations

import json
import pathlib
import random
from typing import Any

import numpy as np

from cyclegan import terminal
from cyclegan.run.run_directory import saved_checkpoints

NOT_COMPARED = ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter")  # Python's objects, and how often was saved
TIMES = ("train", "test", "log_bytes")  # fields of the training state with times, or with the length of a log of times


def log_lines(run: pathlib.Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl without the times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        {k: v for k, v in line.items() if not k.startswith("speed/") and "seconds" not in k and k != "time"}
        for line in lines
    ]


def checkpoints(run: pathlib.Path, best: bool = False) -> list[pathlib.Path]:
    """Return the folders of the checkpoints of a run, the oldest first: the regular ones, or the best ones."""
    return saved_checkpoints(run / "checkpoints", "best-*" if best else "epoch_*")


def variables(checkpoint: pathlib.Path) -> dict[str, Any]:
    """Return the values in a checkpoint by name: weights, moments, counters, image pools, and the training state."""
    with terminal.start():
        import tensorflow as tf

    reader = tf.train.load_checkpoint(str(checkpoint / "state"))
    names = [name for name in reader.get_variable_to_shape_map() if not name.startswith(NOT_COMPARED)]
    return {name: reader.get_tensor(name) for name in names}


def is_readable(checkpoint: pathlib.Path) -> bool:
    """Return whether all values of a checkpoint can be read."""
    try:
        return bool(variables(checkpoint))
    except Exception:  # TensorFlow raises errors of many types
        return False


def damage(run: pathlib.Path, rng: random.Random) -> str | None:
    """Damage the newest checkpoint, if an older one can take its place, or the end of the log; return the damage."""
    kind = rng.choice(["cut file", "flipped bit", "missing file", "half a line"])
    if kind == "half a line":
        with open(run / "metrics.jsonl", "ab") as log:
            log.write(b'{"split": "steps", "epo')
        return kind
    *older, newest = checkpoints(run) or [None]
    files = sorted(newest.iterdir()) if newest else []
    if not files or not any(map(is_readable, older)):
        return None
    path = rng.choice(files)
    content = bytearray(path.read_bytes())
    path.unlink()
    if kind == "cut file":
        path.write_bytes(content[: rng.randrange(len(content) + 1)])
    elif kind == "flipped bit" and content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
    return kind


def differences(whole: pathlib.Path, parts: pathlib.Path, is_best_lost: bool = False) -> list[str]:
    """List the differences between the ends of two runs: logs, newest checkpoints and best checkpoints.

    Args:
        whole: Folder of the undisturbed run.
        parts: Folder of the disturbed run.
        is_best_lost: Whether a full disk may have prevented a best checkpoint, so that those and the record of them
            in the training state are not compared.
    """
    found = []
    lines, others = log_lines(whole), log_lines(parts)
    if lines != others:
        same = [one == other for one, other in zip(lines, others)]
        number = same.index(False) if False in same else len(same)
        found.append(f"metrics.jsonl: line {number + 1} of {len(lines)} and {len(others)}")
    ends, other_ends = _ends(whole, is_best_lost), _ends(parts, is_best_lost)
    for name in sorted(ends.keys() | other_ends.keys() | {"newest"}):
        if name not in ends or name not in other_ends:
            found.append(f"{name} checkpoint: missing in one")
        elif names := _different(variables(ends[name]), variables(other_ends[name]), is_best_lost):
            found.append(f"{name} checkpoint: {len(names)} values, {names[:3]}")
    return found


def _ends(run: pathlib.Path, is_best_lost: bool) -> dict[str, pathlib.Path]:
    """Return the newest checkpoint and, by their names without numbers, the best ones."""
    best = [] if is_best_lost else checkpoints(run, best=True)
    return {"newest": checkpoints(run)[-1], **{path.name.rpartition("-")[0]: path for path in best}}


def _different(values: dict[str, Any], others: dict[str, Any], is_best_lost: bool) -> list[str]:
    """Return the names of the values that are not the same bits in both."""
    bits, other_bits = ({name: _bits(v, is_best_lost) for name, v in each.items()} for each in (values, others))
    return sorted(name for name in bits.keys() | other_bits.keys() if bits.get(name) != other_bits.get(name))


def _bits(value: Any, is_best_lost: bool) -> Any:
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
        return value.dtype, value.shape, value.tobytes()
    try:
        state = json.loads(value)
    except (TypeError, ValueError):
        return value
    return {k: v for k, v in state.items() if k not in TIMES and not (is_best_lost and "best" in k)}
