"""Parts of the set-up; the trainer as a whole is tested by `test_trainer` with fakes, and by real runs in `tests/system`."""

import threading
import types
import unittest.mock

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from cyclegan import console
from cyclegan.config import Config
from cyclegan.data.sources import SPLITS
from cyclegan.distribution import hardware, watchdog
from cyclegan.distribution.watchdog import Watchdog
from cyclegan.distribution.workers import Workers
from cyclegan.errors import UserError
from cyclegan.training import setup
from cyclegan.training.autotune import Trial
from cyclegan.training.setup import config_of_worker, load_data, make_trainer

CHIEF, OTHER = types.SimpleNamespace(is_chief=True), types.SimpleNamespace(is_chief=False)
NO_WATCH = Watchdog(None, lambda: None)


def test_precision_follows_the_devices_only_if_it_is_not_given(monkeypatch):
    monkeypatch.setattr(hardware, "best_precision", lambda: "bfloat16")
    for given, expected in (("auto", "bfloat16"), ("float32", "float32"), ("float16", "float16")):
        config = Config.from_settings(precision=given, verbose=2)
        assert config_of_worker(config, CHIEF) == config.replace(precision=expected)


@pytest.mark.parametrize("tf32", ["off", "on"])  # the default last, for the tests of other files
def test_tf32_is_set_before_anything_is_computed(monkeypatch, tf32):
    class Measured(Exception):
        pass

    def measure(precision):
        raise Measured(tf.config.experimental.tensor_float_32_execution_enabled())

    monkeypatch.setattr(hardware, "measure_peak", measure)
    with pytest.raises(Measured) as measured:
        make_trainer(Config.from_settings(precision="float32", tf32=tf32), None, None, None, None)
    assert measured.value.args == (tf32 == "on",)


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_only_the_chief_shows_progress(verbose):
    config = Config.from_settings(precision="float32", verbose=verbose)
    assert config_of_worker(config, CHIEF) is config
    assert config_of_worker(config, OTHER) == config.replace(verbose=0)


def test_loaded_images_are_compared_with_the_run(tmp_path, strategies):
    for split in SPLITS:
        (tmp_path / "data" / split).mkdir(parents=True)
        for number in range(2):
            Image.fromarray(np.full((16, 20, 3), number, np.uint8)).save(tmp_path / "data" / split / f"{number}.png")
    config = Config.from_settings(dataset=str(tmp_path / "data"), image_size=16, load_size=24, cache="disk", verbose=0)
    checked = []
    run = types.SimpleNamespace(path=tmp_path / "run", check_data=checked.append, config=config)
    data = load_data(config, Workers(strategies[1]), run)
    assert checked == [data.fingerprint()] and checked[0]["testB"].startswith("2 images (")
    assert data.train_x.images.shape == (2, 24, 24, 3) and data.test_y.images.shape == (2, 16, 16, 3)
    assert f" GB in {run.path})" in data.notes[-1]  # a single process keeps decoded images in the run's folder

    overview = setup._facts(
        config.data, config.networks.multiple, "float32", Workers(strategies[1]), run, data, unittest.mock.MagicMock()
    )
    assert overview.notes[: len(data.notes)] == tuple(data.notes)
    assert (
        overview.notes[-1].startswith("Data: python scripts/inspect_data.py ")
        and len(overview.notes) == len(data.notes) + 3
    )

    def refuse(fingerprint):
        raise UserError("other images")

    with pytest.raises(UserError, match="other images"):
        run = types.SimpleNamespace(path=run.path, check_data=refuse, config=config)
        load_data(config, Workers(strategies[1]), run)


def test_config_json_gets_the_measured_range(tmp_path, strategies):
    for split in SPLITS:
        (tmp_path / "data" / split).mkdir(parents=True)
        for number in range(1, 3):
            Image.fromarray(np.full((16, 20, 3), 100 * number, np.uint8)).save(
                tmp_path / "data" / split / f"{number}.png"
            )
    settings = {"dataset": str(tmp_path / "data"), "image_size": 16, "load_size": 16, "verbose": 0}
    config = Config.from_settings(value_range_y="auto", **settings)
    run = types.SimpleNamespace(path=tmp_path, check_data=lambda fingerprint: None, config=config)
    data = load_data(config, Workers(strategies[1]), run)
    assert run.config == config.replace(value_range_y="100:200")
    assert (
        "--value_range_y 100:200: percentiles 0.1 and 99.9 of 40000 values of trainB; fixed for this run" in data.notes
    )
    assert [data.train_y.images[i].max() for i in range(2)] == [0, 65535] and data.train_x.images[0].max() == 100 * 257


