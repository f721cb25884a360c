"""Forms of the step that the benchmark compares."""

from __future__ import annotations

import concurrent.futures
import time
import types
from typing import Any, Callable, NamedTuple

import tensorflow as tf

from cyclegan.benchmarking import tutorial_step
from cyclegan.benchmarking.settings import Setting
from cyclegan.methods.metric_names import SAMPLES
from cyclegan.training.gan import GAN
from cyclegan.training.step import compile_train_step


class CompiledStep(NamedTuple):
    """A step that is ready to be called.

    Attributes:
        gan: The networks; `None` for a simulated step.
        function: The `tf.function`; `None` for a simulated step.
        call: Function that starts the steps of one call on the batches of a dataset. The `numpy` method of its result waits.
    """

    gan: GAN | None
    function: tf.types.experimental.PolymorphicFunction | None
    call: Callable[[Any], Any]


def default_form(strategy: tf.distribute.Strategy, setting: Setting) -> CompiledStep:
    """Return the step of the package."""
    with strategy.scope():
        gan = GAN(setting.batch, setting.config())
    function = compile_train_step(strategy, gan, setting.xla == "on")
    totals = {key: tf.constant(0.0, tf.float64) for key in (*gan.metric_names["train"], SAMPLES)}
    steps = tf.constant(setting.steps_per_call)
    return CompiledStep(gan, function, lambda batches: function(batches, totals, steps)[1])


def plain_form(strategy: tf.distribute.Strategy, setting: Setting) -> CompiledStep:
    """Return the plain step, as tutorials write it."""
    gan, function = tutorial_step.make(strategy, setting.batch, setting.config())
    return CompiledStep(gan, function, function)


def simulated_step(setting: Setting) -> CompiledStep:
    """Return a simulated step: its calls run one after the other, take time, and leave the processor free."""
    device, seconds = concurrent.futures.ThreadPoolExecutor(1), setting.elsewhere / 1000 * setting.steps_per_call
    return CompiledStep(
        None, None, lambda batches: types.SimpleNamespace(numpy=device.submit(time.sleep, seconds).result)
    )


def make(strategy: tf.distribute.Strategy, setting: Setting) -> CompiledStep:
    """Return the step of a setting."""
    if setting.elsewhere:
        return simulated_step(setting)
    return (plain_form if setting.form == "plain" else default_form)(strategy, setting)
