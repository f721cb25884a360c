"""Compare runs: `cyclegan-compare runs/a runs/b`.

Prints the settings that differ, and the last and the best metrics of each run, and draws all curves into one PNG.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
import json
import logging
import math
import os
import pathlib
import re
import tempfile
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from cyclegan import terminal, whole_file
from cyclegan.cli import check_result, check_run, columns
from cyclegan.cli.evaluate import to_json
from cyclegan.config import serialization
from cyclegan.config.command_line import ArgumentParser
from cyclegan.config.sections import EvaluationConfig
from cyclegan.errors import UserError, printable
from cyclegan.run import metrics_log

logger = logging.getLogger("cyclegan.compare")
ABSENT = "-"  # a setting or a metric that a run lacks
NOT_COMPARED = {"output_dir", "clear_output_dir"}
PER_ROW = 4  # plots of the figure
MIN_SPAN = 0.05  # of an axis, as a share of its largest value: noise that is small must not look steep
TITLE = "Comparison of runs by cyclegan-compare"  # in the PNG
STYLES = {"test": "-", "train": "--"}  # of lines
COLORS = [f"C{i}" for i in range(10)]
CHANGE: dict[str, Any] = {"linestyle": ":", "linewidth": 1}  # line of a change of settings
PEAK: dict[str, Any] = {"linestyle": "", "marker": "^", "markersize": 4}  # of a value above the plot
VALUES = (
    "Values of the last epoch, on held-out images; speed, time and learning rate of training. Best: the lowest value;"
    " PSNR, SSIM: the highest"
)
UNITS = {  # of metrics whose names don't tell it
    "speed/TFLOP_per_second": "10^12 operations/s",
    "speed/data_wait": "share of the time",
    "speed/memory_GB": "at most",
    "speed/share_of_peak": "of the device's speed",
    "seconds": "of training, per epoch",
    "epoch_seconds": "with held-out images",
}
# Settings that choose the held-out images, and their pixels.
HELD_OUT = re.compile(r"images of test|image_|load_size|preprocess|channels_|value_range_|nodata|evaluate_features")
WEIGHTS = re.compile(r"lambda_|r1|weight_decay|adversarial|objective")  # settings that the losses contain


@dataclasses.dataclass(frozen=True)
class Run:
    """A run to compare.

    Attributes:
        name: Name of its folder.
        settings: Its settings by name, and texts of its data and versions.
        curves: Its metrics by split, name and epoch, in order.
        changes: (epochs done before the change, texts such as "lr 0.1 -> 0.2") of resumed runs.
        few: Why no epoch is the best, if the held-out images are too few.
        steps: Its steps so far.
    """

    name: str
    settings: dict[str, Any]
    curves: metrics_log.Curves
    changes: list[tuple[float, list[str]]]
    few: str | None = None
    steps: int = 0

    def curve(self, name: str) -> dict[float, float]:
        """Return a metric by epoch: of the held-out images if it is a loss, otherwise of training, if these have it."""
        test, train = self.curves["test"].get(name, {}), self.curves["train"].get(name, {})
        return test or train if name.startswith("loss_") else train or test

    def describe_changes(self) -> list[str]:
        """Return a line for each time that settings changed."""
        return [f"{self.name}: {metrics_log.describe_change(*change)}" for change in self.changes]


def read(folders: Sequence[str | os.PathLike[str]]) -> list[Run]:
    """Read the settings and the metrics of runs, without the damaged ones. Runs may be training meanwhile.

    Raises:
        UserError: No folder holds a run whose configuration can be read.
    """
    paths = [pathlib.Path(folder).expanduser() for folder in folders]
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    runs, errors = [], []
    for name, path in zip(names, paths):
        try:
            check_run(path)
            runs.append(_read(name, path))
        except UserError as error:
            errors.append(error)
    if errors and not runs:
        raise errors[0]
    for text in errors:
        logger.warning("left out: %s", text)
    return runs


def _read(name: str, path: pathlib.Path) -> Run:
    saved, lines = serialization.load(path / "config.json"), metrics_log.read(path / "metrics.jsonl")
    settings = {**saved.config.settings(), **saved.stack, **_describe_data(saved.data)}
    if settings.get("generator") == f"resnet_{settings.get('residual_blocks')}blocks":
        del settings["residual_blocks"]  # says the same
    compared = {setting: value for setting, value in settings.items() if setting not in NOT_COMPARED}
    curves, changes = metrics_log.curves(lines), metrics_log.changes(lines)
    steps = max((line["step"] for line in lines), default=0)
    return Run(name, compared, curves, changes, serialization.few_held_out(saved.data), steps)


def _describe_data(data: Mapping[str, Any]) -> dict[str, str]:
    """Return texts for the training and the held-out images: their numbers, and a checksum of their names and sizes."""
    texts = {}
    for kind in ("train", "test"):
        part = {name: text for name, text in data.items() if kind in name}  # also their masks
        counts = {split: str(part[split]).split(" ")[0] for split in (f"{kind}A", f"{kind}B") if split in part}
        checksum = zlib.crc32(json.dumps(part, sort_keys=True).encode())
        if counts:
            texts[f"images of {', '.join(counts)}"] = f"{', '.join(counts.values())} ({checksum:08x})"
    return texts


def table(runs: Sequence[Run]) -> list[str]:
    """Return lines with the settings that differ, and with the last and the best metrics, one column for each run."""
    metrics = _metrics(runs)
    rows = [["", *(run.name for run in runs)]]
    rows += [[name, *(str(run.settings.get(name, ABSENT)) for run in runs)] for name in _differing(runs)]
    rows.append(
        ["epochs done", *(str(max(map(max, filter(None, map(run.curve, metrics))), default=0)) for run in runs)]
    )
    rows.append(["steps done", *(str(run.steps) for run in runs)])
    for name in metrics:
        label = f"{name} ({UNITS[name]})" if name in UNITS else name
        rows.append([label, *(_cell(name, run.curve(name), not run.few) for run in runs)])
    return columns([[printable(cell) for cell in row] for row in rows])


def _differing(runs: Sequence[Run]) -> list[str]:
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [name for name in names if len({str(run.settings.get(name, ABSENT)) for run in runs}) > 1]


def _metrics(runs: Sequence[Run]) -> list[str]:
    """Return the names of all metrics, group by group, speed and time at the end."""
    groups = [*metrics_log.GROUPS.values()]
    names = {name for run in runs for split in STYLES for name in run.curves[split]}
    return sorted(names, key=lambda name: (_group(name) == "speed", groups.index(_group(name)), name))


def _group(name: str) -> str:
    return "speed" if name.endswith("seconds") else metrics_log.describe(name)[0]


def notes(runs: Sequence[Run]) -> list[str]:
    """Return lines about settings that changed within a run, and about losses that can't be compared."""
    lines = [line for run in runs for line in run.describe_changes()]
    lines += [f"{run.name}: {run.few}" for run in runs if run.few]
    lines += [f"{run.name}: has no metrics" for run in runs if not _metrics([run])]
    scored = (run.settings["evaluate_features"] for run in runs if any("/FID" in name for name in _metrics([run])))
    lines += [EvaluationConfig(evaluate_features=features).meaning for features in dict.fromkeys(scored)]
    changed = [text.split(" ")[0] for run in runs for _, texts in run.changes for text in texts]
    others = [name for name in _differing(runs) if HELD_OUT.match(name)]
    if others:
        lines.append(f"Errors and scores are of other images or sizes ({', '.join(others)}): don't compare them")
    if weights := sorted({name for name in (*_differing(runs), *changed) if WEIGHTS.match(name)}):
        advice = "don't compare them, either" if others else "compare errors and scores, not losses"
        lines.append(f"The losses contain other weights ({', '.join(weights)}): {advice}")
    return [printable(line) for line in lines]