@pytest.mark.parametrize(
    "given, saved, on_gpu, flags, chosen, trials",
    [
        ("auto", None, True, {}, "on", 1),
        ("auto", "auto", True, {}, "on", 1),
        ("auto", "off", True, {}, "off", 0),  # a resumed run computes as before
        ("off", "on", True, {}, "off", 0),
        ("auto", None, False, {}, "auto", 0),
        ("auto", None, True, {"dropout": 0.5}, "auto", 0),  # XLA makes other masks
        ("auto", None, True, {"deterministic": True}, "off", 0),  # two runs could choose different forms
        ("auto", "on", True, {"deterministic": True}, "on", 0),
        ("on", None, False, {}, "on", 0),
    ],
)
def test_the_choice_of_xla_is_recorded(monkeypatch, caplog, given, saved, on_gpu, flags, chosen, trials):
    caplog.set_level("INFO")
    tried = []
    monkeypatch.setattr(hardware, "has_accelerator", lambda: on_gpu)
    monkeypatch.setattr(setup, "compile_train_step", lambda *_, xla: "compiled")
    trial = Trial("with XLA", {"without XLA": 0.002, "with XLA": 0.001})
    monkeypatch.setattr(setup, "try_forms", lambda forms, *_: tried.append(forms) or trial)
    config = Config.from_settings(xla=given, steps_per_call=1, **flags)
    run = types.SimpleNamespace(config=config, saved_config=saved and Config.from_settings(xla=saved))
    train = types.SimpleNamespace(function="plain", dataset=None)
    found = setup._choose_form(config, types.SimpleNamespace(strategy=None), run, None, train, NO_WATCH)
    assert found.performance.xla == run.config.performance.xla == chosen and len(tried) == trials
    assert train.function == ("compiled" if chosen == "on" else "plain")
    line = "--xla on from here on: a step takes 2.0 ms without XLA, 1.0 ms with XLA"
    assert (line in caplog.messages) == bool(trials)


@pytest.mark.parametrize(
    "flags, chosen, trials",
    [
        ({}, 5, 1),
        ({"no_peak": True}, 5, 1),
        ({"xla": "on"}, 5, 1),
        ({"log_every": 8}, 4, 1),
        ({"steps_per_call": 2}, 2, 0),
        ({"checkpoint_minutes": 0}, 1, 0),
    ],
)
def test_steps_per_call_follow_the_time_of_a_step(monkeypatch, flags, chosen, trials):
    tried = []
    monkeypatch.setattr(hardware, "has_accelerator", lambda: False)
    monkeypatch.setattr(setup, "compile_train_step", lambda *_, xla: "compiled")
    monkeypatch.setattr(
        setup, "try_forms", lambda forms, *_: tried.append(forms) or Trial(*forms, dict.fromkeys(forms, 0.02))
    )
    config = Config.from_settings(**flags)
    workers = types.SimpleNamespace(strategy=None, broadcast_from_chief=lambda steps: steps)
    dataset = types.SimpleNamespace(steps_per_call=config.performance.steps_per_call or 1)
    train = types.SimpleNamespace(function="plain", dataset=dataset)
    run = types.SimpleNamespace(config=config, saved_config=None)
    setup._choose_form(config, workers, run, None, train, NO_WATCH)
    assert dataset.steps_per_call == chosen and len(tried) == trials
    assert train.function == ("compiled" if "xla" in flags else "plain")


def test_a_worker_that_waits_in_the_trial_ends(monkeypatch):
    ended, found = threading.Event(), []

    def end(*arguments):
        found.append(arguments)
        ended.set()

    def wait(forms, model, dataset, workers, beat):  # as for a worker that is lost
        beat()
        assert ended.wait(10)
        return Trial("without XLA", {"without XLA": 0.1})

    monkeypatch.setattr(console, "end", end)
    monkeypatch.setattr(watchdog, "INTERVAL", 0.02)
    monkeypatch.setattr(setup, "compile_train_step", lambda *_, xla: "compiled")
    monkeypatch.setattr(setup, "try_forms", wait)
    config = Config.from_settings()
    workers = types.SimpleNamespace(strategy=None, broadcast_from_chief=lambda steps: steps)
    train = types.SimpleNamespace(function="plain", dataset=types.SimpleNamespace(steps_per_call=1))
    run, guard = types.SimpleNamespace(config=config, saved_config=None), Watchdog(0.1, lambda: "epoch_0003")
    setup._choose_form(config, workers, run, None, train, guard)
    assert "(--step_timeout), so training stops" in found[0][0] and found[0][1] == 1
