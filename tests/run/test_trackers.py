"""Trackers: what reaches them, how they resume, and that their failures stay away from training.

Fakes replace the two packages in the quick tests; slow tests use the packages themselves, without a network.
"""

import importlib.util
import json
import logging
import pathlib
import subprocess
import sys
import threading
import time
import types

import pytest

from cyclegan.config import Config
from cyclegan.errors import MissingPackageError, UserError
from cyclegan.run import trackers
from cyclegan.run.trackers import BackgroundTracker

ROOT = pathlib.Path(__file__).resolve().parents[2]
OFFLINE = {"WANDB_MODE": "offline", "MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}


class Fake:
    """A tracker that records its calls; it fails if its target is "down"."""

    name = "Fake"
    location = "here"

    def __init__(self, target, run_id, folder, settings):
        self.calls = [(target, run_id, settings["epochs"])]
        self.run_id = run_id or "first"
        if target == "down":
            raise ConnectionError("http://me:word@host: no\nroute.")

    def write_scalars(self, split, epoch, step, values):
        if "bad" in values:
            raise RuntimeError("disk full")
        self.calls.append((split, epoch, step, values))

    def write_image(self, epoch, path):
        self.calls.append((epoch, path))

    def finish(self, is_complete):
        self.calls.append(is_complete)


@pytest.fixture
def fakes(monkeypatch):
    """Replace the trackers by fakes; return the fakes that were made."""
    made = []
    make = lambda *args: made.append(Fake(*args)) or made[-1]  # noqa: E731
    monkeypatch.setattr(trackers, "TRACKERS", dict.fromkeys(("wandb", "mlflow"), make))
    return made


def start(folder, **settings):
    config = Config.from_settings(epochs=7, **settings)
    return trackers.start(config.run, config.settings(), folder)


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_resumed_run_continues_at_its_trackers(tmp_path, fakes, caplog):
    assert start(tmp_path) == [] and not fakes and not list(tmp_path.iterdir())
    start(tmp_path, wandb="p")
    start(tmp_path, wandb="p", mlflow="file:x")
    assert [fake.calls for fake in fakes] == [[("p", None, 7)], [("p", "first", 7)], [("file:x", None, 7)]]
    assert json.loads((tmp_path / "trackers.json").read_text()) == {"wandb": "first", "mlflow": "first"}
    assert not warnings(caplog)


def test_a_tracker_must_answer_at_first_but_not_when_a_run_resumes(tmp_path, fakes, caplog):
    expected = "--mlflow down: http://host: no; expected a tracker that answers, or no --mlflow"
    with pytest.raises(UserError, match=f"^{expected}$"):
        start(tmp_path, mlflow="down")
    (tmp_path / "trackers.json").write_text('{"mlflow": "a"}')
    assert start(tmp_path, mlflow="down") == []
    (text,) = warnings(caplog)
    assert text.startswith("--mlflow down: http://host: no. Training continues without this tracker. ")
    assert (tmp_path / "trackers.json").read_text() == '{"mlflow": "a"}'


def test_failing_calls_are_lost_with_one_warning(tmp_path, fakes, caplog):
    (tracker,) = start(tmp_path, wandb="p")
    tracker.write_scalars("train", 1, 2, {"a": 0.5})
    for _ in range(3):
        tracker.write_scalars("train", 1, 2, {"bad": 0.5})
    tracker.write_image(1, tmp_path / "a.png")
    tracker.finish(True)
    assert fakes[0].calls[1:] == [("train", 1, 2, {"a": 0.5}), (1, tmp_path / "a.png"), True]
    (text,) = warnings(caplog)
    assert text.startswith("Fake: disk full. Training does not depend on it; the tracker may lack values")


def test_a_tracker_that_hangs_delays_nothing(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(trackers, "FINISH_SECONDS", 0.01)
    hang = threading.Event()
    fake = Fake("p", None, tmp_path, {"epochs": 1})
    fake.write_scalars = lambda *args: hang.wait()
    tracker, began = BackgroundTracker(fake), time.monotonic()
    for step in range(20):
        tracker.write_scalars("steps", 1, step, {})
    assert time.monotonic() - began < 0.5
    tracker.finish(True)
    hang.set()
    tracker._thread.join(10)
    assert fake.calls[-1] is True  # the end is never lost
    assert [text.partition(".")[0] for text in warnings(caplog)] == ["Fake: not everything was sent in 0 s"]


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in ("wandb", "mlflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "wandb").mkdir()  # files of W&B, not the package
    importlib.invalidate_caches()
    trackers.check_packages(Config.from_settings().run)
    for name in ("wandb", "mlflow"):
        with pytest.raises(MissingPackageError, match=f"^--{name} needs.*: pip install -c requirements.txt {name}$"):
            trackers.check_packages(Config.from_settings(**{name: "p"}).run)
    (tmp_path / "wandb" / "__init__.py").touch()
    importlib.invalidate_caches()
    trackers.check_packages(Config.from_settings(wandb="p").run)


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
    tracker = trackers.WandbTracker("me/p", "abc", tmp_path / "horses", {})
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


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """Return a client of MLflow and its URI, without a network."""
    module = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)  # where MLflow puts the files of a database
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    for name in trackers.MLFLOW_PATIENCE:
        monkeypatch.setenv(name, "1")
    uri = f"sqlite:///{tmp_path}/mlflow.db" if importlib.util.find_spec("sqlalchemy") else f"file:{tmp_path}/store"
    return module.MlflowClient(tracking_uri=uri), uri


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of MLflow's stores
def test_a_resumed_run_continues_in_mlflow(tmp_path, mlflow):
    client, uri = mlflow
    tracker = trackers.MLflowTracker(uri, None, tmp_path / "horses", {"epochs": 7, "lr": 0.5})
    for step in (4, 5):
        tracker.write_scalars("steps", 1, step, {"error/MAE(X, F(X))": 1.0})
    for epochs in (9, 7):
        settings = {"epochs": epochs, "lr": 0.5, "new": 1}
        resumed = trackers.MLflowTracker(uri, tracker.run_id, tmp_path / "horses", settings)
    for step in (5, 6):
        resumed.write_scalars("steps", 1, step, {"error/MAE(X, F(X))": 3.0})
    resumed.finish(False)
    run = client.get_run(tracker.run_id)
    assert (run.info.run_name, run.info.status) == ("horses", "KILLED")
    assert run.data.params == {"epochs": "7", "lr": "0.5"}  # final there, so settings that change become tags
    assert (run.data.tags["epochs"], run.data.tags["new"]) == ("7", "1")
    history = client.get_metric_history(tracker.run_id, "steps/error/MAE_X_F_X")  # MLflow allows few characters
    assert [(metric.step, metric.value) for metric in history] == [(4, 1.0), (5, 1.0), (6, 3.0)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of MLflow's stores
def test_a_resumed_training_continues_at_both_trackers(tmp_path, mlflow):
    """Train an epoch, then resume to two, without a network: each tracker has one run with the metrics of both."""
    client, uri = mlflow
    pytest.importorskip("wandb")
    tiny = "--dataset stripes --image_size 32 --filters 2 --residual_blocks 0 --max_dataset_size 4 --no_peak --wandb p"
    flags = [*tiny.split(), "--output_dir", tmp_path / "run", "--mlflow", uri]
    for epochs in (1, 2):
        command = [sys.executable, ROOT / "train.py", *flags, "--epochs", epochs]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        assert "may lack values" not in done.stderr, done.stderr
    ids = json.loads((tmp_path / "run" / "trackers.json").read_text())
    (run,) = client.search_runs([each.experiment_id for each in client.search_experiments()])
    assert (run.info.run_id, run.info.status) == (ids["mlflow"], "FINISHED")
    assert len(client.list_artifacts(ids["mlflow"], "samples")) == 2
    history = client.get_metric_history(ids["mlflow"], "test/error/MAE_X_F_X")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    name = "error/MAE(X, F(X))"
    expected = [(each["epoch"], each[name]) for each in lines if name in each]
    assert [(each.step, pytest.approx(each.value)) for each in history] == expected and len(expected) == 2
    logs = sorted((tmp_path / "run" / "wandb").glob(f"offline-run-*-{ids['wandb']}/*.wandb"))
    assert len(logs) == 2
    for log, (_, value) in zip(logs, expected):
        assert f"test/{name}".encode() in log.read_bytes() and str(value).encode() in log.read_bytes()
