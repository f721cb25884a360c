"""Log of a run on disk: metrics.jsonl, TensorBoard's events, sample images."""

import io
import json
import logging
import shutil
import time
from unittest import mock

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from cyclegan.config import Config
from cyclegan.run import summaries
from cyclegan.run.summaries import SummaryWriter
from cyclegan.run.train_state import Changes, TrainState
from tests.full_disk import no_file_beyond
from tests.run.reports import report_data, shown_epochs

SAMPLE = "samples/X 1: x"
FLAT = (np.zeros((1, 16, 16, 3), np.float32),) * 3
NAMES = (["x"], ["y"])
NOTHING = Changes([], [], [], [])
BEGIN = TrainState(), NOTHING, 8
PROGRESS = {"state": "training", "epoch": 1.5, "epochs": 3, "step": "4", "left": "", "speed": ""}


def lines(folder):
    """Return the lines of metrics.jsonl without their times."""
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "time"} for line in found]


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
    assert events(tmp_path / "train") == {"losses/G loss": [(1, 0.5)]}
    assert events(tmp_path / "test") == {"losses/G loss": [(1, 0.25)], "errors/MAE(X, F(X))": [(1, 2.0)]}
    assert events(tmp_path / "steps") == {"steps/G loss": [(13, 0.125)]}


def test_tensorboard_shows_the_settings(tmp_path):
    config = Config.from_settings(dataset="a\nb", seed=5, dropout=0.5, load_size=300, keep=9)
    SummaryWriter(tmp_path, config=config).rewind(*BEGIN)
    board = EventAccumulator(str(tmp_path / "test")).Reload()
    (text,) = board.Tensors("settings")
    table = text.tensor_proto.string_val[0].decode()
    assert text.step == 0 and table.startswith("| setting | value |\n|---|---|\n")
    assert {"| dataset | a\\nb |", "| lr | 0.0002 |", "| init_from |  |", "| keep | 9 |"} <= set(table.splitlines())
    hparams = plugin_data_pb2.HParamsPluginData.FromString(
        board.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    ).session_start_info.hparams
    assert set(hparams) == {*summaries.TUNED, "dropout", "load_size"} - {"lambda_nce"}
    assert hparams["seed"].number_value == 5 and hparams["dropout"].number_value == 0.5


def test_events_that_are_written_anew_keep_their_times(tmp_path):
    summary = SummaryWriter(tmp_path)
    summary.write_scalars("train", 1, 10, {"a": 0.5})
    summary.write_cycles(1, FLAT, FLAT, NAMES)

    def times():
        found = [EventAccumulator(str(tmp_path / split)).Reload() for split in ("train", "test")]
        return [[each.wall_time for each in board.Tensors(tag)] for board, tag in zip(found, ("training/a", SAMPLE))]

    first = times()
    time.sleep(0.1)
    SummaryWriter(tmp_path).rewind(TrainState(epoch=1, log_bytes=summary.log_bytes), NOTHING, 8)
    assert times() == first and [len(each) for each in first] == [1, 1]


def test_tensorboard_describes_losses(tmp_path):
    summary = SummaryWriter(tmp_path, descriptions={"nce": "falls"})
    summary.write_scalars("train", 1, 10, {"loss_F/nce": 0.5, "nce": 1.0})
    board = EventAccumulator(str(tmp_path / "train")).Reload()
    tags = ("losses/F nce", "training/nce")
    assert [board.SummaryMetadata(tag).summary_description for tag in tags] == ["falls", ""]


def test_events_of_training_go_to_json_and_warnings_to_tensorboard_too(tmp_path):
    summary = SummaryWriter(tmp_path)
    summary.write_event("train", 2, 9, "not finite", images=["a\nb"], losses=["loss_G/loss"])
    summary.write_event("test", 3, 9, "G inverts", text="G(x) is the negative of x")
    bad = {"event": "not finite", "images": ["a\nb"], "losses": ["loss_G/loss"]}
    warning = {"event": "G inverts", "text": "G(x) is the negative of x"}
    assert lines(tmp_path) == [
        {"split": "train", "epoch": 2, "step": 9, **bad},
        {"split": "test", "epoch": 3, "step": 9, **warning},
    ]
    assert events(tmp_path / "test") == {"warnings/G inverts": [(3, b"G(x) is the negative of x")]}
    assert EventAccumulator(str(tmp_path / "test")).Reload().PluginTagToContent("text").keys() == {"warnings/G inverts"}


def test_a_resumed_run_shows_each_step_once(tmp_path):
    """Kill a run in epoch 3; resume it after epoch 2. An earlier version wrote training events into its folder."""
    (tmp_path / "events.out.tfevents.1.v2").touch()
    summary = SummaryWriter(tmp_path)
    for epoch in (1, 2, 3):
        for split in ("train", "steps"):
            summary.write_scalars(split, epoch, 5 * epoch, {"a": float(epoch)})
        summary.write_event("test", epoch, 5 * epoch, "w", text=f"epoch {epoch}")
        summary.write_cycles(epoch, FLAT, FLAT, NAMES)
        if epoch == 2:
            log_bytes = summary.log_bytes
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"split": "tra\xff')
    summary = SummaryWriter(tmp_path)
    summary.rewind(TrainState(epoch=2, log_bytes=log_bytes), NOTHING, 8)
    for split in ("train", "steps"):
        summary.write_scalars(split, 3, 15, {"a": 30.0})
    logged = [("train", 1, 1.0), ("steps", 1, 1.0), ("train", 2, 2.0), ("steps", 2, 2.0), ("train", 3, 30.0)]
    logged.append(("steps", 3, 30.0))
    assert [(line["split"], line["epoch"], line["a"]) for line in lines(tmp_path) if "event" not in line] == logged
    assert events(tmp_path) == {} and not list(tmp_path.glob("events*"))
    assert events(tmp_path / "train") == {"training/a": [(1, 1.0), (2, 2.0), (3, 30.0)]}
    assert events(tmp_path / "steps") == {"steps/a": [(5, 1.0), (10, 2.0), (15, 30.0)]}
    test = events(tmp_path / "test")
    assert test["warnings/w"] == [(1, b"epoch 1"), (2, b"epoch 2")]
    summary.write_page(PROGRESS)
    assert [step for step, *_ in test[SAMPLE]] == [1, 2] == shown_epochs(tmp_path)
    summary.rewind(*BEGIN)
    summary.write_page(PROGRESS)
    assert events(tmp_path / "train") == events(tmp_path / "test") == {} and shown_epochs(tmp_path) == []
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_a_scalar_that_is_not_finite_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        SummaryWriter(tmp_path).write_scalars("train", 1, 1, {"a": float("nan")})


