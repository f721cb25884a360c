"""Summaries on disk: metrics.jsonl, TensorBoard events, sample images."""

import json
import re
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorflow.core.util import event_pb2

from cyclegan.run.summaries import SummaryWriter


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def events(folder):
    """Return {tag: {step: value}} of the event files in a folder."""
    found = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = event_pb2.Event.FromString(record.numpy())
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = tf.make_ndarray(value.tensor)
    return found


def test_scalars_go_to_json_and_events(tmp_path):
    summary = SummaryWriter(tmp_path)
    summary.write_scalars("train", 1, 10, {"loss_G/loss": 0.5})
    summary.write_scalars("test", 1, 10, {"loss_G/loss": 0.25, "error/MAE(X, F(X))": 2.0})
    assert lines(tmp_path) == [
        {"split": "train", "epoch": 1, "step": 10, "loss_G/loss": 0.5},
        {"split": "test", "epoch": 1, "step": 10, "loss_G/loss": 0.25, "error/MAE(X, F(X))": 2.0},
    ]
    assert events(tmp_path) == {"loss_G/loss": {1: 0.5}}
    assert events(tmp_path / "test") == {"loss_G/loss": {1: 0.25}, "error/MAE(X, F(X))": {1: 2.0}}


def test_rewind_discards_later_lines(tmp_path):
    summary = SummaryWriter(tmp_path)
    for epoch in (1, 2, 3):
        summary.write_scalars("train", epoch, 5 * epoch, {"a": float(epoch)})
        summary.write_scalars("steps", epoch, 5 * epoch, {"a": float(epoch)})
        if epoch == 2:
            log_bytes = summary.log_bytes
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"split": "tra\xff')  # lines of a killed writer, and a damaged line
    summary = SummaryWriter(tmp_path)
    summary.rewind(log_bytes, 2, 10)
    summary.write_scalars("train", 3, 15, {"a": 30.0})
    assert [(line["split"], line["epoch"], line["a"]) for line in lines(tmp_path)] == [
        ("train", 1, 1.0), ("steps", 1, 1.0), ("train", 2, 2.0), ("steps", 2, 2.0), ("train", 3, 30.0)
    ]  # fmt: skip
    starts = {folder: restarts(tmp_path / folder) for folder in (".", "test", "steps")}
    assert starts == {".": [3], "test": [3], "steps": [11]}


def restarts(folder):
    """Return the steps of the session-start events in a folder."""
    records = [
        event_pb2.Event.FromString(record.numpy())
        for path in sorted(folder.glob("events.out.tfevents.*"))
        for record in tf.data.TFRecordDataset(str(path))
    ]
    return [event.step for event in records if event.session_log.status == event_pb2.SessionLog.START]


def test_a_warning_is_an_event_and_a_text_in_tensorboard(tmp_path):
    SummaryWriter(tmp_path).write_warning(3, 9, "G inverts", "G(x) is the negative of x")
    assert lines(tmp_path) == [{"split": "test", "epoch": 3, "step": 9, "event": "G inverts"}]
    events = EventAccumulator(str(tmp_path / "test")).Reload()
    (warning,) = events.Tensors("warnings/G inverts")
    assert warning.step == 3 and warning.tensor_proto.string_val == [b"G(x) is the negative of x"]
    assert events.PluginTagToContent("text").keys() == {"warnings/G inverts"}


def test_events_and_steps_are_logged(tmp_path):
    summary = SummaryWriter(tmp_path)
    summary.write_event("train", 2, 9, "not finite", images=["a\nb"], losses=["loss_G/loss"])
    summary.write_scalars("steps", 2, 9, {"loss_G/loss": 0.5})
    assert lines(tmp_path) == [
        {
            "split": "train",
            "epoch": 2,
            "step": 9,
            "event": "not finite",
            "images": ["a\nb"],
            "losses": ["loss_G/loss"],
        },
        {"split": "steps", "epoch": 2, "step": 9, "loss_G/loss": 0.5},
    ]
    assert events(tmp_path / "steps") == {"steps/loss_G/loss": {9: 0.5}}


