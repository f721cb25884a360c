import json
import re

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow.core.util import event_pb2

from cyclegan.reporting.summaries import SummaryWriter


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def events(folder):
    """{tag: {step: value}} of the events that lie in a folder itself."""
    found = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = event_pb2.Event.FromString(record.numpy())
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = tf.make_ndarray(value.tensor)
    return found


def test_scalars_go_to_tensorboard_and_to_metrics_jsonl(tmp_path):
    summary = SummaryWriter(tmp_path)
    summary.scalars("train", 1, 10, {"loss_G/loss": 0.5})
    summary.scalars("test", 1, 10, {"loss_G/loss": 0.25, "error/MAE(X, F(X))": 2.0})
    assert lines(tmp_path) == [
        {"split": "train", "epoch": 1, "step": 10, "loss_G/loss": 0.5},
        {"split": "test", "epoch": 1, "step": 10, "loss_G/loss": 0.25, "error/MAE(X, F(X))": 2.0},
    ]
    assert events(tmp_path) == {"loss_G/loss": {1: 0.5}}
    assert events(tmp_path / "test") == {"loss_G/loss": {1: 0.25}, "error/MAE(X, F(X))": {1: 2.0}}


def test_what_came_after_a_checkpoint_is_dropped_when_a_run_goes_back_to_it(tmp_path):
    summary = SummaryWriter(tmp_path)
    for epoch in (1, 2, 3):
        summary.scalars("train", epoch, 5 * epoch, {"a": float(epoch)})
        summary.scalars("steps", epoch, 5 * epoch, {"a": float(epoch)})
        if epoch == 2:
            place = summary.log_bytes
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"split": "tra\xff')  # killed while writing, damaged
    summary = SummaryWriter(tmp_path)
    summary.rewind(place, 2, 10)
    summary.scalars("train", 3, 15, {"a": 30.0})
    assert [(line["split"], line["epoch"], line["a"]) for line in lines(tmp_path)] == [
        ("train", 1, 1.0), ("steps", 1, 1.0), ("train", 2, 2.0), ("steps", 2, 2.0), ("train", 3, 30.0)
    ]  # fmt: skip
    starts = {folder: restarts(tmp_path / folder) for folder in (".", "test", "steps")}
    assert starts == {".": [3], "test": [3], "steps": [11]}


def restarts(folder):
    """The steps of the session-start events in a folder."""
    records = [
        event_pb2.Event.FromString(record.numpy())
        for path in sorted(folder.glob("events.out.tfevents.*"))
        for record in tf.data.TFRecordDataset(str(path))
    ]
    return [event.step for event in records if event.session_log.status == event_pb2.SessionLog.START]


def test_events_and_single_steps(tmp_path):
    summary = SummaryWriter(tmp_path)
    summary.event("train", 2, 9, "not finite", images=["a\nb"], figures=["loss_G/loss"])
    summary.scalars("steps", 2, 9, {"loss_G/loss": 0.5})
    assert lines(tmp_path) == [
        {
            "split": "train",
            "epoch": 2,
            "step": 9,
            "event": "not finite",
            "images": ["a\nb"],
            "figures": ["loss_G/loss"],
        },
        {"split": "steps", "epoch": 2, "step": 9, "loss_G/loss": 0.5},
    ]
    assert events(tmp_path / "steps") == {"steps/loss_G/loss": {9: 0.5}}