def _cell(name: str, curve: Mapping[float, float], has_best: bool) -> str:
    """Return the last value of a metric, and the best one if it is an error or a score."""
    if not curve:
        return ABSENT
    text = f"{[*curve.values()][-1]:.4g}"
    if has_best and name.startswith(("error/", "score/")) and not name.endswith("_std"):
        epoch = (max if name.endswith(("PSNR", "SSIM")) else min)(curve, key=curve.__getitem__)
        text += f" (best {curve[epoch]:.4g} in {epoch})"
    return text


def _for_json(run: Run) -> dict[str, Any]:
    """Return the attributes of a run, each curve as a list of [epoch, value]."""
    curves = {split: {name: [*each.items()] for name, each in found.items()} for split, found in run.curves.items()}
    return {**dataclasses.asdict(run), "curves": curves}


def curves_png(runs: Sequence[Run]) -> bytes:
    """Draw the metrics over the epochs in groups, one plot for each metric and one color for each run; return the PNG.

    Metrics that never change are left out.

    Raises:
        UserError: No run has finished an epoch.
    """
    names = [name for name in _metrics(runs) if len(values := _values(runs, name)) == 1 or values[0] < values[-1]]
    if not names:
        raise UserError(f"{', '.join(run.name for run in runs)}: no metrics yet; expected a run that finished an epoch")
    _prepare_matplotlib()
    import matplotlib  # takes a third of a second
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows: list[tuple[str, list[str]]] = []  # title, metrics
    for group, found in itertools.groupby(names, _group):
        members = [*found]
        rows += [(group * (i == 0), members[i : i + PER_ROW]) for i in range(0, len(members), PER_ROW)]
    buffer = io.BytesIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.size": 8, "axes.grid": True, "grid.alpha": 0.3, "axes.titlesize": 11})
        matplotlib.rcParams["axes.formatter.limits"] = (-2, 4)  # long numbers would reach into the plot at the left
        handles, labels = _legend(runs)
        lines, half = [label.count("\n") + 1 for label in labels], math.ceil(len(labels) / 2)
        above = 0.4 + 0.17 * max(sum(lines[:half]), sum(lines[half:]))  # inches of the legend
        height = 2.0 * len(rows) + above
        figure = Figure(figsize=(3.0 * PER_ROW, height), dpi=100)
        FigureCanvasAgg(figure)
        grid = figure.subplots(len(rows), PER_ROW, squeeze=False)
        figure.subplots_adjust(0.06, 0.4 / height, 0.99, 1 - above / height, wspace=0.42, hspace=0.45)
        for axes, (title, metrics) in zip(grid, rows):
            axes[0].set_title(title, loc="left", fontweight="bold")
            for axis, name in itertools.zip_longest(axes, metrics):
                if name:
                    _draw(axis, name, runs)
                else:
                    axis.set_axis_off()
        figure.legend(handles, labels, loc="upper left", ncols=2, frameon=False)
        figure.savefig(buffer, format="png", metadata={"Title": TITLE})
    return buffer.getvalue()


