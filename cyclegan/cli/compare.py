"""Compare runs: `cyclegan-compare runs/a runs/b`.

Prints the settings that differ, and the last and the best metrics of each run, and draws all curves into one PNG.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
import json
import math
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cyclegan import terminal, whole_file
from cyclegan.cli import check_run
from cyclegan.config import serialization
from cyclegan.config.command_line import ArgumentParser
from cyclegan.errors import UserError, printable
from cyclegan.run import metrics_log

ABSENT = "-"  # a setting or a metric that a run lacks
NOT_COMPARED = {"output_dir", "clear_output_dir"}
PER_ROW = 4  # plots of the figure
STYLES = {"test": "-", "train": "--"}  # of lines
SPLITS = (*STYLES,)
COLORS = [f"C{i}" for i in range(10)]
CHANGE: dict[str, Any] = {"linestyle": ":", "linewidth": 1}  # line of a change of settings
WEIGHTS = re.compile(r"lambda_|r1|weight_decay|adversarial|objective")  # settings that the losses contain


@dataclasses.dataclass(frozen=True)
class Run:
    """A run to compare.

    Attributes:
        name: Name of its folder.
        settings: Texts of its settings by name.
        curves: Its metrics by split, name and epoch, in order.
        few: Why no epoch is the best, if the held-out images are too few.
        changes: (last epoch before the change, settings such as "lr 0.1 -> 0.2") of resumed runs.
    """

    name: str
    settings: dict[str, str]
    curves: metrics_log.Curves
    changes: list[tuple[int, list[str]]]
    few: str | None = None

    def curve(self, name: str) -> dict[float, float]:
        """Return a metric by epoch: of the held-out images if it is a loss, otherwise of training, if these have it."""
        test, train = self.curves["test"].get(name, {}), self.curves["train"].get(name, {})
        return test or train if name.startswith("loss_") else train or test


def read(folders: Sequence[str | os.PathLike[str]]) -> list[Run]:
    """Read the settings and the metrics of runs, which may be training.

    Raises:
        UserError: A folder holds no run, or its configuration is damaged.
    """
    for folder in folders:
        check_run(os.fspath(folder))
    paths = [pathlib.Path(folder).expanduser() for folder in folders]
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    return [_read(name, path) for name, path in zip(names, paths)]


def _read(name: str, path: pathlib.Path) -> Run:
    saved, lines = _read_config(path / "config.json"), metrics_log.read(path / "metrics.jsonl")
    changes = [(line["epoch"] - 1, line["changes"]) for line in lines if line.get("event") == metrics_log.CHANGED]
    few = serialization.few_held_out(saved.get("data", {}))
    return Run(name, dict(_flatten(saved)), metrics_log.curves(lines), changes, few)


def _read_config(path: pathlib.Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} can't be read ({error}); expected the config.json of a run") from error


def _flatten(settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of settings without their sections."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flatten(value)
        elif name not in NOT_COMPARED:
            yield name, value if isinstance(value, str) else json.dumps(value)


def table(runs: Sequence[Run]) -> list[str]:
    """Return lines with the settings that differ, and with the last and the best metrics, one column for each run."""
    rows = [["", *(run.name for run in runs)]]
    for name in dict.fromkeys(name for run in runs for name in run.settings):
        cells = [run.settings.get(name, ABSENT) for run in runs]
        if len(set(cells)) > 1:
            rows.append([name, *cells])
    rows.append(
        ["epochs done", *(str(max((max(run.curve(name)) for name in _metrics([run])), default=0)) for run in runs)]
    )
    rows += [[name, *(_cell(name, run.curve(name), not run.few) for run in runs)] for name in _metrics(runs)]
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _metrics(runs: Sequence[Run]) -> list[str]:
    return sorted({name for run in runs for split in SPLITS for name in run.curves[split]})


def notes(runs: Sequence[Run]) -> list[str]:
    """Return lines about settings that changed within a run, and about losses that can't be compared."""
    lines = [f"{run.name}: {', '.join(texts)} after epoch {epoch}" for run in runs for epoch, texts in run.changes]
    lines += [f"{run.name}: {run.few}" for run in runs if run.few]
    differing = [name for name in runs[0].settings if len({run.settings.get(name) for run in runs}) > 1]
    changed = [text.split(" ")[0] for run in runs for _, texts in run.changes for text in texts]
    if weights := sorted({name for name in (*differing, *changed) if WEIGHTS.match(name)}):
        lines.append(f"The losses contain other weights ({', '.join(weights)}): compare errors and scores, not losses")
    return [printable(line) for line in lines]


def _cell(name: str, curve: Mapping[float, float], has_best: bool) -> str:
    """Return the last value of a metric, and the best one if it is an error or a score."""
    if not curve:
        return ABSENT
    text = f"{[*curve.values()][-1]:.4g}"
    if has_best and name.startswith(("error/", "score/")):
        epoch = (max if name.endswith(("PSNR", "SSIM")) else min)(curve, key=curve.__getitem__)
        text += f" (best {curve[epoch]:.4g} in {epoch})"
    return text


