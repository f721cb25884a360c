"""metrics.jsonl: the record of a run, one JSON object per line."""

from __future__ import annotations

import json
import logging
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

logger = logging.getLogger(__name__)

POSITION = {"split", "epoch", "step", "time"}  # fields of a line besides its metrics; `time` in seconds since 1970
CHANGED = "settings changed"  # event of a resumed run
# Groups of metrics by the beginning of their names. TensorBoard shows groups by the alphabet: what tells how training
# goes comes first.
GROUPS = {
    "error/": "errors",
    "loss_": "losses",
    "score/": "scores",
    "speed/": "speed",
    "change/": "translations",
    "": "training",
}
# Metrics by split ("train", "test", "steps"), then by name, then by epoch, with a fraction for "steps".
Curves = dict[str, dict[str, dict[float, float]]]


def describe(name: str) -> tuple[str, str]:
    """Return the group and the short name of a metric: ("losses", "D_X penalty") for "loss_X/penalty"."""
    prefix = next(prefix for prefix in GROUPS if name.startswith(prefix))
    if prefix != "loss_":
        return GROUPS[prefix], name[len(prefix) :]
    network, _, part = name[len(prefix) :].partition("/")
    return GROUPS[prefix], f"{'D_' if network in 'XY' else ''}{network} {part}"


def curves(lines: Iterable[Mapping[str, Any]]) -> Curves:
    """Return the metrics that the lines of a log have."""
    found: Curves = {"train": {}, "test": {}, "steps": {}}
    for line in lines:
        if "event" not in line:
            for name in line.keys() - POSITION:
                found[line["split"]].setdefault(name, {})[line["epoch"]] = line[name]
    return found


def changes(lines: Iterable[Mapping[str, Any]]) -> list[tuple[float, list[str]]]:
    """Return (epochs done before it, texts such as "lr 0.1 -> 0.2") of each change in a resumed run."""
    events = (line for line in lines if line.get("event") == CHANGED)
    return [(line["epoch"] - (line["split"] == "train"), line["changes"]) for line in events]  # of earlier versions


def describe_change(epoch: float, texts: Iterable[str]) -> str:
    """Return the text of a change, such as "lr 0.1 -> 0.2 after epoch 3"."""
    return f"{', '.join(texts)} after epoch {epoch:.4g}"


class MetricsLog:
    """Append JSON lines to a file. Pending lines stay in memory, in `waiting`, until they can be written."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._written = path.stat().st_size if path.exists() else 0
        self.waiting: list[bytes] = []

    @property
    def size(self) -> int:
        """Size of the file in bytes, including the pending lines."""
        return self._written + sum(map(len, self.waiting))

    def append(self, **values: object) -> None:
        """Add a pending line for the next `write`; raise `ValueError` if a number is not finite."""
        self.waiting.append(json.dumps(values, allow_nan=False).encode() + b"\n")

    def write(self) -> list[dict[str, Any]]:
        """Write the pending lines and return them. After an `OSError`, they stay pending for the next call."""
        with open(self.path, "ab", buffering=0) as file:
            self._written = min(self._written, file.tell())  # the user may have emptied the file
            file.truncate(self._written)  # drops what a failed or a killed write left
            rest = b"".join(self.waiting)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        lines, self.waiting = self.waiting, []
        self._written += sum(map(len, lines))
        return [json.loads(line) for line in lines]

    def cut(self, size: int) -> None:
        """Keep only the whole lines in the first `size` bytes. The file changes in the next `write`."""
        if size > self.size:
            logger.warning("%s has %d bytes, expected %d: lines are missing", self.path, self.size, size)
        on_disk = self.path.read_bytes()[: self._written] if self._written else b""
        kept = (on_disk + b"".join(self.waiting))[:size]
        kept = kept[: kept.rfind(b"\n") + 1]
        self.waiting = kept[self._written :].splitlines(keepends=True)
        self._written = min(self._written, len(kept))


def read(path: pathlib.Path, level: int = logging.WARNING) -> list[dict[str, Any]]:
    """Return the whole lines of a file, none if it does not exist; skip damaged lines, with a log line of a level."""
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1] if path.exists() else (), 1):
        try:
            values = json.loads(line)
            if not {"split", "epoch", "step"} <= set(values):
                raise ValueError("split, epoch or step is missing")
        except (ValueError, TypeError) as error:
            logger.log(level, "%s: line %d is damaged and left out (%s)", path, number, error)
        else:
            found.append(values)
    return found


def epochs(path: pathlib.Path) -> list[dict[str, Any]]:
    """Return the metrics of each epoch in a file, by names such as "epoch", "step" and "train/loss_G/total"."""
    rows: dict[int, dict[str, Any]] = {}
    for line in read(path):
        if line["split"] != "steps" and "event" not in line:
            row = rows.setdefault(line["epoch"], {"epoch": line["epoch"], "step": line["step"]})
            row.update({f"{line['split']}/{name}": line[name] for name in line if name not in POSITION})
    return list(rows.values())
