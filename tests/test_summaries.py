import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow.core.util import event_pb2

from cyclegan.errors import UserError
from cyclegan.summaries import Summary


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
    summary = Summary(tmp_path)
    summary.scalars("train", 1, 10, {"loss_G/loss": 0.5})
    summary.scalars("test", 1, 10, {"loss_G/loss": 0.25, "error/MAE(X, F(X))": 2.0})
    summary.close()
    assert lines(tmp_path) == [
        {"split": "train", "epoch": 1, "step": 10, "loss_G/loss": 0.5},
        {"split": "test", "epoch": 1, "step": 10, "loss_G/loss": 0.25, "error/MAE(X, F(X))": 2.0},
    ]
    assert events(tmp_path) == {"loss_G/loss": {1: 0.5}}
    assert events(tmp_path / "test") == {"loss_G/loss": {1: 0.25}, "error/MAE(X, F(X))": {1: 2.0}}


def test_lines_after_the_checkpoint_are_dropped_when_a_run_is_resumed(tmp_path):
    summary = Summary(tmp_path)
    for epoch in (1, 2, 3):
        summary.scalars("train", epoch, epoch, {"a": float(epoch)})
    summary.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write("[1, 2]\n")
        file.write('{"split": "tra')  # killed while writing
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b"\xff\xfe\n")  # damaged
    summary = Summary(tmp_path, epoch=2)
    summary.scalars("train", 3, 3, {"a": 30.0})
    summary.close()
    assert [(line["epoch"], line["a"]) for line in lines(tmp_path)] == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_a_full_disk_is_one_clear_line(tmp_path, monkeypatch):
    summary = Summary(tmp_path)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("builtins.open", full)
    with pytest.raises(
        UserError, match=r"metrics\.jsonl could not be written .*No space left on device.*free some space"
    ):
        summary.scalars("train", 1, 1, {"a": 1.0})


@pytest.mark.parametrize("channels", [1, 3])
def test_cycles_are_plotted_side_by_side(tmp_path, channels):
    def flat(value):
        return np.full((2, 16, 16, channels), value, np.float32)

    summary = Summary(tmp_path)
    path = summary.cycles(7, (flat(-1), flat(0), flat(1)), (flat(1), flat(0), flat(-1)))
    summary.close()
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
    assert figure.shape == (int(height), int(width), 3) and int(width) > 2 * int(height)
