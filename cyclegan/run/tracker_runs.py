"""Runs of the experiment trackers Weights & Biases and MLflow, through their own packages."""

from __future__ import annotations

import importlib
import os
import pathlib
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any, ClassVar

# A server that does not answer is given up after some seconds, not after MLflow's many minutes.
MLFLOW_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
MLFLOW_BATCH = 100  # parameters in a request


class WandbTracker:
    """A run of Weights & Biases; its local files lie in WANDB_DIR or in the folder of the run.

    Args:
        project: PROJECT or ENTITY/PROJECT.
        run_id: Id of the run to resume, if it exists in the project; `None` for a new run.
        folder: Folder of the run.
        settings: The configuration.
    """

    NAME: ClassVar[str] = "Weights & Biases"

    def __init__(self, project: str, run_id: str | None, folder: pathlib.Path, settings: Mapping[str, Any]) -> None:
        self._wandb: Any = importlib.import_module("wandb")
        entity, _, project = project.rpartition("/")
        self.run_id = run_id or secrets.token_hex(4)
        self._run = self._wandb.init(
            project=project,
            entity=entity or None,
            id=self.run_id,
            resume="allow",
            name=folder.resolve().name,
            dir=os.environ.get("WANDB_DIR") or str(folder),
            settings=self._wandb.Settings(console="off", silent=True),
        )
        self._run.config.update(dict(settings), allow_val_change=True)
        for names, axis in {"train/*": "epoch", "test/*": "epoch", "steps/*": "step"}.items():
            self._run.define_metric(names, step_metric=axis)
        files = pathlib.Path(self._run.dir).parent
        self.location = (
            f"{files}, to send with wandb sync (parts of a resumed run: see wandb beta sync --help)"
            if self._run.offline
            else str(self._run.url)
        )

    def write_scalars(self, split: str, epoch: int, step: int, values: Mapping[str, float]) -> None:
        """Write scalars, see `Tracker`."""
        # W&B drops rows before its last one. The end of an epoch follows the last step, also in a run that resumes between them.
        row = 2 * step + (split != "steps")
        if row >= self._run.step:
            named = {f"{split}/{name}": value for name, value in values.items()}
            self._run.log({**named, "epoch": epoch, "step": step}, step=row)

    def write_image(self, epoch: int, path: pathlib.Path) -> None:
        """Write an image file of an epoch."""
        image = self._wandb.Image(str(path), caption=f"epoch {epoch}")
        self._run.log({"samples": image, "epoch": epoch}, step=self._run.step)

    def finish(self, is_complete: bool) -> None:
        """Send what waits and end the run."""
        self._run.finish(exit_code=0 if is_complete else 1)


class MLflowTracker:
    """A run of MLflow, in the experiment MLFLOW_EXPERIMENT_NAME or "cyclegan".

    Args:
        uri: URI of the tracking server or store.
        run_id: Id of the run to resume, if it exists there; `None` for a new run.
        folder: Folder of the run.
        settings: The configuration. Parameters of a run are final, so a setting that a resumed run changes becomes a tag.
    """

    NAME: ClassVar[str] = "MLflow"

    def __init__(self, uri: str, run_id: str | None, folder: pathlib.Path, settings: Mapping[str, Any]) -> None:
        for name, value in MLFLOW_PATIENCE.items():
            os.environ.setdefault(name, value)
        mlflow: Any = importlib.import_module("mlflow")
        self._entities: Any = importlib.import_module("mlflow.entities")
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        run = self._find(run_id, mlflow.MlflowException) if run_id else None
        self._is_resumed = run is not None
        if run is None:
            run = self._client.create_run(self._experiment(), run_name=folder.resolve().name)
        self.run_id = run.info.run_id
        self.location = f"run {self.run_id} at {uri}"
        self._write_settings({name: str(value) for name, value in settings.items()}, run.data)
        self._client.update_run(self.run_id, "RUNNING")
        self._last: dict[str, int] = {}  # positions of the metrics

    def _find(self, run_id: str, error_type: type[Exception]) -> Any:
        try:
            run = self._client.get_run(run_id)
        except error_type as error:
            if getattr(error, "error_code", None) != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return run if run.info.lifecycle_stage == "active" else None

    def _experiment(self) -> Any:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "cyclegan"
        found = self._client.get_experiment_by_name(name)
        return found.experiment_id if found else self._client.create_experiment(name)

    def _write_settings(self, settings: Mapping[str, str], stored: Any) -> None:
        known, tags = stored.params, stored.tags
        new = [self._entities.Param(name, value) for name, value in settings.items() if name not in known]
        for i in range(0, len(new), MLFLOW_BATCH):
            self._client.log_batch(self.run_id, params=new[i : i + MLFLOW_BATCH])
        for name, value in settings.items():
            if known.get(name, value) != value or tags.get(name, value) != value:
                self._client.set_tag(self.run_id, name, value)

    def write_scalars(self, split: str, epoch: int, step: int, values: Mapping[str, float]) -> None:
        """Write scalars, see `Tracker`."""
        position, now = step if split == "steps" else epoch, int(1000 * time.time())
        keys = {f"{split}/" + re.sub(r"[^\w.\-/]+", "_", name).strip("_"): name for name in values}
        new = {key: values[name] for key, name in keys.items() if position > self._last_position(key)}
        metrics = [self._entities.Metric(key, value, now, position) for key, value in new.items()]
        if metrics:
            self._client.log_batch(self.run_id, metrics=metrics)
            self._last.update(dict.fromkeys(new, position))

    def _last_position(self, key: str) -> int:
        if key not in self._last:
            history = self._client.get_metric_history(self.run_id, key) if self._is_resumed else []
            self._last[key] = max((metric.step for metric in history), default=-1)
        return self._last[key]

    def write_image(self, epoch: int, path: pathlib.Path) -> None:
        """Write an image file, whose name has the epoch."""
        self._client.log_artifact(self.run_id, str(path), "samples")

    def finish(self, is_complete: bool) -> None:
        """End the run."""
        self._client.set_terminated(self.run_id, "FINISHED" if is_complete else "KILLED")
