import sys
import types

import pytest

from cyclegan.run import tracker_runs


class FakeWandbRun:
    """Keep rows as W&B does: rows before the next one are lost."""

    def __init__(self, step, **options):
        self.step, self.options, self.rows, self.axes = step, options, [], {}
        self.config, self.dir, self.offline, self.url = self, "d/wandb/run/files", False, "https://host/run"

    def update(self, settings, allow_val_change):
        assert allow_val_change

    def define_metric(self, names, step_metric):
        self.axes[names] = step_metric

    def log(self, values, step):
        assert step >= self.step
        self.step = step
        self.rows.append((step, values))


def test_rows_of_wandb_never_go_back(tmp_path, monkeypatch):
    fake = types.SimpleNamespace(
        Settings=dict, Image=lambda path, caption: caption, init=lambda **options: FakeWandbRun(8, **options)
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)
    tracker = tracker_runs.WandbTracker("me/p", "abc", tmp_path / "horses", {})
    run = tracker._run
    options = {name: run.options[name] for name in ("entity", "project", "id", "resume", "name")}
    assert options == {"entity": "me", "project": "p", "id": "abc", "resume": "allow", "name": "horses"}
    assert tracker.location == "https://host/run" and run.axes["steps/*"] == "step"
    tracker.write_scalars("steps", 1, 3, {"a": 1.0})  # the run has it: its last row was 7
    tracker.write_scalars("train", 1, 3, {"a": 1.0})
    tracker.write_scalars("steps", 2, 4, {"a": 2.0})
    tracker.write_scalars("test", 2, 4, {"a": 3.0})
    tracker.write_image(2, tmp_path / "a.png")
    assert run.rows == [
        (8, {"steps/a": 2.0, "epoch": 2, "step": 4}),
        (9, {"test/a": 3.0, "epoch": 2, "step": 4}),
        (9, {"samples": "epoch 2", "epoch": 2}),
    ]


class FakeMlflow:
    """Keep a run as MLflow does; stand in for its package and its client."""

    class MlflowException(Exception):
        error_code = "RESOURCE_DOES_NOT_EXIST"

    def __init__(self):
        self.params, self.tags, self.metrics, self.requests, self.status = {}, {}, [], [], None
        self.names = []

    def MlflowClient(self, tracking_uri):
        assert tracking_uri == "http://host"
        return self

    def get_run(self, run_id):
        if run_id != "abc" or not self.names:
            raise self.MlflowException
        data = types.SimpleNamespace(params=dict(self.params), tags=dict(self.tags))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id="abc", lifecycle_stage="active"), data=data)

    def get_experiment_by_name(self, name):
        return types.SimpleNamespace(experiment_id=f"id of {name}")

    def create_run(self, experiment, run_name):
        self.names.append((experiment, run_name))
        return self.get_run("abc")

    def update_run(self, run_id, status):
        self.status = status

    set_terminated = update_run

    def log_batch(self, run_id, params=(), metrics=()):
        assert not set(dict(params)) & set(self.params)  # parameters are final
        self.requests.append(len(params) or len(metrics))
        self.params.update(params)
        self.metrics += [(key, value, step) for key, value, _, step in metrics]

    def set_tag(self, run_id, name, value):
        self.tags[name] = value

    def get_metric_history(self, run_id, key):
        return [types.SimpleNamespace(step=step) for name, _, step in self.metrics if name == key]


@pytest.fixture
def mlflow(monkeypatch):
    fake = FakeMlflow()
    for name in tracker_runs.MLFLOW_PATIENCE:
        monkeypatch.setenv(name, "1")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    entities = types.SimpleNamespace(Param=lambda *pair: pair, Metric=lambda *values: values)
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    return fake


def test_settings_that_change_become_tags_in_mlflow(tmp_path, mlflow):
    settings = {"epochs": 7, **{f"setting{i}": i for i in range(150)}}
    tracker = tracker_runs.MLflowTracker("http://host", None, tmp_path / "horses", settings)
    assert mlflow.names == [("id of cyclegan", "horses")] and mlflow.status == "RUNNING"
    assert (tracker.run_id, tracker.location) == ("abc", "run abc at http://host")
    assert mlflow.requests == [100, 51] and mlflow.params["epochs"] == "7"
    assert not mlflow.tags
    tracker_runs.MLflowTracker("http://host", "abc", tmp_path / "horses", {**settings, "epochs": 9, "new": 1})
    assert len(mlflow.names) == 1 and mlflow.params["epochs"] == "7" and mlflow.params["new"] == "1"
    assert mlflow.tags == {"epochs": "9"}


def test_a_resumed_run_repeats_no_position_in_mlflow(tmp_path, mlflow):
    tracker = tracker_runs.MLflowTracker("http://host", "gone", tmp_path, {})
    assert len(mlflow.names) == 1  # a new run, because the old one is not there
    tracker.write_scalars("steps", 1, 4, {"error/MAE(X, F(X))": 1.0})
    tracker.write_scalars("steps", 1, 5, {"error/MAE(X, F(X))": 2.0})
    resumed = tracker_runs.MLflowTracker("http://host", "abc", tmp_path, {})
    for step in (5, 6):
        resumed.write_scalars("steps", 1, step, {"error/MAE(X, F(X))": 3.0})
    resumed.write_scalars("test", 2, 6, {"a": 4.0})
    key = "steps/error/MAE_X_F_X"  # MLflow allows few characters
    assert mlflow.metrics == [(key, 1.0, 4), (key, 2.0, 5), (key, 3.0, 6), ("test/a", 4.0, 2)]
    resumed.finish(False)
    assert mlflow.status == "KILLED"
