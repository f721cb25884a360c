"""Assembly of a trainer with the policies and callbacks that a configuration asks for."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Optional, cast

from cyclegan.checkpointing.manager import CheckpointManager
from cyclegan.checkpointing.train_state import TrainState
from cyclegan.config import Config
from cyclegan.distribution.workers import Workers
from cyclegan.reporting.summaries import SummaryWriter
from cyclegan.reporting.throughput import Throughput
from cyclegan.training import schedule
from cyclegan.training.callbacks.base import Callback, Summary
from cyclegan.training.callbacks.checkpoint import CheckpointCallback
from cyclegan.training.callbacks.evaluate import EvaluationCallback, Evaluator
from cyclegan.training.callbacks.log_metrics import MetricsCallback
from cyclegan.training.callbacks.plot import PlotCallback
from cyclegan.training.callbacks.profile import ProfileCallback
from cyclegan.training.callbacks.report import ReportCallback
from cyclegan.training.callbacks.silent_failures import SilentFailureCallback
from cyclegan.training.checkpoint_policy import CheckpointPolicy
from cyclegan.training.divergence import DivergencePolicy
from cyclegan.training.gan import GAN
from cyclegan.training.passes import PassRunner
from cyclegan.training.schedule import StepLearningRates
from cyclegan.training.signals import Signals
from cyclegan.training.splits import Split
from cyclegan.training.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class Parts:
    """Parts of a run that its trainer, policies and callbacks share.

    Attributes:
        model: The networks.
        train: The training pass.
        test: The test pass over the held-out pairs.
        state: Position to start from; new, or restored together with the networks.
        checkpoints: Checkpoints of the run.
        summary: Writer of the metrics, events and sample images.
    """

    model: GAN
    train: Split
    test: Split
    state: TrainState
    checkpoints: CheckpointManager
    summary: Summary


def assemble_trainer(
    config: Config,
    workers: Workers,
    parts: Parts,
    evaluator: Optional[Evaluator] = None,
    check_folder: Callable[[], None] = lambda: None,
) -> Trainer:
    """Return a trainer with the policies and callbacks that a configuration asks for.

    Args:
        config: The configuration.
        workers: All workers.
        parts: Parts of the run.
        evaluator: Evaluator of the generators, on the chief.
        check_folder: Function that raises an error if the folder of the run was removed or moved.
    """
    train, test, summary, checkpoints = parts.train, parts.test, parts.summary, parts.checkpoints
    minutes, max_bad_steps = config.run.checkpoint_minutes, config.optimization.max_bad_steps
    policy = CheckpointPolicy(checkpoints, Signals(), summary, minutes, check_folder, workers)
    datasets = {split.name: split.dataset for split in (train, test)}
    divergence = DivergencePolicy(max_bad_steps, datasets, checkpoints, summary, workers.strategy)
    learning_rates = StepLearningRates(functools.partial(schedule.learning_rates, config.optimization), train.dataset)
    throughput = Throughput(train.throughput.flops, train.throughput.peak)
    callbacks = [
        ProfileCallback(config.performance.profile_steps, summary.folder, train.dataset, config.optimization.epochs),
        EvaluationCallback(evaluator, config.evaluation.evaluate_every, workers, divergence),
        MetricsCallback(summary, config.run.log_every, learning_rates, throughput),
        SilentFailureCallback(summary, config.objective.adversarial),
        *_plots(config, workers, parts),
        ReportCallback({split.name: split.metric_names for split in (train, test)}, config.run.verbose > 1),
        CheckpointCallback(policy, config.run.checkpoint_every, divergence),
    ]
    passes = PassRunner(
        strategy=workers.strategy,
        checkpoint_policy=policy,
        divergence=divergence,
        callbacks=callbacks,
        learning_rates=learning_rates,
        throughput=throughput,
        show_bars=config.run.verbose > 0,
    )
    return Trainer(parts.state, config.optimization.epochs, (train, test), passes)


def _plots(config: Config, workers: Workers, parts: Parts) -> list[Callback]:
    if not workers.is_chief:
        return []
    summary = cast(SummaryWriter, parts.summary)  # the chief writes
    return [PlotCallback(parts.model, parts.test.dataset, summary, config.run.plot_every)]
