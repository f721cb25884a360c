"""Choice between the forms of the training step, and of the steps per call, by their time on the devices of the run."""

from __future__ import annotations

import logging

from cyclegan import terminal
from cyclegan.config.sections import NetworkConfig, PerformanceConfig, RunConfig, choose_steps_per_call
from cyclegan.distribution import hardware
from cyclegan.distribution.watchdog import Watchdog
from cyclegan.distribution.workers import Workers
from cyclegan.training.autotune import try_forms
from cyclegan.training.gan import GAN
from cyclegan.training.out_of_memory import explain_out_of_memory
from cyclegan.training.splits import Split
from cyclegan.training.step import compile_train_step

WITHOUT_XLA, WITH_XLA = "without XLA", "with XLA"  # forms of the step

logger = logging.getLogger(__name__)


def choose_form(
    performance: PerformanceConfig,
    networks: NetworkConfig,
    intervals: RunConfig,
    earlier_xla: str | None,
    workers: Workers,
    model: GAN,
    train: Split,
    watchdog: Watchdog,
) -> str:
    """Give the training pairs their step function and their steps per call; return the value of --xla from here on; collective.

    On GPUs --xla auto becomes the choice of the run so far or else the faster form. Nothing is timed with --deterministic, because
    times differ between two runs, with --dropout, or with --norm batch: there XLA is off.

    Args:
        performance: Settings of speed.
        networks: Architecture of the networks.
        intervals: Settings with the intervals of the output.
        earlier_xla: --xla of the run so far; `None` for a new run.
        workers: All workers; they agree on the choice.
        model: The networks.
        train: The training pairs and their steps, with the form without XLA.
        watchdog: Watchdog of the timed steps.
    """
    xla: str = performance.xla
    if xla == "auto" and earlier_xla:
        xla = earlier_xla
    if xla == "auto" and performance.deterministic:
        xla = "off"
    forms = {WITHOUT_XLA: train.function, WITH_XLA: compile_train_step(workers.strategy, model, xla=True)}
    is_open = xla == "auto" and hardware.has_accelerator() and networks.norm != "batch"
    is_open = is_open and not networks.dropout  # XLA would make other masks
    if not is_open:
        del forms[WITHOUT_XLA if xla == "on" else WITH_XLA]
    train.function = next(iter(forms.values()))
    chooses_steps = not performance.steps_per_call and bool(intervals.checkpoint_minutes)
    if not is_open and not chooses_steps:
        return xla
    text = "Timing the training step with and without XLA" if is_open else "Tracing the training step"
    with terminal.phase(text), explain_out_of_memory(), watchdog:
        trial = try_forms(forms, model, train.dataset, workers, watchdog.beat)
    train.function = forms[trial.fastest]
    if chooses_steps:
        steps = choose_steps_per_call(trial.seconds[trial.fastest], intervals.log_every)
        train.dataset.steps_per_call = workers.broadcast_from_chief(steps)
    if is_open:
        xla = "on" if trial.fastest == WITH_XLA else "off"
        times = ", ".join(f"{1000 * seconds:.1f} ms {name}" for name, seconds in trial.seconds.items())
        logger.info(f"--xla {xla} from here on: a step takes {times}")
    return xla