def test_a_figure_that_is_not_finite_is_never_written(tmp_path):
    summary = SummaryWriter(tmp_path)
    with pytest.raises(ValueError):
        summary.scalars("train", 1, 1, {"a": float("nan")})
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_full_disk_does_not_stop_the_writing(tmp_path, monkeypatch):
    said = []
    summary = SummaryWriter(tmp_path, said.append)
    flat = np.zeros((1, 16, 16, 3), np.float32)
    with monkeypatch.context() as patch:
        patch.setattr("os.open", full)
        patch.setattr("pathlib.Path.write_bytes", full)
        summary.scalars("train", 1, 1, {"a": 1.0})
        summary.cycles(1, (flat,) * 3, (flat,) * 3, ("x", "y"))
    assert len(said) == 4 and all("could not be written" in text and "No space left" in text for text in said)
    summary.scalars("train", 2, 2, {"a": 2.0})
    assert [line["a"] for line in lines(tmp_path)] == [1.0, 2.0]
    assert events(tmp_path) == {"a": {1: 1.0, 2: 2.0}}


def full(*args, **kwargs):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("channels", [1, 3])
def test_cycles_are_plotted_side_by_side(tmp_path, channels):
    def flat(value):
        return np.full((2, 16, 16, channels), value, np.float32)

    summary = SummaryWriter(tmp_path)
    path = summary.cycles(7, (flat(-1), flat(0), flat(1)), (flat(1), flat(0), flat(-1)), ("ab", "cd"))
    assert path == tmp_path / "samples" / "epoch_007.png"
    picture = np.asarray(Image.open(path).convert("L")).astype(int)
    height, width = picture.shape
    row = picture[int(height * 0.3)]
    middles = [int(width * (column + 0.5) / 6) for column in range(6)]
    assert np.abs(row[middles] - [0, 128, 255, 255, 128, 0]).max() <= 1
    tags = events(tmp_path / "test")
    assert set(tags) == {f"{name}_cycle/sample_{i}" for name in "XY" for i in (1, 2)}
    width, height, png = tags["X_cycle/sample_1"][7]
    figure = tf.io.decode_png(png).numpy()
    assert figure.shape[:2] == (int(height), int(width)) and int(width) > 2 * int(height)


def test_a_run_s_page_has_its_epochs_and_none_of_a_future_that_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr("cyclegan.reporting.summaries._png", lambda rows, titles: (b"", 1, 1))  # takes long
    flat = (np.zeros((1, 16, 16, 3), np.float32),) * 3
    for stop in (3, 2):  # the second start goes back to the end of epoch 1
        summary = SummaryWriter(tmp_path)
        summary.rewind(0, 1, 5)
        for epoch in range(2, stop + 1):
            summary.cycles(epoch, flat, flat, ("x", "y"))
        assert epochs_of(tmp_path) == [*range(2, stop + 1)]
    assert sorted(path.name for path in (tmp_path / "samples").iterdir()) == ["epoch_002", "epoch_002.png", "inputs"]
    SummaryWriter(tmp_path).rewind(0, 1, 5)
    assert epochs_of(tmp_path) == []


def epochs_of(folder):
    """The epochs that a run's page shows."""
    (found,) = re.findall(r'"application/json">(.*?)</script>', (folder / "index.html").read_text(encoding="utf-8"))
    return sorted({frame["epoch"] for item in json.loads(found)["items"] for frame in item["frames"]})


def test_cycles_between_other_channels_are_plotted(tmp_path):
    """Of two channels the first is shown, as gray; of five, the first three."""

    def flat(*values):
        return np.broadcast_to(np.float32(values), (1, 16, 16, len(values)))

    two, five = flat(-1, 1), flat(1, -1, 0, 1, 1)
    path = SummaryWriter(tmp_path).cycles(1, (two, five, flat(0, 1)), (five, two, five), ("x", "y"))
    picture = np.asarray(Image.open(path).convert("RGB")).astype(int)
    height, width, _ = picture.shape
    middles = picture[int(height * 0.6), [int(width * (column + 0.5) / 6) for column in range(6)]]
    black, red, gray = (0, 0, 0), (255, 0, 128), (128, 128, 128)
    assert np.abs(middles - [black, red, gray, red, black, red]).max() <= 1
    assert set(events(tmp_path / "test")) == {"X_cycle/sample_1", "Y_cycle/sample_1"}
