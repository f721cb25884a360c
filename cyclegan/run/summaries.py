"""Metrics, events and sample images of a run, for TensorBoard, `metrics.jsonl` and the HTML report."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from cyclegan import whole_file
from cyclegan.run import sample_images
from cyclegan.run.append_file import AppendFile
from cyclegan.run.event_log import EventLog
from cyclegan.run.image_grid import grid_png
from cyclegan.run.sample_images import Cycle
from cyclegan.run.trackers import BackgroundTracker

logger = logging.getLogger(__name__)

TITLES = {"X_cycle": ("X", "G(X)", "F(G(X))"), "Y_cycle": ("Y", "F(Y)", "G(F(Y))")}
SUBFOLDERS = {"train": "", "test": "test", "steps": "steps"}  # TensorBoard's runs, in the folder of the run


class SummaryWriter:
    """Writer of the metrics, events and sample images of a run.

    TensorBoard shows three runs: training events lie in the folder of the run, validation events under `test/`, and events of
    single steps under `steps/`, numbered by the global step instead of the epoch. `metrics.jsonl` has the same metrics as lines
    of JSON. `samples/` and `index.html` have the sample images, see `sample_images`. While the disk is full, everything but the
    sample images stays in memory until it can be written.

    Args:
        folder: Folder of the run.
        trackers: Trackers that also get the metrics and the grids of sample images.

    Attributes:
        folder: Folder of the run.
    """

    def __init__(self, folder: str | os.PathLike[str], trackers: Sequence[BackgroundTracker] = ()) -> None:
        self.folder = pathlib.Path(folder)
        self._trackers = trackers
        self._lines = AppendFile(self.folder / "metrics.jsonl")
        self._events = {split: EventLog(self.folder / name, self.folder) for split, name in SUBFOLDERS.items()}

    @property
    def log_bytes(self) -> int:
        """Length of `metrics.jsonl` in bytes, which `rewind` needs to return to the present position."""
        return self._lines.size

    def rewind(self, log_bytes: int, epoch: int, step: int) -> None:
        """Discard everything after a position in training; a resumed run writes it again.

        Args:
            log_bytes: Value of `log_bytes` at the position.
            epoch: Epochs done.
            step: Global steps done.
        """
        self._lines.truncate(log_bytes)
        for split, events in self._events.items():
            events.restart((step if split == "steps" else epoch) + 1)
        with _warn_of_disk_errors():
            if sample_images.remove_after(self.folder, epoch):
                sample_images.write_report(self.folder)

    def flush(self) -> bool:
        """Try again to write the data that waits; return whether everything is written."""
        done = [self._lines.flush(), *(events.flush() for events in self._events.values())]
        return all(done)

    def write_scalars(self, split: str, epoch: int, step: int, values: Mapping[str, float]) -> None:
        """Write finite scalars by name.

        Args:
            split: "train" or "test" for the metrics of an epoch, "steps" for metrics of some training steps.
            epoch: The epoch, from 1.
            step: Global steps done.
            values: The scalars.

        Raises:
            ValueError: A scalar is not finite.
        """
        self._write_line(split=split, epoch=epoch, step=step, **values)
        position, prefix = (step, "steps/") if split == "steps" else (epoch, "")
        self._events[split].add_scalars(position, {prefix + name: value for name, value in values.items()})
        for tracker in self._trackers:
            tracker.write_scalars(split, epoch, step, values)

    def write_event(self, split: str, epoch: int, step: int, event: str, **details: object) -> None:
        """Write an event to `metrics.jsonl` only.

        Args:
            split: "train" or "test".
            epoch: The epoch, from 1.
            step: Global steps done.
            event: Name of the event.
            **details: Texts, numbers, or lists of them.
        """
        self._write_line(split=split, epoch=epoch, step=step, event=event, **details)

    def write_warning(self, epoch: int, step: int, name: str, text: str) -> None:
        """Write a warning as an event of the test pass, and for TensorBoard.

        Args:
            epoch: The epoch, from 1.
            step: Global steps done.
            name: Short name of the warning.
            text: Text of the warning.
        """
        self.write_event("test", epoch, step, name)
        self._events["test"].add_text(epoch, f"warnings/{name}", text)

    def write_cycles(self, epoch: int, forward: Cycle, backward: Cycle, names: Sequence[Sequence[str]]) -> pathlib.Path:
        """Write X -> G(X) -> F(G(X)) and Y -> F(Y) -> G(F(Y)) for TensorBoard, as a grid, as image files and in the report.

        Args:
            epoch: Epochs done.
            forward: Images of X, their translations, and the translations back, if there are any; or nothing.
            backward: The same for images of Y.
            names: Names of the images of X, and names of the images of Y.

        Returns:
            Path of the grid, a PNG.
        """
        for (name, titles), cycle in zip(TITLES.items(), (forward, backward)):
            for i, row in enumerate(zip(*cycle), 1):
                self._events["test"].add_image(epoch, f"{name}/sample_{i}", *grid_png([row], titles[: len(cycle)]))
        path = self.folder / "samples" / f"epoch_{epoch:03d}.png"
        columns = TITLES["X_cycle"][: len(forward)] + TITLES["Y_cycle"][: len(backward)]
        with _warn_of_disk_errors():
            path.parent.mkdir(exist_ok=True)
            whole_file.write(path, grid_png([*zip(*forward, *backward)], columns)[0])
            for tracker in self._trackers:
                tracker.write_image(epoch, path)
            sample_images.write(self.folder, epoch, forward, backward, names)
            sample_images.write_report(self.folder)
        gc.collect()  # matplotlib's figures are reference cycles; ten of them uncollected cost 13 MB
        return path

    def close(self, is_complete: bool) -> None:
        """End the runs of the trackers.

        Args:
            is_complete: Whether all epochs are done.
        """
        for tracker in self._trackers:
            tracker.finish(is_complete)

    def _write_line(self, **values: object) -> None:
        self._lines.append((json.dumps(values, allow_nan=False) + "\n").encode())


class NullSummaryWriter:
    """A `SummaryWriter` that writes nothing, for workers other than the chief."""

    folder: None = None
    log_bytes: int = 0

    def rewind(self, log_bytes: int, epoch: int, step: int) -> None:
        """Do nothing."""

    def flush(self) -> bool:
        """Return True: nothing waits to be written."""
        return True

    def write_scalars(self, split: str, epoch: int, step: int, values: Mapping[str, float]) -> None:
        """Do nothing."""

    def write_event(self, split: str, epoch: int, step: int, event: str, **details: object) -> None:
        """Do nothing."""

    def write_warning(self, epoch: int, step: int, name: str, text: str) -> None:
        """Do nothing."""

    def close(self, is_complete: bool) -> None:
        """Do nothing."""


@contextlib.contextmanager
def _warn_of_disk_errors() -> Iterator[None]:
    """Log a warning instead of raising `OSError`, because training continues without sample images."""
    try:
        yield
    except OSError as error:
        logger.warning(
            "sample images could not be written (%s); training continues without them. Free some space", error
        )
