"""Log of a run on disk: metrics.jsonl, TensorBoard's events, sample images."""

import json
import shutil
from unittest import mock

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from cyclegan.run.summaries import SummaryWriter
from tests.full_disk import no_file_beyond
from tests.run.reports import shown_epochs

FLAT = (np.zeros((1, 16, 16, 3), np.float32),) * 3
NAMES = (["x"], ["y"])


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def events(folder):
    """Return what TensorBoard shows for a folder: {tag: [(step, value)]}."""
    board = EventAccumulator(str(folder)).Reload()
    found = {tag: board.Tensors(tag) for tag in board.Tags()["tensors"]}
    return {
        tag: [(each.step, *(each.tensor_proto.float_val or each.tensor_proto.string_val)) for each in tensors]
        for tag, tensors in found.items()
    }


def test_scalars_go_to_json_and_events(tmp_path):
    summary = SummaryWriter(tmp_path)
    summary.write_scalars("train", 1, 10, {"loss_G/loss": 0.5})
    summary.write_scalars("test", 1, 10, {"loss_G/loss": 0.25, "error/MAE(X, F(X))": 2.0})
    summary.write_scalars("steps", 2, 13, {"loss_G/loss": 0.125})
    assert lines(tmp_path) == [
        {"split": "train", "epoch": 1, "step": 10, "loss_G/loss": 0.5},
        {"split": "test", "epoch": 1, "step": 10, "loss_G/loss": 0.25, "error/MAE(X, F(X))": 2.0},
        {"split": "steps", "epoch": 2, "step": 13, "loss_G/loss": 0.125},
    ]
    assert events(tmp_path) == {"loss_G/loss": [(1, 0.5)]}
    assert events(tmp_path / "test") == {"loss_G/loss": [(1, 0.25)], "error/MAE(X, F(X))": [(1, 2.0)]}
    assert events(tmp_path / "steps") == {"steps/loss_G/loss": [(13, 0.125)]}


def test_tensorboard_describes_losses(tmp_path):
    summary = SummaryWriter(tmp_path, descriptions={"nce": "falls"})
    summary.write_scalars("train", 1, 10, {"loss_F/nce": 0.5, "nce": 1.0})
    board = EventAccumulator(str(tmp_path)).Reload()
    assert [board.SummaryMetadata(tag).summary_description for tag in ("loss_F/nce", "nce")] == ["falls", ""]


def test_events_of_training_go_to_json_and_warnings_to_tensorboard_too(tmp_path):
    summary = SummaryWriter(tmp_path)
    summary.write_event("train", 2, 9, "not finite", images=["a\nb"], losses=["loss_G/loss"])
    summary.write_warning(3, 9, "G inverts", "G(x) is the negative of x")
    bad = {"event": "not finite", "images": ["a\nb"], "losses": ["loss_G/loss"]}
    warning = {"event": "G inverts", "text": "G(x) is the negative of x"}
    assert lines(tmp_path) == [
        {"split": "train", "epoch": 2, "step": 9, **bad},
        {"split": "test", "epoch": 3, "step": 9, **warning},
    ]
    assert events(tmp_path / "test") == {"warnings/G inverts": [(3, b"G(x) is the negative of x")]}
    assert EventAccumulator(str(tmp_path / "test")).Reload().PluginTagToContent("text").keys() == {"warnings/G inverts"}


