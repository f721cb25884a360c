"""Log of a run: metrics.jsonl, TensorBoard's events, sample images, the page that shows all, and trackers."""

from __future__ import annotations

import collections
import itertools
import logging
import math
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from cyclegan import terminal
from cyclegan.config import Config
from cyclegan.config.config import all_settings
from cyclegan.config.fields import FREE
from cyclegan.errors import first_line, printable
from cyclegan.run import html_report, metrics_log, sample_images
from cyclegan.run.run_directory import EVENTS
from cyclegan.run.sample_images import Cycle
from cyclegan.run.trackers import BackgroundTracker
from cyclegan.run.train_state import Changes, TrainState

logger = logging.getLogger(__name__)

SPLITS = ("train", "test", "steps")  # TensorBoard's runs, as folders in the folder of the run
LINES = 30  # of the log on the page
WARNINGS = 5  # on the page, the newest
POINTS = 300  # of a curve on the page
# Settings that TensorBoard's table of hyperparameters always shows.
TUNED = (
    *("dataset", "objective", "adversarial", "generator", "filters", "image_size", "epochs", "batch_size", "lr"),
    *("lr_discriminator", "lambda_cycle", "lambda_identity", "lambda_nce", "pool_size", "ema", "seed"),
)


class _LastLines(logging.Handler):
    """Keep the last messages of this package, with the time of day, and the last warnings that differ."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: collections.deque[str] = collections.deque(maxlen=LINES)
        self.warnings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        is_warning, text = record.levelno >= logging.WARNING, printable(record.getMessage())
        self.lines.append(f"{time.strftime('%H:%M:%S')} {'Warning: ' * is_warning}{text}")
        if is_warning and not hasattr(record, "is_passing"):
            self.keep(text)

    def keep(self, *warnings: str) -> None:
        """Keep warnings as the newest."""
        self.warnings = [*dict.fromkeys([*self.warnings, *warnings][::-1])][:WARNINGS][::-1]


class SummaryWriter:
    """Writer of the metrics, events and sample images of a run.

    `metrics.jsonl` is the record. TensorBoard's events repeat it in three runs: training events under `train/`,
    validation events under `test/`, and events of single steps, numbered by the global step, under `steps/`. The
    event files are written anew from `metrics.jsonl` and `samples/`, with the times of the first writing, after
    `rewind` and after a failed write, because TensorBoard would show a rewritten step twice. `index.html` shows the
    curves, too, with the samples.

    If something cannot be written, this is logged as a warning, and training continues. Metrics wait in memory until
    they can be written; sample images are lost.

    Args:
        folder: Folder of the run.
        trackers: Trackers that also get the metrics and the grids of sample images.
        descriptions: Texts that TensorBoard shows beside the curves of losses, by the last part of a loss's name.
        config: Configuration of the run, for TensorBoard and the page.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        trackers: Sequence[BackgroundTracker] = (),
        descriptions: Mapping[str, str] | None = None,
        config: Config | None = None,
    ) -> None:
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        self._trackers, self._descriptions, self._config = trackers, descriptions or {}, config
        self._log = metrics_log.MetricsLog(self.folder / "metrics.jsonl")
        self._events: dict[str, tf.io.TFRecordWriter] = {}  # by split; empty if the files must be written anew
        self._grids: list[tuple[int, pathlib.Path]] = []  # grids that the events do not hold yet
        self._is_failing = self._has_drawing_failed = False
        self._last_lines = _LastLines()
        if earlier := html_report.log_of_page(self.folder):
            self._last_lines.lines.extend([*earlier, f"{time.strftime('%H:%M:%S')} Resumed"])
        self._last_lines.keep(*html_report.log_of_page(self.folder, "warnings"), *map(printable, terminal.warnings))
        logging.getLogger("cyclegan").addHandler(self._last_lines)

    @property
    def log_bytes(self) -> int:
        """Length of `metrics.jsonl` in bytes, which a checkpoint needs for `rewind`."""
        return self._log.size

    def rewind(self, state: TrainState, changes: Changes, epoch_size: int) -> None:
        """Return to the position of a checkpoint: discard everything after it, and log what changes from here on.

        The checkpoint knows under which settings it was saved, so a change whose event is discarded is logged again.
        `epoch_size` is the number of training pairs of an epoch.
        """
        epoch, texts = state.epoch, [*itertools.chain(*changes)]
        self._log.cut(state.log_bytes)
        self._events = {}
        try:
            sample_images.remove_after(self.folder, epoch)
        except OSError as error:
            logger.warning("sample images after epoch %d could not be removed (%s)", epoch, error)
        if texts:
            done = round(epoch + state.train.pairs_done / epoch_size, 5)
            self.write_event("steps", done, state.step, metrics_log.CHANGED, changes=texts)
        self.flush()

    def flush(self) -> bool:
        """Write the pending data; return whether `metrics.jsonl` is complete. Warn at the first of several failures."""
        try:
            lines, grids = self._log.write(), self._grids
            self._grids = []
            if not self._events:
                self._make_events()
                lines, grids = metrics_log.read(self._log.path), sample_images.grids(self.folder)
            for line in lines:
                self._add_line(line)
            for epoch, path in grids:
                self._add_samples(epoch, path)
            for events in self._events.values():
                events.flush()
        except (OSError, tf.errors.OpError) as error:
            if not self._is_failing:
                logger.warning(
                    "%s could not be written (%s). The data stays in memory until it can be written: free some space",
                    self._log.path if self._log.waiting else "TensorBoard's events",
                    first_line(error),
                )
            self._is_failing, self._events = True, {}
            return not self._log.waiting
        if self._is_failing:
            logger.warning("%s can be written again; nothing is missing", self._log.path)
        self._is_failing = False
        return True

    def write_scalars(self, split: str, epoch: float, step: int, values: Mapping[str, float]) -> None:
        """Write finite scalars by name.

        Args:
            split: "train" or "test" for the metrics of an epoch, "steps" for metrics of some training steps.
            epoch: The epoch, from 1; of steps, the epochs done, with a fraction.
            step: Global steps done.
            values: The scalars.
        """
        self._log.append(split=split, epoch=epoch, step=step, time=time.time(), **values)
        self.flush()
        for tracker in self._trackers:
            tracker.write_scalars(split, epoch, step, values)

    def write_event(self, split: str, epoch: float, step: int, event: str, **details: object) -> None:
        """Write an event with its name to `metrics.jsonl`; one with a `text` is shown in TensorBoard, too."""
        self._log.append(split=split, epoch=epoch, step=step, time=time.time(), event=event, **details)
        self.flush()

    def write_cycles(self, epoch: float, forward: Cycle, backward: Cycle, names: Sequence[Sequence[str]]) -> None:
        """Write sample images, see `sample_images.write`; those of whole epochs go to TensorBoard and trackers, too."""
        try:
            grid = sample_images.write(self.folder, epoch, forward, backward, names)
        except Exception as error:  # whatever it is, the weights are worth more
            self._warn_of_drawing("sample images", error)
            return
        if epoch % 1 == 0:
            for tracker in self._trackers:
                tracker.write_image(int(epoch), grid)
            self._grids.append((int(epoch), grid))
            self.flush()

    def write_page(self, progress: Mapping[str, Any]) -> None:
        """Write `index.html`.

        `progress` has the "state", a text such as "training"; "epoch" and "epochs", done (with a fraction) and in all;
        and the texts "step", "left" and "speed".
        """
        try:
            settings, changed = self._settings(), self._config.unusual_settings() if self._config else {}
            lines = metrics_log.read(self._log.path, logging.DEBUG)
            changes = metrics_log.changes(lines)
            run = {
                "progress": {**progress, "time": time.time()},
                "curves": _curves_of_page(lines),
                "changes": [(change[0], printable(metrics_log.describe_change(*change))) for change in changes],
                "settings": {
                    name: f"{settings[name]}" for name in sorted(settings, key=lambda name: name not in changed)
                },
                "changed": len(changed),
                "scores": self._config.evaluation.meaning if self._config else "",
                "log": [*self._last_lines.lines],
                "warnings": self._last_lines.warnings,
            }
            sample_images.write_report(self.folder, run)
        except Exception as error:
            self._warn_of_drawing("index.html", error)

    def _warn_of_drawing(self, what: str, error: Exception) -> None:
        if not self._has_drawing_failed:
            self._has_drawing_failed = True
            logger.warning(
                "%s could not be written (%s); training continues without%s",
                *(what, first_line(error), ". Free some space" * isinstance(error, OSError)),
            )

    def close(self, is_complete: bool) -> None:
        """End the runs of the trackers; `is_complete`: all epochs are done."""
        for tracker in self._trackers:
            tracker.finish(is_complete)
        logging.getLogger("cyclegan").removeHandler(self._last_lines)

    def _settings(self) -> dict[str, Any]:
        return self._config.settings() if self._config else {}

    def _make_events(self) -> None:
        """Replace the event files by new ones, which have the settings."""
        for split in SPLITS:
            (self.folder / split).mkdir(exist_ok=True)
            for path in (*self.folder.glob(EVENTS), *(self.folder / split).glob(EVENTS)):
                path.unlink()  # earlier versions wrote training events into the folder of the run
            # `tf.summary` can't write another time than now. An event file is a file of records like any other.
            path = self.folder / split / EVENTS.replace("*", str(time.time_ns()))
            self._events[split] = tf.io.TFRecordWriter(str(path))
            version = tf.compat.v1.Event(wall_time=time.time(), file_version="brain.Event:2")
            self._events[split].write(version.SerializeToString())
        if self._config:
            from tensorboard.plugins.hparams import summary_v2

            rows = "".join(f"| {name} | {printable(_shown(value))} |\n" for name, value in self._settings().items())
            self._add("test", 0, time.time(), _text("settings", f"| setting | value |\n|---|---|\n{rows}"))
            hparams = summary_v2.hparams_pb(tuned_settings(self._config), self.folder.resolve().name)
            values = tf.compat.v1.Summary.FromString(hparams.SerializeToString()).value
            self._add("test", 0, time.time(), *values)

    def _add_line(self, line: Mapping[str, Any]) -> None:
        """Add a line of `metrics.jsonl` to the events. The tags have few groups; those of steps have another axis."""
        split, step = line["split"], line["step" if line["split"] == "steps" else "epoch"]
        values = []
        if "text" in line:
            values.append(_text(f"warnings/{line['event']}", line["text"]))
        for name in line.keys() - metrics_log.POSITION if "event" not in line else ():
            group, title = metrics_log.describe(name)
            text = self._descriptions.get(name.split("/")[-1], "") if group == "losses" else ""
            tag = f"{'steps' if split == 'steps' else group}/{title}"
            values.append({"tag": tag, "simple_value": line[name], "metadata": {"summary_description": text}})
        self._add(split, step, line.get("time", time.time()), *values)

    def _add_samples(self, epoch: int, grid: pathlib.Path) -> None:
        """Add the samples of an epoch to the events, each with its titles under the name of its file."""
        try:
            strips = [(name, strip, sample_images.png(strip, 1)) for name, strip in sample_images.strips(grid)]
            written = grid.stat().st_mtime
        except Exception as error:
            return self._warn_of_drawing(f"samples of epoch {epoch} for TensorBoard", error)
        for name, strip, content in strips:
            image = {"width": strip.width, "height": strip.height, "encoded_image_string": content}
            self._add("test", epoch, written, {"tag": f"samples/{name}", "image": image})

    def _add(self, split: str, step: int, at: float, *values: Any) -> None:
        """Add an event with values, as messages or as dicts, at a time in seconds since 1970."""
        event = tf.compat.v1.Event(wall_time=at, step=step, summary={"value": values})
        self._events[split].write(event.SerializeToString())


