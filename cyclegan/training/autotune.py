"""The choice of --xla auto: a training step is timed with and without XLA on the devices of the run."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping

import tensorflow as tf

from cyclegan import terminal
from cyclegan.config import Config
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution import hardware
from cyclegan.distribution.train_function import explain_out_of_memory
from cyclegan.distribution.workers import Watchdog, Workers
from cyclegan.errors import first_line
from cyclegan.methods.objective import SAMPLES
from cyclegan.training.checkpoint_policy import REQUESTS
from cyclegan.training.step import GAN

RUNS = 3  # timed calls, of which the fastest counts

logger = logging.getLogger(__name__)


def choose_xla(
    config: Config,
    earlier: str | None,
    workers: Workers,
    model: GAN,
    functions: Mapping[str, Callable],
    dataset: UnpairedDataset,
    watchdog: Watchdog,
) -> str:
    """Return the value of --xla from here on, where "auto" means "off"; collective.

    On GPUs "auto" becomes the choice of the run so far or else the faster one. Nothing is timed with --deterministic, because times
    differ between two runs, with --dropout, because XLA would make other masks, or with --norm batch: there XLA is off.

    `earlier` is --xla of the run so far, or `None`. `functions` are train functions without ("off") and with XLA ("on").
    """
    xla: str = config.performance.xla
    xla = earlier if xla == "auto" and earlier else xla
    if xla == "auto" and config.performance.deterministic:
        xla = "off"
    if xla != "auto" or not hardware.has_accelerator() or config.networks.norm == "batch" or config.networks.dropout:
        return xla
    with terminal.phase("Timing the training step with and without XLA"), explain_out_of_memory(), watchdog:
        seconds = time_steps(functions, model, dataset, workers, watchdog.beat)
    xla = "on" if workers.broadcast_from_chief(int(seconds["on"] < seconds["off"])) else "off"
    off, on = (f"{1000 * seconds[name]:.1f} ms" for name in ("off", "on"))
    logger.info(f"--xla {xla} from here on: a step takes {off} without XLA, {on} with XLA")
    return xla


def time_steps(
    functions: Mapping[str, Callable], model: GAN, dataset: UnpairedDataset, workers: Workers, beat: Callable[[], None]
) -> dict[str, float]:
    """Return the seconds of a step by name of the function, infinity for a step that XLA can't compile; training is not affected.

    The samples have weights of NaN, so that no step is finite, and none changes the state. Arguments as for `choose_xla`.
    """
    x, y, *others = next(dataset.distributed(workers.strategy))
    spoiled = tf.function(lambda *parts: workers.strategy.run(lambda *each: [p * math.nan for p in each], args=parts))
    totals = {name: tf.constant(0.0, tf.float64) for name in (*model.metric_names["train"], SAMPLES)}
    steps = dataset.call(0, 0, 0).steps
    rates = tf.zeros([dataset.steps_per_call, 2])
    arguments = (x, y, *spoiled(*others)), totals, tf.constant(steps), tf.constant(0), rates
    requests = {"requests": {name: tf.constant(0.0) for name in REQUESTS}} if workers.count > 1 else {}
    scale, seconds = [(variable, variable.numpy()) for variable in model.loss_scale.state.variables], {}
    for name, function in functions.items():
        times = []
        try:
            for _ in range(1 + RUNS):  # the first one compiles
                start = time.perf_counter()
                function(*arguments, **requests)[1].numpy()  # waits for the devices
                times.append((time.perf_counter() - start) / steps)
                beat()
        except tf.errors.OpError as error:  # what XLA can't compile, or lacks the memory for
            if name == "off":
                raise
            logger.warning(f"XLA failed, and is not used: {first_line(error)}")
        seconds[name] = min(times[1:]) if workers.all_true(len(times) > RUNS) else math.inf
    for variable, value in scale:
        variable.assign(value)  # a step that is not finite halves it
    hardware.reset_peak_memory()  # of both functions
    return seconds