def test_a_resumed_run_shows_each_step_once(tmp_path):
    """Kill a run in epoch 3; resume it after epoch 2."""
    summary = SummaryWriter(tmp_path)
    for epoch in (1, 2, 3):
        for split in ("train", "steps"):
            summary.write_scalars(split, epoch, 5 * epoch, {"a": float(epoch)})
        summary.write_warning(epoch, 5 * epoch, "w", f"epoch {epoch}")
        summary.write_cycles(epoch, FLAT, FLAT, NAMES)
        if epoch == 2:
            log_bytes = summary.log_bytes
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"split": "tra\xff')
    summary = SummaryWriter(tmp_path)
    summary.rewind(log_bytes, 2)
    for split in ("train", "steps"):
        summary.write_scalars(split, 3, 15, {"a": 30.0})
    logged = [("train", 1, 1.0), ("steps", 1, 1.0), ("train", 2, 2.0), ("steps", 2, 2.0), ("train", 3, 30.0)]
    logged.append(("steps", 3, 30.0))
    assert [(line["split"], line["epoch"], line["a"]) for line in lines(tmp_path) if "event" not in line] == logged
    assert events(tmp_path) == {"a": [(1, 1.0), (2, 2.0), (3, 30.0)]}
    assert events(tmp_path / "steps") == {"steps/a": [(5, 1.0), (10, 2.0), (15, 30.0)]}
    test = events(tmp_path / "test")
    assert test["warnings/w"] == [(1, b"epoch 1"), (2, b"epoch 2")]
    assert [step for step, *_ in test["samples"]] == [1, 2] == shown_epochs(tmp_path)
    summary.rewind(0, 0)
    assert events(tmp_path) == events(tmp_path / "test") == {} and shown_epochs(tmp_path) == []
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_a_scalar_that_is_not_finite_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        SummaryWriter(tmp_path).write_scalars("train", 1, 1, {"a": float("nan")})


@pytest.mark.parametrize("room, what", [(5, "metrics.jsonl"), (180, "TensorBoard's events")])  # bytes
def test_a_full_disk_does_not_stop_training(tmp_path, caplog, room, what):
    summary = SummaryWriter(tmp_path)
    with no_file_beyond(room):
        for step in (1, 2, 3):
            summary.write_scalars("steps", 1, step, {"a": float(step)})
        assert not summary.flush()
        (text,) = caplog.messages
        assert f"{what} could not be written (" in text and "stays in memory until it can be written" in text
        summary.write_cycles(1, FLAT, FLAT, NAMES)
        assert "sample images could not be written" in caplog.messages[1]
    summary.write_scalars("steps", 1, 4, {"a": 4.0})
    assert caplog.messages[2:] == [f"{tmp_path}/metrics.jsonl can be written again; nothing is missing"]
    assert [line["a"] for line in lines(tmp_path)] == [1, 2, 3, 4]
    assert events(tmp_path / "steps") == {"steps/a": [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]} and summary.flush()


def test_a_run_that_was_moved_is_not_made_again(tmp_path, caplog):
    summary = SummaryWriter(tmp_path / "run")
    summary.write_scalars("train", 1, 1, {"a": 1.0})
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    summary.write_scalars("train", 2, 2, {"a": 1.0})
    summary.write_cycles(1, FLAT, FLAT, NAMES)
    assert not (tmp_path / "run").exists() and len(caplog.messages) == 2


def test_tensorboard_shows_the_grid_of_samples(tmp_path):
    SummaryWriter(tmp_path).write_cycles(7, FLAT, FLAT, NAMES)
    grid = tmp_path / "samples" / "epoch_007.png"
    with Image.open(grid) as image:
        width, height = image.size
    assert events(tmp_path / "test") == {"samples": [(7, b"%d" % width, b"%d" % height, grid.read_bytes())]}
    assert EventAccumulator(str(tmp_path / "test")).Reload().PluginTagToContent("images").keys() == {"samples"}


def test_trackers_get_metrics_and_samples(tmp_path):
    tracker = mock.Mock()
    summary = SummaryWriter(tmp_path, [tracker])
    summary.write_scalars("steps", 1, 9, {"loss_G/loss": 0.5})
    summary.write_cycles(1, FLAT, FLAT, NAMES)
    summary.close(True)
    assert tracker.mock_calls == [
        mock.call.write_scalars("steps", 1, 9, {"loss_G/loss": 0.5}),
        mock.call.write_image(1, tmp_path / "samples" / "epoch_001.png"),
        mock.call.finish(True),
    ]