class NullSummaryWriter:
    """A `SummaryWriter` that writes nothing, for workers other than the chief."""

    folder: None = None
    log_bytes: int = 0

    def flush(self) -> bool:
        """Return True: no data is pending."""
        return True

    def write_scalars(self, *arguments: object, **details: object) -> None:
        """Do nothing."""

    rewind = write_event = write_page = close = write_scalars


def tuned_settings(config: Config) -> dict[str, Any]:
    """Return the settings in `TUNED`, and those that change the result and differ from their defaults."""
    known = all_settings()
    changed = {name for name in config.unusual_settings() if known[name].field.metadata["on_resume"] != FREE}
    return {name: _shown(value) for name, value in config.settings().items() if name in {*TUNED, *changed}}


def _shown(value: Any) -> Any:
    return "" if value is None else value


def _text(tag: str, text: str) -> dict[str, Any]:
    return {"tag": tag, "tensor": tf.make_tensor_proto(text), "metadata": {"plugin_data": {"plugin_name": "text"}}}


def _curves_of_page(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups, titles and lines of the curves on the page: (epoch, value) by split, with at most `POINTS`."""
    found, curves = metrics_log.curves(lines), []
    for name in sorted({name for split in SPLITS for name in found[split]}, key=metrics_log.describe):
        group, title = metrics_log.describe(name)
        if group in ("errors", "scores", "losses"):
            of_splits = {}
            for split in SPLITS:
                points = [*found[split].get(name, {}).items()]
                thinned = points[:: -math.ceil(len(points) / POINTS) or -1][::-1]  # with the last one
                of_splits[split] = [(epoch, float(f"{value:.4g}")) for epoch, value in thinned]
            curves.append({"group": group, "title": title, "lines": of_splits})
    return curves
