"""Experiment trackers beside TensorBoard: Weights & Biases and MLflow, through their own packages."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import pathlib
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from cyclegan import terminal, whole_file
from cyclegan.config.sections import RunConfig
from cyclegan.errors import MissingPackageError, UserError, first_line, printable

logger = logging.getLogger(__name__)

IDS = "trackers.json"  # ids of the tracker runs, in the folder of the run
FINISH_SECONDS = 20.0  # to send the pending data at the end of training
# A server that does not answer is given up after some seconds, not after MLflow's many minutes.
MLFLOW_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}


class WandbTracker:
    """A run of Weights & Biases in PROJECT or ENTITY/PROJECT; `run_id`: the run to resume, `None` for a new one."""

    name = "Weights & Biases"

    def __init__(self, project: str, run_id: str | None, folder: pathlib.Path, settings: Mapping[str, Any]) -> None:
        self._wandb: Any = importlib.import_module("wandb")
        entity, _, project = project.rpartition("/")
        self.run_id = run_id or secrets.token_hex(4)
        silent = self._wandb.Settings(console="off", silent=True)
        folder_and_name = {"dir": os.environ.get("WANDB_DIR") or str(folder), "name": folder.resolve().name}
        self._run = self._wandb.init(
            project=project, entity=entity or None, id=self.run_id, resume="allow", settings=silent, **folder_and_name
        )
        self._run.config.update(dict(settings), allow_val_change=True)
        for split, axis in {"train": "epoch", "test": "epoch", "steps": "step"}.items():
            self._run.define_metric(f"{split}/*", step_metric=axis)
        files = pathlib.Path(self._run.dir).parent
        self.location = f"{files}, to send with wandb sync" if self._run.offline else str(self._run.url)

    def write_scalars(self, split: str, epoch: float, step: int, values: Mapping[str, float]) -> None:
        """Write scalars, except in a row that the resumed run already has."""
        # W&B drops rows before its last one. The end of an epoch follows its last step, even if a run resumes between.
        row = 2 * step + (split != "steps")
        if row >= self._run.step:
            named = {f"{split}/{name}": value for name, value in values.items()}
            self._run.log({**named, "epoch": epoch, "step": step}, step=row)

    def write_image(self, epoch: int, path: pathlib.Path) -> None:
        """Write an image file of an epoch."""
        image = self._wandb.Image(str(path), caption=f"epoch {epoch}")
        self._run.log({"samples": image, "epoch": epoch}, step=self._run.step)

    def finish(self, is_complete: bool) -> None:
        """Send the pending data and end the run."""
        self._run.finish(exit_code=0 if is_complete else 1)


class MLflowTracker:
    """A run of MLflow at a URI, in the experiment MLFLOW_EXPERIMENT_NAME or "cyclegan"; `run_id` as in `WandbTracker`.

    Parameters of a run are final there, so a setting that a resumed run changes becomes a tag.
    """

    name = "MLflow"

    def __init__(self, uri: str, run_id: str | None, folder: pathlib.Path, settings: Mapping[str, Any]) -> None:
        for name, value in MLFLOW_PATIENCE.items():
            os.environ.setdefault(name, value)
        mlflow: Any = importlib.import_module("mlflow")
        self._entities: Any = importlib.import_module("mlflow.entities")
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        self._is_resumed = run_id is not None
        texts = {name: str(value) for name, value in settings.items()}
        if run_id:
            data = self._client.get_run(run_id).data
            changed = texts.items() - {**data.params, **data.tags}.items()
            self._client.log_batch(run_id, tags=[self._entities.RunTag(*pair) for pair in sorted(changed)])
        else:
            experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "cyclegan"
            found = self._client.get_experiment_by_name(experiment)
            experiment_id = found.experiment_id if found else self._client.create_experiment(experiment)
            run_id = str(self._client.create_run(experiment_id, run_name=folder.resolve().name).info.run_id)
            self._client.log_batch(run_id, params=[self._entities.Param(*pair) for pair in texts.items()])
        self._client.update_run(run_id, "RUNNING")
        self.run_id, self.location = run_id, f"run {run_id} at {uri}"
        self._last: dict[str, int] = {}  # last position of each metric

    def write_scalars(self, split: str, epoch: float, step: int, values: Mapping[str, float]) -> None:
        """Write scalars, except of positions that the resumed run already has."""
        position, now, metrics = step if split == "steps" else int(epoch), int(1000 * time.time()), []
        for name, value in values.items():
            key = f"{split}/" + re.sub(r"[^\w.\-/]+", "_", name).strip("_")
            if key not in self._last:
                history = self._client.get_metric_history(self.run_id, key) if self._is_resumed else []
                self._last[key] = max((metric.step for metric in history), default=-1)
            if position > self._last[key]:
                metrics.append(self._entities.Metric(key, value, now, position))
                self._last[key] = position
        self._client.log_batch(self.run_id, metrics=metrics)

    def write_image(self, epoch: int, path: pathlib.Path) -> None:
        """Write an image file, whose name has the epoch."""
        self._client.log_artifact(self.run_id, str(path), "samples")

    def finish(self, is_complete: bool) -> None:
        """End the run."""
        self._client.set_terminated(self.run_id, "FINISHED" if is_complete else "KILLED")


class BackgroundTracker:
    """A tracker whose calls run in a thread: slow calls do not delay training, and failing ones cause one warning."""

    def __init__(self, tracker: WandbTracker | MLflowTracker) -> None:
        self._tracker = tracker
        self._has_warned = False
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def write_scalars(self, split: str, epoch: float, step: int, values: Mapping[str, float]) -> None:
        """Write scalars, see `SummaryWriter.write_scalars`."""
        self._calls.put(lambda: self._tracker.write_scalars(split, epoch, step, values))

    def write_image(self, epoch: int, path: pathlib.Path) -> None:
        """Write an image file of an epoch, which must stay."""
        self._calls.put(lambda: self._tracker.write_image(epoch, path))

    def finish(self, is_complete: bool) -> None:
        """Send the pending data and end the run, within `FINISH_SECONDS`."""
        self._calls.put(lambda: self._tracker.finish(is_complete))
        self._calls.put(None)
        with terminal.phase(f"Sending the last metrics to {self._tracker.name}", if_slow=True):
            self._thread.join(FINISH_SECONDS)
        if self._thread.is_alive():
            self._warn(f"not everything was sent in {FINISH_SECONDS:.0f} s")

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
                f"{self._tracker.name}: {problem}. Training does not depend on it; the tracker may lack values, which"
                " TensorBoard and metrics.jsonl have"
            )


TRACKERS: dict[str, Callable[..., WandbTracker | MLflowTracker]] = {"wandb": WandbTracker, "mlflow": MLflowTracker}


def check_packages(config: RunConfig) -> None:
    """Raise `MissingPackageError` if the package of a tracker that a configuration asks for is not installed."""
    for flag in TRACKERS:
        spec = importlib.util.find_spec(flag)
        is_installed = spec and spec.origin  # a folder of this name, such as W&B makes, has no origin
        if getattr(config, flag) and not is_installed:
            raise MissingPackageError(f"--{flag} needs the package {flag}: {terminal.install_command(flag)}")


def start(config: RunConfig, settings: Mapping[str, Any], folder: pathlib.Path) -> list[BackgroundTracker]:
    """Begin or resume the tracker runs that a configuration asks for; the folder of the run keeps their ids.

    Raises:
        UserError: A tracker fails in a run that does not have it yet. In a run that has it, this is only a warning.
    """
    path, started = folder / IDS, []
    ids = json.loads(path.read_bytes()) if path.exists() else {}
    for flag, make in TRACKERS.items():
        if not (target := getattr(config, flag)):
            continue
        try:
            with terminal.phase(f"Starting --{flag}"):
                tracker = make(target, ids.get(flag), folder, settings)
        except Exception as error:  # of a foreign package
            problem = printable(f"--{flag} {target}: {_describe(error)}")
            if flag not in ids:
                raise UserError(f"{problem}; expected a tracker that answers, or no --{flag}") from error
            logger.warning(f"{problem}. Training continues without this tracker. If its run is gone, remove {path}")
            continue
        logger.info(f"{tracker.name}: {tracker.location}")
        started.append(BackgroundTracker(tracker))
        ids[flag] = tracker.run_id
        whole_file.write(path, json.dumps(ids) + "\n")
    return started


def _describe(error: Exception) -> str:
    """Return the first line of an error without user names and passwords of URLs."""
    return printable(re.sub(r"://[^/\s@]*@", "://", first_line(error).rstrip(".")))