@pytest.mark.parametrize("room, what", [(5, "metrics.jsonl"), (999, "TensorBoard's events")])  # bytes
def test_a_full_disk_does_not_stop_training(tmp_path, caplog, room, what):
    summary = SummaryWriter(tmp_path, config=Config.from_settings())
    with no_file_beyond(room):
        for step in (1, 2, 3):
            summary.write_scalars("steps", 1, step, {"a": float(step)})
        assert summary.flush() == (what != "metrics.jsonl")  # events follow from the log
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


def test_tensorboard_shows_each_sample_under_the_name_of_its_file(tmp_path):
    summary = SummaryWriter(tmp_path)
    summary.write_cycles(7, FLAT, FLAT[:2], (["a/horse.jpg"], ["two\nlines"]))
    summary.write_cycles(7.5, FLAT, FLAT, NAMES)  # within an epoch
    found = events(tmp_path / "test")
    assert found.keys() == {"samples/X 1: a/horse.jpg", "samples/Y 1: two\\nlines"}
    ((step, width, height, content),) = found["samples/X 1: a/horse.jpg"]
    with Image.open(io.BytesIO(content)) as image:
        assert step == 7 and image.size == (int(width), int(height)) == (588, 240)
        assert image.getpixel((80, 100)) == (128, 128, 128)
    assert EventAccumulator(str(tmp_path / "test")).Reload().PluginTagToContent("images").keys() == found.keys()


def test_the_page_has_curves_settings_progress_and_log(tmp_path):
    summary = SummaryWriter(tmp_path, config=Config.from_settings(lr=0.5))
    for step in range(1, 1201):
        summary.write_scalars("steps", step / 400, step, {"loss_X/loss": float(step), "other": 1.0})
        if step % 400 == 0:
            summary.write_scalars("train", step // 400, step, {"loss_X/loss": 0.25})
    summary.write_event("steps", 1.5, 600, summaries.metrics_log.CHANGED, changes=["lr 0.1 -> 0.5", "r1 0 -> 1"])
    logging.getLogger("cyclegan.run").warning("a <b> line")
    summary.write_page(PROGRESS)
    run = report_data(tmp_path / "index.html")["run"]
    assert next(iter(run["settings"].items())) == ("lr", "0.5") and run["changed"] == 1  # before the defaults
    assert run["progress"]["state"] == "training"
    assert run["log"][-1].endswith(" Warning: a <b> line")
    assert run["changes"] == [[1.5, "lr 0.1 -> 0.5, r1 0 -> 1 after epoch 1.5"]]
    (curve,) = run["curves"]
    assert (curve["group"], curve["title"]) == ("losses", "D_X loss")
    assert curve["lines"]["train"] == [[1, 0.25], [2, 0.25], [3, 0.25]] and curve["lines"]["test"] == []
    assert len(curve["lines"]["steps"]) == 300 and curve["lines"]["steps"][-1] == [3.0, 1200.0]


def test_a_resumed_run_keeps_the_log_of_its_page(tmp_path):
    for start in ("first", "second"):
        summary = SummaryWriter(tmp_path)
        logging.getLogger("cyclegan.run").warning(f"{start} </script> start")
        summary.write_page(PROGRESS)
        summary.close(False)
    log = report_data(tmp_path / "index.html")["run"]["log"]
    assert [line.partition(" ")[2] for line in log] == [
        *("Warning: first </script> start", "Resumed", "Warning: second </script> start")
    ]
    (tmp_path / "index.html").write_text("damaged")
    SummaryWriter(tmp_path).close(False)


def test_the_page_keeps_the_newest_warnings_that_differ(tmp_path, monkeypatch):
    logger = logging.getLogger("cyclegan.run")
    for texts in (["a", "b", "a"], ["c", "d\ne", *(["passing"] * 30)]):
        monkeypatch.setattr("cyclegan.terminal.warnings", ["no GPU"])  # before the folder was opened
        summary = SummaryWriter(tmp_path)
        for text in texts:
            logger.warning(text, extra={"is_passing": True} if text == "passing" else None)
        summary.write_page(PROGRESS)
        summary.close(False)
    assert report_data(tmp_path / "index.html")["run"]["warnings"] == ["b", "a", "no GPU", "c", "d\\ne"]


def test_no_drawing_error_ends_training(tmp_path, monkeypatch, caplog):
    summary = SummaryWriter(tmp_path)
    monkeypatch.setattr("cyclegan.run.sample_images.draw_grid", lambda *_: 1 / 0)
    for epoch in (1, 2):
        summary.write_cycles(epoch, FLAT, FLAT, NAMES)
        summary.write_page({})
    assert caplog.messages == ["sample images could not be written (division by zero); training continues without"]


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
