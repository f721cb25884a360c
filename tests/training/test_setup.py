"""Parts of the set-up; `test_trainer` tests the trainer with fakes, and `tests/system` with real runs."""

import copy
import dataclasses
import errno
import json
import logging
import os
import types

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from cyclegan.config import Config, serialization
from cyclegan.data.sources import SPLITS, draw
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution import hardware
from cyclegan.distribution.workers import Watchdog, Workers
from cyclegan.errors import UserError, counted
from cyclegan.images import geometry
from cyclegan.networks import compat
from cyclegan.run.html_report import log_of_page
from cyclegan.run.run_directory import RunDirectory
from cyclegan.run.train_state import Changes, TrainState
from cyclegan.training import setup
from cyclegan.training.callbacks import Epoch
from cyclegan.training.setup import (
    batch_size_warnings,
    choose_xla,
    config_of_worker,
    learning_rate_warnings,
    load_data,
    make_trainer,
    start_run,
    time_steps,
    undecayed,
)
from cyclegan.training.step import GAN, compile_train_step
from tests.run.saves import DATA, open_run
from tests.training.helpers import FEW_LAYERS, TINIER, as_trained, state_values


@pytest.mark.parametrize("given, expected", [("auto", "bfloat16"), ("float32", "float32"), ("float16", "float16")])
def test_precision_follows_the_devices_unless_given_and_only_the_chief_shows_progress(monkeypatch, given, expected):
    monkeypatch.setattr(hardware, "best_precision", lambda: "bfloat16")
    config = Config.from_settings(precision=given, verbose=2)
    for is_chief, verbose in ((True, 2), (False, 0)):
        worker = types.SimpleNamespace(is_chief=is_chief)
        assert config_of_worker(config, worker) == config.replace(precision=expected, verbose=verbose)


@pytest.fixture
def folder(tmp_path):
    """Make a dataset of two gray images, of the values 100 and 200, in each split."""
    for split in SPLITS:
        (tmp_path / "data" / split).mkdir(parents=True)
        for value in (100, 200):
            Image.fromarray(np.full((16, 20, 3), value, np.uint8)).save(tmp_path / "data" / split / f"{value}.png")
    return str(tmp_path / "data")


def test_config_json_gets_the_measured_range(folder, tmp_path, strategies):
    config = Config.from_settings(value_range_y="auto", dataset=folder, image_size=16, load_size=16, verbose=0)
    run = types.SimpleNamespace(path=tmp_path, check_data=lambda fingerprint: None, config=config)
    data = load_data(config, Workers(strategies[1]), run)
    assert run.config == config.replace(value_range_y="100:200")
    assert (
        "--value_range_y 100:200: percentiles 0.1 and 99.9 of the values of 2 images of trainB; fixed for this run"
        in data.notes
    )
    assert [data.train_y[i].max() for i in range(2)] == [0, 65535] and data.train_x[0].max() == 100 * 257


@pytest.fixture
def make(tmp_path, strategies):
    """Return a function that makes the trainer of a tiny run, as a new start does, and its config.json."""
    small = {"dataset": "stripes", "max_dataset_size": 2, "no_peak": True, "verbose": 0}

    def make_one(**settings):
        config = Config.from_settings(**{**TINIER, **small, "output_dir": str(tmp_path / "run"), **settings})
        workers = Workers(strategies[1])
        with RunDirectory(config, compat.stack()) as run:
            trainer = make_trainer(config, workers, run, load_data(config, workers, run))
            return trainer, serialization.load(run.path / "config.json").config

    return make_one


def test_config_json_records_the_choice_of_xla(make, monkeypatch):
    monkeypatch.setattr(setup, "choose_xla", lambda *_: "off")
    assert make()[1].performance.xla == "off"


def test_a_finished_run_loads_no_network_for_scores(make, monkeypatch):
    loaded = []

    def load(*arguments):
        loaded.append(arguments[0])

    monkeypatch.setattr(setup, "make_extractor", load)
    options = {"epochs": 1, "evaluate_every": 1, "evaluate_features": "inception"}
    trainer, _ = make(**options)
    assert loaded == ["inception"]
    trainer.state.next_epoch()
    trainer.policy.checkpoints.save(trainer.state)
    trainer, _ = make(**options)
    assert trainer.state.epoch == 1 and trainer.fit() == {} and loaded == ["inception"]
    make(**{**options, "epochs": 2})
    assert loaded == ["inception"] * 2