def curves_png(runs: Sequence[Run]) -> bytes:
    """Draw the metrics over the epochs in groups, one plot for each metric and one color for each run; return the PNG.

    Metrics that never change are left out.

    Raises:
        UserError: No run has finished an epoch.
    """
    groups: dict[str, list[str]] = {group: [] for group in metrics_log.GROUPS.values()}
    for name in _metrics(runs):
        values = [value for run in runs for split in SPLITS for value in run.curves[split].get(name, {}).values()]
        if len(set(values)) > 1 or len(values) == 1:
            groups[metrics_log.describe(name)[0]].append(name)
    groups = {group: names for group, names in groups.items() if names}
    if not groups:
        raise UserError(f"{', '.join(run.name for run in runs)}: no metrics yet; expected a run that finished an epoch")
    _prepare_matplotlib()
    import matplotlib  # takes a third of a second
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    buffer = io.BytesIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.size": 8, "axes.grid": True, "grid.alpha": 0.3})
        rows = [math.ceil(len(names) / PER_ROW) for names in groups.values()]
        legend = 0.3 + 0.2 * (len(runs) + 3)  # height in inches
        figure = Figure(
            figsize=(3.0 * PER_ROW, 1.9 * sum(rows) + 0.3 * len(rows) + legend), dpi=100, layout="constrained"
        )
        FigureCanvasAgg(figure)
        parts = figure.subfigures(1 + len(rows), 1, height_ratios=[legend, *(1.9 * count + 0.3 for count in rows)])
        for part, count, (group, names) in zip(parts[1:], rows, groups.items()):
            part.suptitle(group, fontsize=11, fontweight="bold")
            axes = part.subplots(count, PER_ROW, squeeze=False).ravel()
            for axis, name in zip(axes, names):
                _draw(axis, name, runs)
            for axis in axes[len(names) :]:
                axis.set_axis_off()
        _draw_legend(parts[0], runs)
        figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _prepare_matplotlib() -> None:
    """Make matplotlib independent of the user's backend and files; it complains about a folder that it can't write."""
    os.environ["MPLBACKEND"] = "agg"
    folder = os.environ.get("MPLCONFIGDIR") or os.path.expanduser("~/.cache/matplotlib")
    try:
        os.makedirs(folder, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        folder = tempfile.mkdtemp()
    os.environ["MPLCONFIGDIR"] = folder


def _draw(axis: Any, name: str, runs: Sequence[Run]) -> None:
    from matplotlib.ticker import MaxNLocator

    for run, color in zip(runs, itertools.cycle(COLORS)):
        for split, style in STYLES.items():
            curve = run.curves[split].get(name, {})
            axis.plot([*curve], [*curve.values()], style, color=color, marker="." if len(curve) < 30 else "")
        for epoch, _ in run.changes:
            axis.axvline(epoch, color=color, **CHANGE)
    axis.set_xlabel("epoch")
    axis.set_ylabel(metrics_log.describe(name)[1])
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _draw_legend(figure: Any, runs: Sequence[Run]) -> None:
    from matplotlib.lines import Line2D

    # matplotlib leaves out labels that begin with _, hence the space; a $ would begin a formula.
    labels = [" " + printable(run.name).replace("$", r"\$") for run in runs]
    lines = [Line2D([], [], color=color) for color, _ in zip(itertools.cycle(COLORS), runs)]
    lines += [Line2D([], [], color="gray", linestyle=style) for style in STYLES.values()]
    labels += [" held-out images", " training images"]
    if any(run.changes for run in runs):
        lines.append(Line2D([], [], color="gray", **CHANGE))
        labels.append(" settings change")
    figure.legend(lines, labels, loc="upper left", frameon=False)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the comparison, and write the curves.

    Raises:
        UserError: A folder holds no run, no run has finished an epoch, or the PNG can't be written.
    """
    description = "Compare runs: settings that differ, last and best metrics side by side, and their curves."
    parser = ArgumentParser(description=description)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run, which may still be training")
    png = "file for the curves, replaced (default: comparison.png)"
    parser.add_argument("--png", default="comparison.png", metavar="FILE", help=png)
    arguments = parser.parse_args(argv)
    runs, folder = read(arguments.runs), pathlib.Path(arguments.png).parent
    whole_file.check_folder(folder)
    print(*table(runs), *notes(runs), sep="\n", flush=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        whole_file.write(arguments.png, curves_png(runs))
    except OSError as error:
        raise UserError(f"--png {arguments.png}: {error.strerror}; expected a file in a writable folder") from error
    print(f"Curves: {arguments.png}")


program = functools.partial(terminal.run, main, "stopped")