def _values(runs: Sequence[Run], name: str) -> list[float]:
    """Return the values of a metric in all runs, the least first."""
    return sorted(value for run in runs for split in STYLES for value in run.curves[split].get(name, {}).values())


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
    """Draw a metric. Single values far above the others are marked at the upper edge, so that the others are seen."""
    from matplotlib.ticker import MaxNLocator

    values, limit = _values(runs, name), _limit(runs, name)
    for run, color in zip(runs, itertools.cycle(COLORS)):
        for split, style in STYLES.items():
            curve = run.curves[split].get(name, {})
            axis.plot([*curve], [*curve.values()], style, color=color, marker="." if len(curve) == 1 else "")
            peaks = [epoch for epoch, value in curve.items() if value > limit]
            axis.plot(peaks, [limit] * len(peaks), color=color, clip_on=False, **PEAK)
        epochs = [epoch for split in STYLES for epoch in run.curves[split].get(name, {})]
        for epoch, _ in run.changes:
            if epochs and min(epochs) <= epoch <= max(epochs):  # other lines would stretch the axis
                axis.axvline(epoch, color=color, **CHANGE)
    missing = MIN_SPAN * max(abs(values[0]), abs(values[-1])) - (values[-1] - values[0])
    if values[-1] > limit:
        axis.set_ylim(values[0] - (limit - values[0]) / 20, limit)
    elif missing > 0:
        axis.set_ylim(values[0] - missing / 2, values[-1] + missing / 2)
    axis.set_xlabel("epoch")
    axis.set_ylabel(metrics_log.describe(name)[1])
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _limit(runs: Sequence[Run], name: str) -> float:
    """Return the largest value of a metric that its plot shows."""
    values = _values(runs, name)
    usual = values[math.ceil(0.95 * (len(values) - 1))]
    span = max(4 * (usual - values[0]), MIN_SPAN * max(abs(values[0]), abs(usual)))
    return values[0] + span if usual > values[0] else values[-1]