def test_a_resumed_run_that_could_not_save_stops_before_its_first_step(make, tmp_path, monkeypatch):
    trainer, _ = make()
    trainer.policy.checkpoints.save(trainer.state)
    partial, make_folder = tmp_path / "run" / "checkpoints" / "partial", os.mkdir

    def is_read_only(path, *arguments):
        if os.fspath(path) == os.fspath(partial):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(path))
        make_folder(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", is_read_only)
        with pytest.raises(UserError, match="^--output_dir .*checkpoints/partial: Read-only file system; expected"):
            make()
    partial.write_text("a file instead of the folder of the next save")
    with pytest.raises(UserError, match="^--output_dir .*partial is a file; expected a folder that can be written to"):
        make()


def test_images_with_transparency_have_samples_and_a_page(make, tmp_path):
    for name in ("trainA", "trainB", "testA", "testB"):
        (tmp_path / "data" / name).mkdir(parents=True)
        Image.new("RGBA", (32, 32), (9, 90, 200, 128)).save(tmp_path / "data" / name / "1.png")
    trainer, _ = make(dataset=str(tmp_path / "data"), channels_x=4, channels_y=4, image_size=32)
    for callback in trainer.callbacks:
        callback.on_epoch_end(Epoch(TrainState(epoch=1), False, {}))
    with Image.open(tmp_path / "run/samples/inputs/x_1.png") as source:
        assert np.abs(np.subtract(source.getpixel((9, 9)), (9, 90, 200, 128))).max() <= 1
    with Image.open(tmp_path / "run/samples/epoch_001/fake_y_1.png") as output:
        assert output.mode == "RGBA"
    trainer._write_page("training")
    assert "samples/epoch_001/cycle_y_1.png" in (tmp_path / "run" / "index.html").read_text()


@pytest.mark.parametrize(
    "flags, steps",
    [
        ({}, 10),
        ({"log_every": 6}, 6),
        ({"steps_per_call": 2}, 2),
        ({"checkpoint_minutes": 0}, 1),
        ({"no_peak": True}, 1),
    ],
)
def test_short_steps_share_a_call(make, monkeypatch, flags, steps):
    monkeypatch.setattr(hardware, "measure_peak", lambda precision: 1e15)
    trainer, _ = make(**{"no_peak": False, "log_every": 10, **flags})
    assert [split.dataset.steps_per_call for split in trainer.splits] == [steps, steps]


def test_a_batch_of_another_size_than_before_or_than_an_epoch_causes_a_warning():
    assert batch_size_warnings(6, 6, 3) == batch_size_warnings(6, 6, 2) == batch_size_warnings(0, 8, 2) == []
    (text,) = batch_size_warnings(0, 8, 2, pairs=5)
    assert text == "the global batch of 8 is larger than an epoch of 5 pairs: most of each step is idle"


def test_a_decay_that_training_does_not_reach_causes_a_warning():
    def warnings(**settings):
        return undecayed(Config.from_settings(**settings).optimization)

    assert warnings(epochs=200, decay_from=150) == warnings(epochs=1) == warnings(lr_schedule="constant") == []
    assert warnings(epochs=150, decay_from=150) == [
        "--decay_from 150 is not below --epochs 150: the learning rate never decays"
    ]


@pytest.mark.parametrize(
    "replicas, batch, steps, advice",
    [
        (3, 3, "more", "--batch_size 2"),
        (3, 12, "fewer", "--batch_size 2"),
        (1, 1, "more", "--batch_size 6"),
        (6, 12, "fewer", "--batch_size 1"),
        (4, 4, "more", "--devices 3 --batch_size 2"),
        (8, 8, "fewer", "--devices 6 --batch_size 1"),
    ],
)
def test_another_batch_size_causes_a_warning_with_advice(replicas, batch, steps, advice):
    (text,) = batch_size_warnings(6, batch, replicas)
    assert text.startswith(f"the global batch is {counted(batch, 'pair')} instead of 6 from here on")
    assert f"has {steps} steps, " in text and text.endswith(f"For the same batch use {advice}")
    pools = "changes, image pools begin anew,"
    assert batch_size_warnings(6, batch, replicas, has_pools=True) == [text.replace("changes,", pools)]


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_more_epochs_warn_only_if_the_learning_rate_jumps(kind):
    saved = Config.from_settings(lr=0.5, epochs=8, decay_from=4, lr_schedule=kind).optimization
    longer = dataclasses.replace(saved, epochs=12)
    (text,) = learning_rate_warnings(saved, longer, 8)
    assert "the learning rate jump after epoch 8: from 0 (schedule of 8 epochs) to 0.25 (schedule of 12" in text
    assert not learning_rate_warnings(saved, longer, 4)
    assert not learning_rate_warnings(saved, dataclasses.replace(saved, lr=0.1), 8)  # warned of as a changed setting
    constant = Config.from_settings(lr_schedule="constant", epochs=8).optimization
    assert not learning_rate_warnings(constant, dataclasses.replace(constant, epochs=12), 8)


IMAGES = {**DATA, "trainA bytes": "10 bytes (1)"}
REPAIRED = {**DATA, "trainA bytes": "20 bytes (2)"}


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Return a function that starts a run on a checkpoint, and returns its state, its changes and its warnings."""

    def begin(state, images=IMAGES, **settings):
        parts = types.SimpleNamespace(is_chief=True, num_replicas_in_sync=1, fingerprint=lambda: images)
        parts.strategy, parts.global_batch_size, parts.epoch_size = parts, 2, 2
        monkeypatch.setattr("cyclegan.terminal.warnings", ["no GPU"])  # those of a new process
        with open_run(tmp_path, **settings) as run:
            summary = start_run(parts, run, parts, state, parts, False)
            summary.write_page({"state": "training"})
            summary.close(True)
        events = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        (tmp_path / "checkpoints" / "epoch_0004-4").mkdir(parents=True, exist_ok=True)
        return state, [(line["epoch"], line["changes"]) for line in events], log_of_page(tmp_path, "warnings")

    return begin


def test_the_page_of_a_resumed_run_shows_typed_changes_in_its_log_only(begin, tmp_path):
    begin(TrainState(), epochs=4)
    _, changes, warnings = begin(TrainState(epoch=4, global_batch_size=2), epochs=5, lr=1.0)
    log = "\n".join(log_of_page(tmp_path))
    assert "Warning: lr 0.0002 -> 1.0 from here on\n" in log and "Warning: epochs 4 -> 5 makes the learning" in log
    assert warnings == ["no GPU"] and changes == [(4, ["lr 0.0002 -> 1.0", "epochs 4 -> 5"])]


def test_changes_are_those_since_the_checkpoint(begin, tmp_path):
    """A start that ends before its first checkpoint leaves its flags and images, and the next one logs the changes."""
    first, *nothing = begin(TrainState(), epochs=4)
    assert nothing == [[], ["no GPU"]]
    first.epoch, first.global_batch_size = 1, 2

    def resume(**settings):
        return begin(TrainState.from_json(first.to_json()), REPAIRED, epochs=9, **settings)

    expected = [(1, ["lr 0.0002 -> 0.1", "epochs 4 -> 9", "images of trainA 10 bytes (1) -> 20 bytes (2)"])]
    repaired = "images of trainA 10 bytes (1) -> 20 bytes (2): the same names, but other files; training continues with"
    for _ in range(2):  # the first one is killed
        state, *found = resume(lr=0.1)
        assert found == [expected, ["no GPU", f"{repaired} these"]]  # the learning rate does not jump
    state.epoch, state.log_bytes = 2, (tmp_path / "metrics.jsonl").stat().st_size
    first = copy.deepcopy(state)  # the next checkpoint
    for _ in range(2):
        assert resume()[1] == [*expected, (2, ["lr 0.1 -> 0.0002"])]
    assert resume(lr=0.1)[1] == expected


def test_only_typed_settings_of_the_training_are_changes():
    def state(**settings):
        return TrainState(settings=Config.from_settings(**settings).settings())

    now = state(lr=1.0, lambda_cycle=2.0, batch_size=2, checkpoint_minutes=0.0, epochs=300, keep=9)
    expected = Changes(["lambda_cycle 10.0 -> 2.0", "lr 0.0002 -> 1.0"], ["epochs 200 -> 300"], [], [])
    assert state().changes(now) == expected and state().changes(state()) == Changes([], [], [], [])


@pytest.mark.sampled
@pytest.mark.parametrize(
    "replicas, norm, pairs",
    [(1, "batch", {"dataset": "folder", "paired_names": True, "lambda_paired": 1.0}), (2, "instance", {})],
)
def test_timing_changes_nothing_and_traces_once(strategies, make_images, replicas, norm, pairs, caplog):
    strategy, workers = strategies[replicas], Workers(strategies[replicas])
    options = {**FEW_LAYERS, "precision": "float16", "ema": 0.9, "pool_size": 3, "norm": norm}
    with strategy.scope():
        gan = as_trained(GAN(replicas, Config.from_settings(**{**TINIER, **options, **pairs})))
    dataset = UnpairedDataset(
        make_images(6, 16, 1), make_images(6, 16, 2), replicas, (16, 16), seed=0, steps_per_call=2
    )
    if pairs:
        dataset.set_pairs(np.array([[0, 0]]), 1.0)
    before, step, calls, beats = state_values(gan), compile_train_step(strategy, gan), [], []

    def recorded(*arguments):
        calls.append(arguments)
        return step(*arguments)

    def broken(*arguments):
        raise tf.errors.UnimplementedError(None, None, "no kernel\nand a long story")

    seconds = time_steps({"off": recorded, "on": broken}, gan, dataset, workers, lambda: beats.append(len(calls)))
    assert beats == [1, 2, 3, 4] and 0 < seconds["off"] < seconds["on"] == float("inf")
    warnings = [record.getMessage() for record in caplog.records if record.name == setup.__name__]
    assert warnings == ["XLA failed, and is not used: no kernel"]
    for value, other in zip(before, state_values(gan)):
        np.testing.assert_array_equal(value, other)
    step(next(dataset.distributed(strategy)), *calls[0][1:])
    assert step.experimental_get_tracing_count() == 1  # not traced again for training
    with pytest.raises(tf.errors.UnimplementedError):
        time_steps({"off": broken, "on": step}, gan, dataset, workers, lambda: None)


@pytest.mark.parametrize(
    "flags, has_gpu, earlier, xla",
    [
        ({}, True, None, "on"),  # the faster one
        ({}, True, "off", "off"),
        ({}, True, "auto", "on"),
        ({}, False, None, "auto"),
        ({"xla": "off"}, True, "on", "off"),
        ({"xla": "on"}, False, None, "on"),
        ({"deterministic": True}, True, None, "off"),
        ({"norm": "batch"}, True, None, "auto"),
        ({"dropout": 0.1}, True, None, "auto"),
    ],
)
def test_xla_is_timed_only_on_gpus_and_chosen_once(monkeypatch, caplog, flags, has_gpu, earlier, xla):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(hardware, "has_accelerator", lambda: has_gpu)
    monkeypatch.setattr(setup, "time_steps", lambda *_: {"off": 0.0123, "on": 0.01})
    workers = types.SimpleNamespace(broadcast_from_chief=lambda value: value)
    config = Config.from_settings(**flags)
    assert choose_xla(config, earlier, workers, None, {}, None, Watchdog(None, lambda: None)) == xla
    is_timed = has_gpu and earlier in (None, "auto") and not flags
    expected = ["--xla on from here on: a step takes 12.3 ms without XLA, 10.0 ms with XLA"]
    assert caplog.messages[-1:] == (expected if is_timed else [])


def test_training_crops_until_the_rates_decay(make):
    trainer, _ = make(image_size=16, load_size=24, crop_until_decay=True, epochs=4, decay_from=3)
    whole = [geometry.resize(draw("stripes", "trainA", i, 24), (16, 16)) for i in range(2)]
    whole += [image[:, ::-1] for image in whole]
    for epoch in (2, 3):
        image = trainer.splits[0].dataset.image("X", epoch, 0)
        assert any(np.array_equal(image, each) for each in whole) == (epoch == 3)
