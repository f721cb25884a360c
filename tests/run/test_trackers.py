"""Trackers: what reaches them, how they resume, and that their failures stay away from training.

Fakes replace the two packages in the quick tests; a slow test uses the packages themselves, without a network.
"""

import importlib.util
import json
import logging
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

from cyclegan.config import Config
from cyclegan.errors import MissingPackageError, UserError
from cyclegan.run import trackers
from cyclegan.run.trackers import BackgroundTracker

ROOT = pathlib.Path(__file__).resolve().parents[2]
OFFLINE = {"WANDB_MODE": "offline", "MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}


class Fake:
    """A tracker that records its calls; it fails if its target is "down"."""

    NAME = "Fake"
    location = "here"

    def __init__(self, target, run_id, folder, settings):
        self.calls = [(target, run_id, settings["epochs"])]
        self.run_id = "new" if target == "empty" else run_id or "first"
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
    monkeypatch.setattr(trackers, "TRACKERS", dict.fromkeys(("wandb", "mlflow"), (make, "it")))
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
    start(tmp_path, mlflow="empty")
    assert warnings(caplog) == ["Fake: the run so far is not at empty, so a new run begins there"]
    assert json.loads((tmp_path / "trackers.json").read_text()) == {"wandb": "first", "mlflow": "new"}


def test_a_tracker_must_answer_at_first_but_not_when_a_run_resumes(tmp_path, fakes, caplog):
    expected = "--mlflow down: http://host: no; expected a tracker that answers, or no --mlflow"
    with pytest.raises(UserError, match=f"^{expected}$"):
        start(tmp_path, mlflow="down")
    (tmp_path / "trackers.json").write_text('{"mlflow": "a"}')
    assert start(tmp_path, mlflow="down") == []
    assert warnings(caplog) == ["--mlflow down: http://host: no. Training continues without this tracker"]
    assert (tmp_path / "trackers.json").read_text() == '{"mlflow": "a"}'


@pytest.mark.parametrize("text", ["{", "[]", '{"wandb": 1}'])
def test_damaged_ids_are_refused(tmp_path, fakes, text):
    (tmp_path / "trackers.json").write_text(text)
    with pytest.raises(UserError, match=r"trackers\.json can't be read .*: restore it, or remove it to begin new"):
        start(tmp_path, wandb="p")


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
    monkeypatch.setattr(trackers, "QUEUED", 5)
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
    assert [text.partition(".")[0] for text in warnings(caplog)] == ["Fake: it does not keep up"]


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in ("wandb", "mlflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "wandb").mkdir()  # files of W&B, not the package
    importlib.invalidate_caches()
    trackers.check_packages(Config.from_settings().run)
    with pytest.raises(MissingPackageError, match="^--wandb needs the package wandb: pip install wandb$"):
        trackers.check_packages(Config.from_settings(wandb="p").run)
    with pytest.raises(MissingPackageError, match="^--mlflow needs the package mlflow: pip install mlflow, or"):
        trackers.check_packages(Config.from_settings(mlflow="file:x").run)
    (tmp_path / "wandb" / "__init__.py").touch()
    importlib.invalidate_caches()
    trackers.check_packages(Config.from_settings(wandb="p").run)


WITH_PACKAGES = """
import json, pathlib, sys
from PIL import Image
from cyclegan.config import Config
from cyclegan.run import trackers

folder = pathlib.Path(sys.argv[1])
Image.new("RGB", (8, 8)).save(folder / "epoch_001.png")
for start in range(3):
    config = Config.from_settings(wandb="p", mlflow=f"file:{folder}/store", epochs=2 + start % 2)
    started = trackers.start(config.run, config.settings(), folder)
    for step in (4, 5 + start):  # later starts repeat one
        for tracker in started:
            tracker.write_scalars("steps", 1, step, {"speed/a": step + 0.25 + start})
    for tracker in started:
        tracker.write_scalars("test", 1 + start, 6, {"error/MAE(X, F(X))": 0.625})
        tracker.write_image(1, folder / "epoch_001.png")
        tracker.finish(bool(start))

import mlflow
client = mlflow.MlflowClient(tracking_uri=f"file:{folder}/store")
id = json.loads((folder / "trackers.json").read_text())["mlflow"]
run = client.get_run(id)
history = {name: [(each.step, each.value) for each in client.get_metric_history(id, name)] for name in run.data.metrics}
pictures = [each.path for each in client.list_artifacts(id, "samples")]
print(json.dumps([run.info.status, run.data.params["epochs"], run.data.tags["epochs"], history, pictures]))
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the database of MLflow
def test_a_resumed_training_continues_at_both_trackers(tmp_path, stripes_dir, monkeypatch):
    """Train an epoch, then resume to two: each tracker has one run with the metrics of both."""
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("wandb")
    uri = f"sqlite:///{tmp_path}/mlflow.db" if importlib.util.find_spec("sqlalchemy") else f"file:{tmp_path}/store"
    monkeypatch.chdir(tmp_path)  # where MLflow puts the files of a database
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    tiny = "--dataset stripes --image_size 32 --filters 2 --residual_blocks 0 --max_dataset_size 4 --no_peak"
    flags = [
        *tiny.split(),
        "--output_dir",
        tmp_path / "run",
        "--data_dir",
        stripes_dir,
        "--wandb",
        "p",
        "--mlflow",
        uri,
    ]
    for epochs in (1, 2):
        command = [sys.executable, ROOT / "train.py", *flags, "--epochs", epochs]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        assert "may lack values" not in done.stderr, done.stderr
    ids = json.loads((tmp_path / "run" / "trackers.json").read_text())
    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([each.experiment_id for each in client.search_experiments()])
    assert (run.info.run_id, run.info.status) == (ids["mlflow"], "FINISHED")
    history = client.get_metric_history(ids["mlflow"], "test/error/MAE_X_F_X")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    name = "error/MAE(X, F(X))"
    expected = [(each["epoch"], each[name]) for each in lines if name in each]
    assert [(each.step, pytest.approx(each.value)) for each in history] == expected and len(expected) == 2
    logs = sorted((tmp_path / "run" / "wandb").glob(f"offline-run-*-{ids['wandb']}/*.wandb"))
    assert len(logs) == 2
    for log, (_, value) in zip(logs, expected):
        assert f"test/{name}".encode() in log.read_bytes() and str(value).encode() in log.read_bytes()


@pytest.mark.slow
def test_the_packages_without_a_network(tmp_path):
    for name in ("wandb", "mlflow"):
        pytest.importorskip(name)
    environment = {**os.environ, **OFFLINE, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", WITH_PACKAGES, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert "may lack values" not in done.stderr, done.stderr
    history = {"steps/speed/a": [[4, 4.25], [5, 5.25], [6, 7.25], [7, 9.25]]}
    history["test/error/MAE_X_F_X"] = [[epoch, 0.625] for epoch in (1, 2, 3)]
    assert json.loads(done.stdout.splitlines()[-1]) == ["FINISHED", "2", "2", history, ["samples/epoch_001.png"]]
    run_id = json.loads((tmp_path / "trackers.json").read_text())["wandb"]
    logs = sorted((tmp_path / "wandb").glob(f"offline-run-*-{run_id}*/*.wandb"))
    content = b"".join(log.read_bytes() for log in logs)
    for part in (b"test/error/MAE(X, F(X))", b"0.625", b"steps/speed/a", b"4.25", b"7.25", b"samples"):
        assert part in content
    assert list((tmp_path / "wandb").glob("*/files/media/images/samples_*.png"))
