"""Comparison of runs: the settings that differ, the last and the best metrics, and their curves."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import TypeVar

from cyclegan import whole_file
from cyclegan.config import serialization
from cyclegan.config.config import SETTINGS_OF_A_START
from cyclegan.errors import UserError, printable

ABSENT = "-"  # a setting without effect, or a metric that a run lacks
LOWER_IS_BETTER = ("error/", "FID", "KID", "MAE", "/cycle", "/identity", "/nce", "/nce_identity")
HIGHER_IS_BETTER = ("PSNR", "SSIM")
# Metrics of the training images. All other metrics that exist for both splits are those of the held-out images.
OF_TRAINING = ("epoch_seconds", "speed/images_per_second", "skipped_steps")
OF_TIME = ("seconds", "speed/", "skipped_steps")
COLUMNS = 4  # of the figure
LARGEST = 1e30  # absolute value of a number in a figure
Number = TypeVar("Number", int, float)
LINE_STYLES = ("-", "--", ":", "-.")  # each with ten colors


@dataclasses.dataclass(frozen=True)
class Run:
    """A run to compare.

    Attributes:
        name: Its name in the comparison.
        settings: Texts of the settings by name, with the version of TensorFlow and the sizes of the dataset.
        curves: Values by metric, in pairs of an epoch, from 1, and the value, by increasing epoch.
    """

    name: str
    settings: dict[str, str]
    curves: dict[str, list[tuple[int, float]]]


def read(folders: Sequence[str | os.PathLike[str]]) -> list[Run]:
    """Read the settings and the metrics of runs, which may be training.

    Raises:
        UserError: A folder holds no run, or one of its files is damaged.
    """
    paths = [pathlib.Path(folder).expanduser() for folder in folders]
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    return [Run(name, _settings(path), _curves(path / "metrics.jsonl")) for name, path in zip(names, paths)]


def _settings(folder: pathlib.Path) -> dict[str, str]:
    saved = serialization.load(folder / "config.json")
    settings = saved.config.settings()
    texts = {name: _text(value) for name, value in settings.items() if name not in SETTINGS_OF_A_START}
    return {**texts, **{f"{name} of the images": _text(value) for name, value in saved.data.items()}, **saved.stack}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _curves(path: pathlib.Path) -> dict[str, list[tuple[int, float]]]:
    """Return the metrics of the epochs; a last line that is being written does not count."""
    values: dict[str, dict[int, float]] = {}
    try:
        lines = whole_file.read_text(path).split("\n")[:-1] if path.exists() else []
        for line in lines:
            entry = json.loads(line)
            split = entry["split"]
            if split == "steps" or "event" in entry:
                continue
            for name in set(entry) - {"split", "epoch", "step"}:
                if name in OF_TRAINING if split == "train" else not name.startswith(OF_TIME):
                    values.setdefault(name, {})[_bounded(int(entry["epoch"]))] = _bounded(float(entry[name]))
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise UserError(
            f"{path} can't be read as the metrics of a run ({error!r}); expected the lines that training wrote: restore it"
        ) from error
    return {name: sorted(values[name].items()) for name in sorted(values)}


def _bounded(value: Number) -> Number:
    """Return a number; raise ValueError if it is so large that a figure cannot show it."""
    if abs(value) > LARGEST:
        raise ValueError(f"{value!r:.40} is absurd")
    return value


def best(name: str, curve: Sequence[tuple[int, float]]) -> tuple[int, float] | None:
    """Return (epoch, value) of the best point of a curve, or `None` if neither low nor high values are better."""
    if name.endswith(HIGHER_IS_BETTER):
        return max(curve, key=lambda point: point[1])
    if name.endswith(LOWER_IS_BETTER) or name.startswith(LOWER_IS_BETTER):
        return min(curve, key=lambda point: point[1])
    return None


def table(runs: Sequence[Run]) -> list[str]:
    """Return lines with the settings that differ, and with the last and the best metrics, one column for each run."""
    rows = [["", *(run.name for run in runs)], *_setting_rows(runs)]
    rows += [["epochs done", *(str(_epochs(run)) for run in runs)], *_metric_rows(runs)]
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _setting_rows(runs: Sequence[Run]) -> Iterator[list[str]]:
    for name in dict.fromkeys(name for run in runs for name in run.settings):
        cells = [run.settings.get(name, ABSENT) for run in runs]
        if len(set(cells)) > 1:
            yield [name, *cells]


def _metric_rows(runs: Sequence[Run]) -> Iterator[list[str]]:
    for name in _metrics(runs):
        yield [name, *(_cell(name, run.curves.get(name, [])) for run in runs)]


def _metrics(runs: Sequence[Run]) -> list[str]:
    return sorted({name for run in runs for name in run.curves})


def _epochs(run: Run) -> int:
    return max((curve[-1][0] for curve in run.curves.values()), default=0)


def _cell(name: str, curve: Sequence[tuple[int, float]]) -> str:
    if not curve:
        return ABSENT
    lead = best(name, curve)
    return f"{curve[-1][1]:.4g}" + (f" (best {lead[1]:.4g} in {lead[0]})" if lead else "")


def curves_png(runs: Sequence[Run]) -> bytes:
    """Draw the metrics over the epochs, one plot for each metric and one line for each run; return the encoded PNG.

    Raises:
        UserError: No run has finished an epoch.
    """
    import matplotlib  # takes a third of a second
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import MaxNLocator

    names = _metrics(runs)
    if not names:
        raise UserError(f"{', '.join(run.name for run in runs)}: no metrics yet; expected a run that finished an epoch")
    buffer, rows = io.BytesIO(), math.ceil(len(names) / COLUMNS)
    legend = 0.3 + 0.2 * len(runs)  # inches
    with matplotlib.rc_context({"font.family": "DejaVu Sans", "font.size": 8, "axes.grid": True, "grid.alpha": 0.3}):
        height = 2.0 * rows + legend
        layout = ConstrainedLayoutEngine(rect=(0, 0, 1, 1 - legend / height))
        figure = Figure(figsize=(3.0 * COLUMNS, height), dpi=100, layout=layout)
        axes = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
        for axis, name in zip(axes, names):
            for i, run in enumerate(runs):
                epochs, values = zip(*run.curves.get(name, [(math.nan, math.nan)]))
                style = {"color": f"C{i % 10}", "linestyle": LINE_STYLES[i // 10 % len(LINE_STYLES)]}
                axis.plot(epochs, values, marker="." if len(values) < 30 else "", **style)
            axis.set_title(name, fontsize=9)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        for axis in axes[len(names) :]:
            axis.set_axis_off()
        texts = figure.legend(
            axes[0].get_lines(), map(str, range(len(runs))), loc="upper left", frameon=False
        ).get_texts()
        for text, run in zip(texts, runs):
            text.set_text(_label(run.name))  # as a label, a name that begins with _ would be left out
        figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _label(name: str) -> str:
    return printable(name).replace("$", r"\$")
