"""Log of a run: metrics.jsonl, TensorBoard's events, sample images and trackers."""

from __future__ import annotations

import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from PIL import Image

from cyclegan.errors import first_line
from cyclegan.run import metrics_log, sample_images
from cyclegan.run.run_directory import EVENTS
from cyclegan.run.sample_images import Cycle
from cyclegan.run.trackers import BackgroundTracker

logger = logging.getLogger(__name__)

SUBFOLDERS = {"train": "", "test": "test", "steps": "steps"}  # TensorBoard's runs, in the folder of the run


class SummaryWriter:
    """Writer of the metrics, events and sample images of a run.

    `metrics.jsonl` is the record. TensorBoard's events repeat it in three runs: training events in the run's folder,
    validation events under `test/`, and events of single steps, numbered by the global step, under `steps/`. The
    event files are written anew from `metrics.jsonl` and `samples/` after `rewind` and after a failed write, because
    TensorBoard would show a rewritten step twice.

    If something cannot be written, this is logged as a warning, and training continues. Metrics wait in memory until
    they can be written; sample images are lost.

    Args:
        folder: Folder of the run.
        trackers: Trackers that also get the metrics and the grids of sample images.
        descriptions: Texts that TensorBoard shows beside the curves of losses, by the last part of a loss's name.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        trackers: Sequence[BackgroundTracker] = (),
        descriptions: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        self._trackers, self._descriptions = trackers, descriptions or {}
        self._log = metrics_log.MetricsLog(self.folder / "metrics.jsonl")
        self._events: dict[str, tf.summary.SummaryWriter] = {}  # by split; empty if the files must be written anew
        self._grids: list[tuple[int, pathlib.Path]] = []  # grids that the events do not hold yet
        self._is_failing = False

    @property
    def log_bytes(self) -> int:
        """Length of `metrics.jsonl` in bytes, which `rewind` needs to return to the present position."""
        return self._log.size

    def rewind(self, log_bytes: int, epoch: int) -> None:
        """Return to a position in training, where `log_bytes` had this value: discard everything after it."""
        self._log.cut(log_bytes)
        self._events = {}
        try:
            sample_images.remove_after(self.folder, epoch)
        except OSError as error:
            logger.warning("sample images after epoch %d could not be removed (%s)", epoch, error)
        self.flush()

    def flush(self) -> bool:
        """Write the pending data; return whether all data is written. Warn at the first of consecutive failures."""
        try:
            lines, grids = self._log.write(), self._grids
            self._grids = []
            if not self._events:
                self._make_events()
                lines, grids = metrics_log.read(self._log.path), sample_images.grids(self.folder)
            for line in lines:
                self._add_line(line)
            for epoch, path in grids:
                self._add_grid(epoch, path)
            for events in self._events.values():
                events.flush()
        except (OSError, tf.errors.OpError) as error:
            if not self._is_failing:
                logger.warning(
                    "%s could not be written (%s). The data stays in memory until it can be written: free some space",
                    self._log.path if isinstance(error, OSError) else "TensorBoard's events",
                    first_line(error),
                )
            self._is_failing, self._events = True, {}
            return False
        if self._is_failing:
            logger.warning("%s can be written again; nothing is missing", self._log.path)
        self._is_failing = False
        return True

    def write_scalars(self, split: str, epoch: int, step: int, values: Mapping[str, float]) -> None:
        """Write finite scalars by name.

        Args:
            split: "train" or "test" for the metrics of an epoch, "steps" for metrics of some training steps.
            epoch: The epoch, from 1.
            step: Global steps done.
            values: The scalars.
        """
        self._log.append(split=split, epoch=epoch, step=step, **values)
        self.flush()
        for tracker in self._trackers:
            tracker.write_scalars(split, epoch, step, values)

    def write_event(self, split: str, epoch: int, step: int, event: str, **details: object) -> None:
        """Write an event with its name to `metrics.jsonl`, and its text, if `details` have one, for TensorBoard."""
        self._log.append(split=split, epoch=epoch, step=step, event=event, **details)
        self.flush()

    def write_warning(self, epoch: int, step: int, name: str, text: str) -> None:
        """Write a warning, with a short name, as an event of the test pass; see `write_event`."""
        self.write_event("test", epoch, step, name, text=text)

    def write_cycles(self, epoch: int, forward: Cycle, backward: Cycle, names: Sequence[Sequence[str]]) -> None:
        """Write sample images, see `sample_images.write`; TensorBoard gets the grid."""
        try:
            grid = sample_images.write(self.folder, epoch, forward, backward, names)
        except OSError as error:
            logger.warning(
                "sample images could not be written (%s); training continues without them. Free some space", error
            )
            return
        for tracker in self._trackers:
            tracker.write_image(epoch, grid)
        self._grids.append((epoch, grid))
        self.flush()

    def close(self, is_complete: bool) -> None:
        """End the runs of the trackers; `is_complete`: all epochs are done."""
        for tracker in self._trackers:
            tracker.finish(is_complete)

    def _make_events(self) -> None:
        """Replace the event files by empty ones."""
        for split, name in SUBFOLDERS.items():
            for path in (self.folder / name).glob(EVENTS):
                path.unlink()
            self._events[split] = tf.summary.create_file_writer(str(self.folder / name))

    def _add_line(self, line: Mapping[str, Any]) -> None:
        """Add a line of `metrics.jsonl` to the events."""
        split, step, prefix = line["split"], line["epoch"], ""
        if split == "steps":
            step, prefix = line["step"], "steps/"
        if "event" not in line:
            values = []
            for name in line.keys() - {"split", "epoch", "step"}:
                text = self._descriptions.get(name.split("/")[-1], "") if name.startswith("loss_") else ""
                metadata = tf.compat.v1.SummaryMetadata(summary_description=text)
                values.append({"tag": prefix + name, "simple_value": line[name], "metadata": metadata})
            self._add(split, step, *values)
        elif "text" in line:
            with self._events[split].as_default(step):
                tf.summary.text(f"warnings/{line['event']}", line["text"])

    def _add_grid(self, epoch: int, path: pathlib.Path) -> None:
        """Add the PNG of a grid to the events, as it is."""
        with Image.open(path) as grid:
            image = tf.compat.v1.Summary.Image(
                width=grid.width, height=grid.height, encoded_image_string=path.read_bytes()
            )
        self._add("test", epoch, {"tag": "samples", "image": image})

    def _add(self, split: str, step: int, *values: Mapping[str, Any]) -> None:
        # `tf.summary.scalar` takes seven times as long for a line, and `tf.summary.image` encodes images again.
        summary = tf.compat.v1.Summary(value=[tf.compat.v1.Summary.Value(**value) for value in values])
        with self._events[split].as_default():
            tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step)


class NullSummaryWriter:
    """A `SummaryWriter` that writes nothing, for workers other than the chief."""

    folder: None = None
    log_bytes: int = 0

    def flush(self) -> bool:
        """Return True: no data is pending."""
        return True

    def write_scalars(self, *arguments: object, **details: object) -> None:
        """Do nothing."""

    rewind = write_event = write_warning = close = write_scalars