def test_scalar_that_is_not_finite_is_refused(tmp_path):
    summary = SummaryWriter(tmp_path)
    with pytest.raises(ValueError):
        summary.write_scalars("train", 1, 1, {"a": float("nan")})
    assert not (tmp_path / "metrics.jsonl").exists()


def test_full_disk_does_not_stop_training(tmp_path, monkeypatch, caplog):
    summary = SummaryWriter(tmp_path)
    flat = np.zeros((1, 16, 16, 3), np.float32)
    with monkeypatch.context() as patch:
        patch.setattr("os.open", full)
        patch.setattr("cyclegan.whole_file.write", full)
        summary.write_scalars("train", 1, 1, {"a": 1.0})
        summary.write_cycles(1, (flat,) * 3, (flat,) * 3, ("x", "y"))
    messages = caplog.messages
    assert len(messages) == 4
    assert all("could not be written" in text and "No space left" in text for text in messages)
    summary.write_scalars("train", 2, 2, {"a": 2.0})
    assert [line["a"] for line in lines(tmp_path)] == [1.0, 2.0]
    assert events(tmp_path) == {"a": {1: 1.0, 2: 2.0}}


def full(*args, **kwargs):
    raise OSError(28, "No space left on device")


def test_cycles_of_different_channels_are_drawn(tmp_path):
    gray, rgb = np.zeros((2, 16, 16, 1), np.float32), np.zeros((2, 16, 16, 3), np.float32)
    names = (["a", "b"], ["c", "d"])
    path = SummaryWriter(tmp_path).write_cycles(7, (gray, rgb, gray), (rgb, gray, rgb), names)
    assert path == tmp_path / "samples" / "epoch_007.png"
    Image.open(path).load()
    tags = events(tmp_path / "test")
    assert set(tags) == {f"{name}_cycle/sample_{i}" for name in "XY" for i in (1, 2)}
    width, height, png = tags["X_cycle/sample_1"][7]
    image = tf.io.decode_png(png).numpy()
    assert image.shape[:2] == (int(height), int(width)) and int(width) > 2 * int(height)


def test_trackers_get_metrics_and_samples(tmp_path, monkeypatch):
    monkeypatch.setattr("cyclegan.run.summaries.grid_png", lambda rows, titles: (b"", 1, 1))  # slow
    flat, tracker = (np.zeros((1, 16, 16, 3), np.float32),) * 3, mock.Mock()
    summary = SummaryWriter(tmp_path, [tracker])
    summary.write_scalars("steps", 1, 9, {"loss_G/loss": 0.5})
    path = summary.write_cycles(1, flat, flat, ("x", "y"))
    summary.close(True)
    assert tracker.mock_calls == [
        mock.call.write_scalars("steps", 1, 9, {"loss_G/loss": 0.5}),
        mock.call.write_image(1, path),
        mock.call.finish(True),
    ]


def test_report_follows_rewind(tmp_path, monkeypatch):
    monkeypatch.setattr("cyclegan.run.summaries.grid_png", lambda rows, titles: (b"", 1, 1))  # slow
    flat = (np.zeros((1, 16, 16, 3), np.float32),) * 3
    for stop in (3, 2):  # the second start goes back to the end of epoch 1
        summary = SummaryWriter(tmp_path)
        summary.rewind(0, 1, 5)
        for epoch in range(2, stop + 1):
            summary.write_cycles(epoch, flat, flat, ("x", "y"))
        assert epochs_of(tmp_path) == [*range(2, stop + 1)]
    assert sorted(path.name for path in (tmp_path / "samples").iterdir()) == ["epoch_002", "epoch_002.png", "inputs"]
    SummaryWriter(tmp_path).rewind(0, 1, 5)
    assert epochs_of(tmp_path) == []


def epochs_of(folder):
    """Return the epochs that the report of a run shows."""
    (found,) = re.findall(r'"application/json">(.*?)</script>', (folder / "index.html").read_text(encoding="utf-8"))
    return sorted({frame["epoch"] for item in json.loads(found)["items"] for frame in item["frames"]})
