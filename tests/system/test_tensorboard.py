"""Read a run through a TensorBoard server."""

import gzip
import importlib.util
import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from time import sleep

import pytest

from cyclegan.methods.objective import CHANGES, ERRORS
from cyclegan.run.metrics_log import describe
from tests.system.runs import TINY, lines, run
from tests.training.helpers import LOSSES


class TensorBoard:
    """Start a TensorBoard server on a run, and read it over HTTP."""

    def __init__(self, logdir):
        command = [sys.executable, "-m", "tensorboard.main", "--host", "127.0.0.1", "--port", "0"]
        command += ["--logdir", str(logdir)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        found = (re.search(r"http://[\w.:]+/", line) for line in self.process.stderr)
        self.url = next(filter(None, found)).group()

    def get(self, path, **query):
        url = f"{self.url}data/plugin/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            content = answer.read()
            return gzip.decompress(content) if answer.headers.get("Content-Encoding") == "gzip" else content

    def json(self, path, **query):
        return json.loads(self.get(path, **query))

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.process.stderr.close()


@pytest.mark.slow
def test_tensorboard_shows_a_resumed_run(photos, tmp_path, monkeypatch):
    folder, temporary = tmp_path / "run", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    flags = ["--dataset", photos, "--output_dir", folder, "--load-size", "36", "--log_every", "2", *TINY]
    flags += ["--evaluate_every", "1"]
    first = run(*flags, "--epochs", "1", "--devices", "2")
    assert first.returncode == 0, first.stderr
    assert "the global batch is" not in first.stderr
    steps = "Steps per epoch: 3 for training (5 pairs), 1 for validation (2 pairs)"
    for text in ("Number of devices: 2", "Replicas: 2, global batch: 2 x 1 = 2", steps, f"Writing to {folder}"):
        assert text in first.stdout
    assert "Epoch 001/001" in first.stdout and "MAE(X, F(G(X)))" in first.stdout and "Elapsed: " in first.stdout
    assert "Train: 100%" in first.stderr and "images/s" in first.stderr and "Traceback" not in first.stderr
    second = run(*flags, "--epochs", "2", "--devices", "1", "--verbose", "2", "--profile", "5:7")
    assert second.returncode == 0, second.stderr
    assert f"Resumed from {folder}/checkpoints/epoch_0001-2: 1 of 2 epochs are done" in second.stdout
    assert "the global batch is 1 pair instead of 2 from here on" in second.stderr
    assert "For the same batch use --batch_size 2" in second.stderr
    assert "Epoch 002/002" in second.stdout and "Epoch 001" not in second.stdout
    assert not list(temporary.iterdir())  # AutoGraph's modules, for example, are removed
    assert {path.name for path in folder.iterdir()} == {
        ".lock", "config.json", "index.html", "metrics.jsonl", "checkpoints", "plugins", "samples", "steps", "test",
        "train",
    }  # fmt: skip
    assert [path.name for path in sorted((folder / "samples").iterdir())] == [
        "epoch_001", "epoch_001.png", "epoch_002", "epoch_002.png", "inputs"
    ]  # fmt: skip
    assert sorted(path.name.rpartition("-")[0] for path in (folder / "checkpoints").iterdir()) == [
        "epoch_0000",
        "epoch_0001",
        "epoch_0002",
    ]  # fmt: skip  no best ones by scores of two images
    for direction in ("x2y", "y2x"):
        assert sum("score/" + direction + "/KID" in line for line in lines(folder)) == 2
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "testA/0.gif" in page and [page.count(f'"epoch":{epoch}}}') for epoch in (1, 2)] == [4, 4]
    assert [(line["split"], line["epoch"], line["step"]) for line in lines(folder)] == [
        ("steps", 0.8, 2), ("train", 1, 3), ("test", 1, 3),
        ("steps", 1.0, 3), ("steps", 1.4, 5), ("steps", 1.8, 7), ("train", 2, 8), ("test", 2, 8),
    ]  # fmt: skip

    board = TensorBoard(folder)
    try:
        check_board(board, lines(folder))
    finally:
        board.close()


def check_board(board, logged):
    """Check that TensorBoard shows all metrics of metrics.jsonl, and the samples."""
    for _ in range(60):  # it reads the events in the background
        tags = board.json("scalars/tags")
        if (
            set(tags) == {"train", "test", "steps"}
            and len(board.json("scalars/scalars", run="test", tag="training/seconds")) == 2
        ):
            break
        sleep(0.5)
    every_pass = {"seconds", "skipped_steps"}
    speed = {f"speed/{name}" for name in ("images_per_second", "ms_per_step", "data_wait", "memory_GB")}
    trained = {*speed, "speed/TFLOP_per_second", "speed/share_of_peak"}
    names = {*LOSSES, "learning_rate", "epoch_seconds", *every_pass, *trained}
    assert set(tags["train"]) == {"/".join(describe(name)) for name in names}
    scores = {f"score/{direction}/{name}" for direction in ("x2y", "y2x") for name in ("FID", "KID")}
    names = {*LOSSES, *ERRORS, *CHANGES, *scores, *every_pass}  # one call in each start: no speed
    assert set(tags["test"]) == {"/".join(describe(name)) for name in names}
    assert set(tags["steps"]) == {f"steps/{describe(key)[1]}" for key in (*LOSSES, "learning_rate", *trained)}
    check_scalars(board, logged)
    check_profile(board)
    samples = [f"samples/{domain} {i}: test{folder}/{i - 1}.gif" for domain, folder in ("XA", "YB") for i in (1, 2)]
    assert sorted(board.json("images/tags")["test"]) == samples
    assert "settings" in board.json("text/tags")["test"]
    shown = board.json("images/images", run="test", tag=samples[0], sample=0)
    assert [image["step"] for image in shown] == [1, 2]
    png = board.get("images/individualImage", **dict(urllib.parse.parse_qsl(shown[0]["query"])))
    assert png.startswith(b"\x89PNG")


def check_profile(board):
    """Check that TensorBoard shows the operations of the profiled steps, if its plugin is installed."""
    if importlib.util.find_spec("tensorboard_plugin_profile"):
        (profile,) = board.json("profile/runs")
        (host,) = board.json("profile/hosts", run=profile, tag="trace_viewer@^")
        tools = board.json("profile/run_tools", run=profile)
        pages = {name: board.get("profile/data", run=profile, tag=name, host=host) for name in tools}
        assert all(page and page != b"No Data" for page in pages.values())
        assert b"D_Y" in pages["trace_viewer@^"]
        assert all(b"Conv2DBackpropFilter" in pages[name] for name in ("trace_viewer@^", "tensorflow_stats^"))


def check_scalars(board, logged):
    """Check that TensorBoard shows each step of metrics.jsonl once, with its value, and no other step."""
    tags = board.json("scalars/tags")
    for split, at in (("train", "epoch"), ("test", "epoch"), ("steps", "step")):
        rows = [line for line in logged if line["split"] == split and "event" not in line]
        keys = {describe(key)[1]: key for row in rows for key in row}
        for tag in tags[split]:
            shown = [(step, value) for _, step, value in board.json("scalars/scalars", run=split, tag=tag)]
            key = keys[tag.partition("/")[2]]
            having = [row for row in rows if key in row]  # the speed is not known before the second call
            assert [step for step, _ in shown] == [row[at] for row in having]
            assert [value for _, value in shown] == pytest.approx([row[key] for row in having], rel=1e-5)
