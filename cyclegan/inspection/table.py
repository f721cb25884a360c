"""Inspection of a dataset as text."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

import numpy as np

from cyclegan.data.sources import SPLITS
from cyclegan.inspection.findings import Finding
from cyclegan.inspection.inspection import Inspection

MAX_GROUPS = 3  # that are named for a finding
MAX_NAMES = 4  # that are named in a group
MAX_KINDS = 3  # kinds of files of a split
LEGEND = "Sizes: smallest, median, largest. Mean and standard deviation: by channel, of levels 0 to 255."
STATISTICS = (
    "images",
    "width, pixels",
    "height, pixels",
    "width / height",
    "bands",
    "mean",
    "deviation",
)


def statistics(inspection: Inspection) -> list[list[str]]:
    """Return the rows of a table: a title row with the splits, then each of `STATISTICS` by split."""
    columns = [_statistics(inspection.measures[inspection.splits == split]) for split in range(len(SPLITS))]
    return [["", *SPLITS], *([title, *cells] for title, *cells in zip(STATISTICS, *columns))]


def lines(inspection: Inspection) -> Iterator[str]:
    """Yield the lines of both tables: the statistics, and the findings with their meaning and advice."""
    rows = statistics(inspection)
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
    yield LEGEND
    yield from inspection.notes
    for number, finding in enumerate(inspection.findings, 1):
        yield ""
        yield f"{number}. {finding.kind.title}: {finding.count}"
        yield from (f"     {line}" for line in _examples(inspection.names, finding))
        yield f"   {finding.kind.meaning}"
        yield f"   {finding.kind.advice}"
    if not inspection.findings:
        yield "Nothing was found that harms training."


def describe(names: Sequence[str], finding: Finding, index: int) -> str:
    """Return the name of an image with the details of a finding."""
    return f"{names[index]} ({finding.details[index]})" if index in finding.details else names[index]


def _statistics(measures: np.ndarray) -> list[str]:
    """Return the cells of a column."""
    measures = measures[measures["readable"]]
    if not len(measures):
        return ["0", *[""] * (len(STATISTICS) - 1)]
    height, width = measures["height"], measures["width"]
    kinds = collections.Counter(measures["kind"].tolist()).most_common()
    named = [f"{kind} {count}" if len(kinds) > 1 else kind for kind, count in kinds[:MAX_KINDS]]
    mean = measures["mean"].mean(axis=0, dtype=np.float64)
    squares = (np.square(measures["mean"], dtype=np.float64) + np.square(measures["deviation"])).mean(axis=0)
    deviation = np.sqrt(np.maximum(squares - mean**2, 0))
    return [
        str(len(measures)),
        *(_range(values) for values in (width, height, width / height)),
        ", ".join(named + ["..."] * (len(kinds) > MAX_KINDS)),
        *(" ".join(f"{value:.0f}" for value in values) for values in (mean, deviation)),
    ]


def _range(values: np.ndarray) -> str:
    """Return the smallest, median and largest value, or the only one."""
    shown = (values[0],) if (values == values[0]).all() else (values.min(), np.median(values), values.max())
    return " ".join(f"{value:.0f}" if value >= 1000 else f"{value:.4g}" for value in shown)


def _examples(names: Sequence[str], finding: Finding) -> Iterator[str]:
    for group in finding.groups[:MAX_GROUPS]:
        named = [describe(names, finding, index) for index in group[:MAX_NAMES]]
        yield ", ".join([*named, "..."] if len(group) > MAX_NAMES else named)
    if len(finding.groups) > MAX_GROUPS:
        yield "..."
