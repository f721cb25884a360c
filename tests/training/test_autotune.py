import logging
import types

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution import hardware
from cyclegan.distribution.workers import Watchdog, Workers
from cyclegan.training import setup
from cyclegan.training.setup import choose_xla, time_steps
from cyclegan.training.step import GAN, compile_train_step
from tests.training.helpers import FEW_LAYERS, TINIER, as_trained, state_values


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
    assert caplog.messages == ["XLA failed, and is not used: no kernel"]
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
