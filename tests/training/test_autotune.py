import logging

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution import hardware
from cyclegan.distribution.workers import Workers
from cyclegan.training.autotune import try_forms
from cyclegan.training.gan import GAN
from cyclegan.training.step import compile_train_step
from tests.training.helpers import FEW_LAYERS, TINIER, as_trained, state_values


@pytest.mark.sampled
@pytest.mark.parametrize(
    "replicas, norm, pairs",
    [(1, "batch", {"dataset": "folder", "paired_names": True, "lambda_paired": 1.0}), (2, "instance", {})],
)
def test_a_trial_takes_the_fastest_form_and_changes_nothing(
    strategies, make_images, replicas, norm, pairs, caplog, monkeypatch
):
    caplog.set_level(logging.WARNING)
    strategy = strategies[replicas]
    options = {**FEW_LAYERS, "precision": "float16", "ema": 0.9, "pool_size": 3, "norm": norm}
    with strategy.scope():
        gan = as_trained(GAN(replicas, Config.from_settings(**{**TINIER, **options, **pairs})))
    x, y = make_images(6, 16, 1), make_images(6, 16, 2)
    dataset = UnpairedDataset(x, y, replicas, (16, 16), seed=0, steps_per_call=2)
    if pairs:
        dataset.set_pairs(np.array([[0, 0]]), 1.0)
    before, step, calls, resets, beats = state_values(gan), compile_train_step(strategy, gan), [], [], []
    monkeypatch.setattr(hardware, "reset_peak_memory", lambda: resets.append(len(calls)))

    def slow(*arguments):
        calls.append(arguments)
        [step(*arguments) for _ in range(3)]
        return step(*arguments)

    def broken(*arguments):
        raise tf.errors.UnimplementedError(None, None, "no kernel\nand a long story")

    slow.get_concrete_function = broken.get_concrete_function = step.get_concrete_function
    forms = {"slow": slow, "plain": step, "broken": broken}
    trial = try_forms(forms, gan, dataset, Workers(strategy), lambda: beats.append(len(calls)))
    assert resets == [4]  # after the last call
    assert beats == [1, 2, 3, 4, 4, 4, 4, 4]  # after each call, those of "plain" among them
    assert trial.fastest == "plain" and set(trial.seconds) == {"slow", "plain"} and len(calls) == 4
    assert 0 < trial.seconds["plain"] < trial.seconds["slow"]
    assert caplog.messages == ["The training step broken failed, and is not used: no kernel"]
    for value, other in zip(before, state_values(gan)):
        np.testing.assert_array_equal(value, other)
    devices = [[part.device for part in strategy.experimental_local_results(each)] for each in calls[0][0]]
    for steps in (2, 1, 3):
        dataset.steps_per_call = steps
        batches = next(dataset.distributed(strategy))
        assert devices == [[part.device for part in strategy.experimental_local_results(each)] for each in batches]
        step(batches, calls[0][1], tf.constant(steps), calls[0][3], tf.zeros([steps, 2]))
    assert step.experimental_get_tracing_count() == 1  # not traced again for training


def test_the_first_form_has_to_work(strategies, make_images):
    def broken(*arguments):
        raise tf.errors.InternalError(None, None, "broken")

    broken.get_concrete_function = broken
    gan = GAN(1, Config.from_settings(**TINIER))
    images = make_images(2, 16, 1)
    with pytest.raises(tf.errors.InternalError, match="broken"):
        try_forms({"plain": broken}, gan, UnpairedDataset(images, images, 1, (16, 16)), Workers(strategies[1]))
