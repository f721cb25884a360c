"""Compare runs: `cyclegan-compare runs/a runs/b`.

Prints the settings that differ, and the last and the best metrics of each run, and draws all curves into one PNG.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from cyclegan import terminal, whole_file
from cyclegan.cli import check_run
from cyclegan.config.command_line import ArgumentParser
from cyclegan.errors import UserError, printable
from cyclegan.run import metrics_log

ABSENT = "-"  # a setting or a metric that a run lacks
NOT_COMPARED = {"output_dir", "clear_output_dir"}
PER_ROW = 4  # plots of the figure


@dataclasses.dataclass(frozen=True)
class Run:
    """A run to compare: texts of its settings by name; values of its metrics by name, then by epoch, in order."""

    name: str
    settings: dict[str, str]
    curves: dict[str, dict[int, float]]


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
    return [Run(name, _settings(path / "config.json"), _curves(path)) for name, path in zip(names, paths)]


def _settings(path: pathlib.Path) -> dict[str, str]:
    try:
        return dict(_flatten(json.loads(path.read_bytes())))
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{path} can't be read ({error}); expected the config.json of a run") from error


def _flatten(settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of settings without their sections."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flatten(value)
        elif name not in NOT_COMPARED:
            yield name, value if isinstance(value, str) else json.dumps(value)


def _curves(folder: pathlib.Path) -> dict[str, dict[int, float]]:
    """Return the metrics of the epochs: losses of the held-out images if there are any, otherwise of training."""
    values: dict[str, dict[str, dict[int, float]]] = {"train": {}, "test": {}, "steps": {}}
    for line in metrics_log.read(folder / "metrics.jsonl"):
        if "event" not in line:
            for name in line.keys() - {"split", "epoch", "step"}:
                values[line["split"]].setdefault(name, {})[line["epoch"]] = line[name]
    train, test = values["train"], values["test"]
    training = {name: curve for name, curve in train.items() if name not in test or not name.startswith("loss_")}
    return dict(sorted({**test, **training}.items()))


def table(runs: Sequence[Run]) -> list[str]:
    """Return lines with the settings that differ, and with the last and the best metrics, one column for each run."""
    rows = [["", *(run.name for run in runs)]]
    for name in dict.fromkeys(name for run in runs for name in run.settings):
        cells = [run.settings.get(name, ABSENT) for run in runs]
        if len(set(cells)) > 1:
            rows.append([name, *cells])
    rows.append(["epochs done", *(str(max(map(max, run.curves.values()), default=0)) for run in runs)])
    rows += [[name, *(_cell(name, run.curves.get(name, {})) for run in runs)] for name in _metrics(runs)]
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _metrics(runs: Sequence[Run]) -> list[str]:
    return sorted({name for run in runs for name in run.curves})


def _cell(name: str, curve: Mapping[int, float]) -> str:
    """Return the last value of a metric, and the best one if it is an error or a score."""
    if not curve:
        return ABSENT
    text = f"{[*curve.values()][-1]:.4g}"
    if name.startswith(("error/", "score/")):
        epoch = (max if name.endswith(("PSNR", "SSIM")) else min)(curve, key=curve.__getitem__)
        text += f" (best {curve[epoch]:.4g} in {epoch})"
    return text


def curves_png(runs: Sequence[Run]) -> bytes:
    """Draw the metrics over the epochs, one plot for each metric and one line for each run; return the encoded PNG.

    Raises:
        UserError: No run has finished an epoch.
    """
    import matplotlib  # takes a third of a second
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    names = _metrics(runs)
    if not names:
        raise UserError(f"{', '.join(run.name for run in runs)}: no metrics yet; expected a run that finished an epoch")
    buffer, rows, legend = io.BytesIO(), math.ceil(len(names) / PER_ROW), 0.3 + 0.2 * len(runs)  # height in inches
    with matplotlib.rc_context({"font.family": "DejaVu Sans", "font.size": 8, "axes.grid": True, "grid.alpha": 0.3}):
        figure = Figure(figsize=(3.0 * PER_ROW, 2.0 * rows + legend), dpi=100, layout="constrained")
        axes = figure.subplots(rows, PER_ROW, squeeze=False).ravel()
        for axis, name in zip(axes, names):
            for run in runs:
                curve = run.curves.get(name, {1: math.nan})
                axis.plot([*curve], [*curve.values()], marker="." if len(curve) < 30 else "")
            axis.set_title(name, fontsize=9)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        for axis in axes[len(names) :]:
            axis.set_axis_off()
        # matplotlib leaves out labels that begin with _, hence the space; a $ would begin a formula.
        labels = [" " + printable(run.name).replace("$", r"\$") for run in runs]
        figure.legend(axes[0].get_lines(), labels, loc="outside upper left", frameon=False)
        figure.savefig(buffer, format="png")
    return buffer.getvalue()


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
    print(*table(runs), sep="\n", flush=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        whole_file.write(arguments.png, curves_png(runs))
    except OSError as error:
        raise UserError(f"--png {arguments.png}: {error.strerror}; expected a file in a writable folder") from error
    print(f"Curves: {arguments.png}")


program = functools.partial(terminal.run, main, "stopped")
