"""Time of a training step on the devices of the run, and the fastest of several equivalent forms of the step."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution import hardware
from cyclegan.distribution.workers import Workers
from cyclegan.errors import first_line
from cyclegan.training.checkpoint_policy import REQUESTS
from cyclegan.training.gan import GAN
from cyclegan.training.metric_totals import MetricTotals
from cyclegan.training.splits import StepFunction

RUNS = 3  # timed calls of each of several forms, of which the fastest counts

logger = logging.getLogger(__name__)


class Trial(NamedTuple):
    """Outcome of a trial.

    Attributes:
        fastest: Name of the fastest form.
        seconds: Seconds of a step by name of the form, without the forms that failed.
    """

    fastest: str
    seconds: dict[str, float]


def try_forms(
    forms: Mapping[str, StepFunction],
    gan: GAN,
    dataset: UnpairedDataset,
    workers: Workers,
    beat: Callable[[], None] = lambda: None,
) -> Trial:
    """Time each form on images like those of the run; collective. Training is not affected.

    The weights of the samples are NaN, so that no step is finite, and none changes the state. The functions are traced for any
    number of steps per call, and are not traced again in training.

    Args:
        forms: Train functions by name, see `make_train_function`. The first one has to work; others may fail.
        gan: The networks that the functions train.
        dataset: The training pairs, for the shapes of a call.
        workers: All workers; they agree on the choice.
        beat: Function that is called after each call of a form.
    """
    arguments, requests = _arguments(gan, dataset, workers)
    scale = [(variable, variable.numpy()) for variable in gan.loss_scale.variables]
    runs, seconds = RUNS if len(forms) > 1 else 1, {}
    for number, (name, function) in enumerate(forms.items()):
        try:
            step = _time(function, arguments, requests, runs, beat) / dataset.steps_per_call
        except tf.errors.OpError as error:  # what XLA cannot compile, or lacks the memory for
            if not number:
                raise
            logger.warning(f"The training step {name} failed, and is not used: {first_line(error)}")
            step = None
        if workers.all_true(step is not None):
            assert step is not None
            seconds[name] = step
    for variable, value in scale:
        variable.assign(value)  # a step that is not finite halves it
    hardware.reset_peak_memory()  # of all forms
    names = list(forms)
    fastest = names[workers.broadcast_from_chief(names.index(min(seconds, key=seconds.__getitem__)))]
    return Trial(fastest, seconds)


def _arguments(gan: GAN, dataset: UnpairedDataset, workers: Workers) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call as in training."""
    steps, count = dataset.steps_per_call, gan.global_batch_size // workers.strategy.num_replicas_in_sync
    random = np.random.default_rng(0)
    shapes = ((steps, count, *dataset.size, domain.shape[3]) for domain in dataset.domains)
    values = [random.integers(0, 256, shape).astype(d.dtype) for shape, d in zip(shapes, dataset.domains)]
    values += [np.full([steps, count], np.nan, np.float32)] * (2 if dataset.has_pairs else 1)
    batches = tuple(_distribute(workers.strategy, value) for value in values)
    totals, rates = MetricTotals(gan.metric_names["train"], {}).tensors, tf.zeros([steps, 2])
    requests = {"requests": {name: tf.constant(0.0) for name in REQUESTS}} if workers.count > 1 else {}
    return (batches, totals, tf.constant(steps), tf.constant(0), rates), requests


def _distribute(strategy: tf.distribute.Strategy, value: np.ndarray) -> Any:
    """Return an array on each replica's device, as iterators do; otherwise TensorFlow would optimize the graph once more."""
    devices = strategy.extended.worker_devices

    def on_replica(context: tf.distribute.ValueContext) -> tf.Tensor:
        with tf.device(devices[context.replica_id_in_sync_group % len(devices)]):
            return tf.identity(value)

    values = strategy.experimental_distribute_values_from_function(on_replica)
    local = strategy.experimental_local_results(values)
    return local[0] if len(local) == 1 else values  # a plain tensor if there is one replica here


def _time(
    function: Any, arguments: tuple[Any, ...], requests: dict[str, Any], runs: int, beat: Callable[[], None]
) -> float:
    """Return the seconds of the fastest call after the first one, which compiles."""
    batches, totals, steps, first, rates = arguments
    specs = tuple(_any_length(tf.type_spec_from_value(batch)) for batch in batches)
    function.get_concrete_function(specs, totals, steps, first, tf.TensorSpec([None, *rates.shape[1:]]), **requests)
    times = []
    for _ in range(1 + runs):
        start = time.perf_counter()
        _, is_finite, _ = function(*arguments, **requests)
        assert not is_finite.numpy().any()  # waits for the devices
        times.append(time.perf_counter() - start)
        beat()
    return min(times[1:])


def _any_length(spec: tf.TypeSpec) -> tf.TypeSpec:
    """Return the specification of a tensor or per-replica value with a first axis of any length."""
    if isinstance(spec, tf.TensorSpec):
        return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
    # TensorFlow has no public way to take the specification of a per-replica value apart.
    return type(spec)(*map(_any_length, spec._flat_tensor_specs))
