"""Experiment trackers beside TensorBoard: their start, and a thread that keeps their failures from training."""

from __future__ import annotations

import importlib.util
import json
import logging
import pathlib
import queue
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from cyclegan import terminal, whole_file
from cyclegan.config.sections import RunConfig
from cyclegan.errors import MissingPackageError, UserError, first_line, printable
from cyclegan.run.tracker_runs import MLflowTracker, WandbTracker

logger = logging.getLogger(__name__)

IDS = "trackers.json"  # ids of the tracker runs, in the folder of the run
QUEUED = 1000  # calls that wait for a slow tracker; further ones are lost
FINISH_SECONDS = 20.0  # to send what waits at the end of training


class Tracker(Protocol):
    """A run of a tracker. Its methods may raise any error and take any time.

    Attributes:
        NAME: Name of the tracker.
        run_id: Id of the run, to resume it.
        location: URL, or file and store, of the run, for the user.
    """

    NAME: ClassVar[str]
    run_id: str
    location: str

    def write_scalars(self, split: str, epoch: int, step: int, values: Mapping[str, float]) -> None:
        """Write scalars, see `SummaryWriter.write_scalars`. Positions that the run already has keep their values."""

    def write_image(self, epoch: int, path: pathlib.Path) -> None:
        """Write an image file of an epoch."""

    def finish(self, is_complete: bool) -> None:
        """Send what waits and end the run; `is_complete`: all epochs are done."""


class BackgroundTracker:
    """A tracker whose calls run in a thread, so that a slow or failing tracker neither delays nor ends training.

    Calls that fail are lost; the first failure is logged as a warning.

    Args:
        tracker: The tracker.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._has_warned = False
        self._calls: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def write_scalars(self, split: str, epoch: int, step: int, values: Mapping[str, float]) -> None:
        """Write scalars, see `SummaryWriter.write_scalars`."""
        copy = dict(values)
        self._submit(lambda: self._tracker.write_scalars(split, epoch, step, copy))

    def write_image(self, epoch: int, path: pathlib.Path) -> None:
        """Write an image file of an epoch, which must stay."""
        self._submit(lambda: self._tracker.write_image(epoch, path))

    def finish(self, is_complete: bool) -> None:
        """Send what waits and end the run, within `FINISH_SECONDS`."""
        self._calls.put(lambda: self._tracker.finish(is_complete))
        self._calls.put(None)
        self._thread.join(1)
        if self._thread.is_alive():
            with terminal.phase(f"Sending the last metrics to {self._tracker.NAME}"):
                self._thread.join(FINISH_SECONDS)
        if self._thread.is_alive():
            self._warn(f"not everything was sent in {FINISH_SECONDS:.0f} s")

    def _submit(self, call: Callable[[], None]) -> None:
        if self._calls.qsize() < QUEUED:
            self._calls.put(call)
        else:
            self._warn("it does not keep up")

    def _work(self) -> None:
        for call in iter(self._calls.get, None):
            try:
                call()
            except Exception as error:  # of a foreign package: whatever it is, training continues
                self._warn(_describe(error))

    def _warn(self, problem: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s: %s. Training does not depend on it; the tracker may lack values, which TensorBoard and metrics.jsonl have",
                self._tracker.NAME,
                problem,
            )


# By flag: the class, and what to install.
TRACKERS: dict[str, tuple[Callable[..., Tracker], str]] = {
    "wandb": (WandbTracker, "wandb"),
    "mlflow": (MLflowTracker, "mlflow, or mlflow-skinny for a server"),
}


def check_packages(config: RunConfig) -> None:
    """Raise `MissingPackageError` if the package of a tracker that a configuration asks for is not installed."""
    for flag, (_, install) in TRACKERS.items():
        if getattr(config, flag):
            spec = importlib.util.find_spec(flag)
            if spec is None or spec.origin is None:  # a folder of this name, such as W&B makes, is not the package
                raise MissingPackageError(f"--{flag} needs the package {flag}: pip install {install}")


def start(config: RunConfig, settings: Mapping[str, Any], folder: pathlib.Path) -> list[BackgroundTracker]:
    """Begin or resume the tracker runs that a configuration asks for.

    Args:
        config: The trackers of the run.
        settings: All settings of the run, for the trackers to show.
        folder: Folder of the run, which keeps the ids of the tracker runs.

    Raises:
        UserError: A tracker fails in a run that does not have it yet. In a run that has it, this is logged as a warning.
    """
    started: list[BackgroundTracker] = []
    for flag, (make, _) in TRACKERS.items():
        if not (target := getattr(config, flag)):
            continue
        ids = _read_ids(folder / IDS)
        try:
            with terminal.phase(f"Starting --{flag}"):
                tracker = make(target, ids.get(flag), folder, settings)
        except Exception as error:  # of a foreign package
            problem = f"--{flag} {target}: {_describe(error)}"
            if flag not in ids:
                raise UserError(f"{problem}; expected a tracker that answers, or no --{flag}") from error
            logger.warning("%s. Training continues without this tracker", printable(problem))
            continue
        logger.info(f"{tracker.NAME}: {tracker.location}")
        if ids.get(flag, tracker.run_id) != tracker.run_id:
            logger.warning("%s: the run so far is not at %s, so a new run begins there", tracker.NAME, target)
        started.append(BackgroundTracker(tracker))
        try:
            whole_file.write(folder / IDS, json.dumps({**ids, flag: tracker.run_id}) + "\n")
        except OSError as error:
            logger.warning("%s could not be written (%s); a resumed run begins a new tracker run", folder / IDS, error)
    return started


def _read_ids(path: pathlib.Path) -> dict[str, str]:
    try:
        ids = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(ids, dict) or not all(isinstance(each, str) for each in ids.values()):
            raise TypeError("it holds something else")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path} can't be read ({error}); expected ids by tracker: restore it, or remove it to begin new tracker runs"
        ) from error
    return ids


def _describe(error: Exception) -> str:
    """Return the first line of an error without user names and passwords of URLs."""
    return printable(re.sub(r"://[^/\s@]*@", "://", first_line(error).rstrip(".")))