def _legend(runs: Sequence[Run]) -> tuple[list[Any], list[str]]:
    """Return the lines and the texts of the legend: runs, splits, peaks, and changes of settings."""
    from matplotlib.lines import Line2D

    entries: list[tuple[str, dict[str, Any]]] = []
    for run, color in zip(runs, itertools.cycle(COLORS)):
        entries.append((run.name, {"color": color}))
        for text, (epoch, _) in zip(run.describe_changes(), run.changes):  # the plots begin at epoch 1
            entries.append((text, {"color": color, **(CHANGE if epoch >= 1 else {"linestyle": ""})}))
    entries.append(("held-out images", {"color": "black", "linestyle": STYLES["test"]}))
    entries.append(("training images", {"color": "black", "linestyle": STYLES["train"]}))
    if any(_values(runs, name)[-1] > _limit(runs, name) for name in _metrics(runs)):
        entries.append(("value above the plot", {"color": "black", **PEAK}))
    # matplotlib leaves out labels that begin with _, hence the space; a $ would begin a formula.
    texts = [textwrap.fill(" " + printable(text).replace("$", r"\$"), 90) for text, _ in entries]
    return [Line2D([], [], **style) for _, style in entries], texts


def main(argv: Sequence[str] | None = None) -> int:
    """Print the comparison, and write the curves; return the exit code, 1 if any folder was left out.

    Raises:
        UserError: No folder holds a run, no run has finished an epoch, or a file can't be written.
    """
    description = "Compare runs: settings that differ, last and best metrics side by side, and their curves."
    parser = ArgumentParser(description=description, hints={"output": "--png"})
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run, which may still be training")
    png = "file for the curves, replaced (default: comparison.png)"
    parser.add_argument("--png", default="comparison.png", metavar="FILE", help=png)
    parser.add_argument("--json", metavar="FILE", help="also write settings and metrics to this file, replaced")
    arguments = parser.parse_args(argv)
    file = check_result(arguments.png, "--png", ".png", TITLE.encode())
    data = check_result(arguments.json, "--json", ".json", b'[\n  {\n    "name": ') if arguments.json else None
    files = [path for path in arguments.runs if os.path.isfile(path)]  # beside the runs, by the pattern runs/*
    folders = [path for path in arguments.runs if path not in files] or files
    runs = read(folders)
    left_out = [f"Left out, as these are files, not runs: {printable(', '.join(files))}"] if files else []
    print(*table(runs), VALUES, *notes(runs), *left_out, sep="\n", flush=True)
    if data:
        data.parent.mkdir(parents=True, exist_ok=True)
        whole_file.write(data, to_json([*map(_for_json, runs)]))
    file.parent.mkdir(parents=True, exist_ok=True)
    whole_file.write(file, curves_png(runs))
    print(f"Curves: {printable(file)}")
    return int(len(runs) < len(folders))


program = functools.partial(terminal.run, main, "stopped")
