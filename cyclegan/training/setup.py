"""Set-up of a training run: its images, its networks, the position to start from, and the trainer with its callbacks."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import tempfile
from collections.abc import Callable
from typing import cast

import tensorflow as tf

from cyclegan import terminal
from cyclegan.config import Config
from cyclegan.config.data import DataConfig
from cyclegan.config.sections import OptimizationConfig
from cyclegan.data import sources
from cyclegan.data.sources import Domains
from cyclegan.distribution import hardware
from cyclegan.distribution.watchdog import Watchdog
from cyclegan.distribution.workers import Workers
from cyclegan.inspection import summary as inspection_summary
from cyclegan.networks import compat
from cyclegan.run import overview, trackers
from cyclegan.run.manager import CheckpointManager
from cyclegan.run.run_directory import RunDirectory
from cyclegan.run.summaries import NullSummaryWriter, SummaryWriter
from cyclegan.run.throughput import Throughput
from cyclegan.run.train_state import TrainState
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
from cyclegan.training.pass_runner import PassRunner
from cyclegan.training.resume_warnings import batch_size_warnings, learning_rate_warnings
from cyclegan.training.schedule import StepLearningRates
from cyclegan.training.signals import Signals
from cyclegan.training.splits import Split, make_splits
from cyclegan.training.step_form import choose_form
from cyclegan.training.trainer import Trainer

logger = logging.getLogger(__name__)

MakeEvaluator = Callable[..., Evaluator]  # see `evaluation.in_training.make_evaluator`


@dataclasses.dataclass(frozen=True)
class Parts:
    """Parts of a run that its trainer, policies and callbacks share.

    Attributes:
        model: The networks.
        train: The training pairs and their steps.
        test: The held-out pairs and their steps.
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


def config_of_worker(config: Config, workers: Workers) -> Config:
    """Return the configuration of a worker, with the precision of its devices; only the chief shows progress."""
    if config.performance.precision == "auto":
        # config.json records the choice, so that training warns if another machine chooses differently.
        config = config.replace(precision=hardware.best_precision())
    return config if workers.is_chief else config.replace(verbose=0)


def load_data(config: Config, workers: Workers, run: RunDirectory) -> Domains:
    """Load the images on every worker; check that all workers, and the run so far, have the same images.

    Raises:
        UserError: Images are missing, can't be used or differ from the run's images so far, or the workers differ.
    """
    is_tfds = config.data.is_tfds
    same = {"dataset of TensorFlow Datasets": is_tfds, "output_dir": os.path.abspath(config.run.output_dir)}
    workers.check_equal({**config.shared_settings, **compat.stack(), **same})
    cache_folder = run.path if workers.count == 1 else tempfile.gettempdir()
    with workers.chief_first(is_tfds):  # the others read what the chief has prepared
        data = sources.load_domains(
            run.config.data,
            config.networks.multiple,
            cache_dir=cache_folder,
            local_workers=workers.count_on_this_host(),
            bars=config.run.verbose > 0,
        )
    run.check_data(data.fingerprint())
    with terminal.phase("Waiting for the other workers", if_slow=True):
        workers.check_equal({**data.fingerprint(), **data.value_ranges})
    run.config = run.config.replace(**data.value_ranges)
    return data


@tf.autograph.experimental.do_not_convert  # Keras 2 would convert every layer, which takes a second
def make_trainer(
    config: Config, workers: Workers, run: RunDirectory, data: Domains, make_evaluator: MakeEvaluator
) -> Trainer:
    """Return a trainer with new networks, or with the networks of the newest checkpoint; log the overview of the run.

    Args:
        config: The configuration.
        workers: All workers.
        run: Folder of the run. It is written to only if epochs are left to train.
        data: The images.
        make_evaluator: Function that makes the evaluator, called on the chief if --evaluate_every is given.

    Raises:
        UserError: There are checkpoints, but none can be read; or the folder can't be written to.
    """
    hardware.set_arithmetic(config.performance.tf32 == "on", config.performance.deterministic)
    with terminal.phase("Building the networks"):
        peak = 0.0 if config.performance.no_peak else hardware.measure_peak(config.performance.precision)
        global_batch_size = workers.strategy.num_replicas_in_sync * config.optimization.batch_size
        with workers.strategy.scope():
            model = workers.keep_alive(GAN(global_batch_size, config, data.size))
            checkpoints = workers.keep_alive(
                CheckpointManager(run.path / "checkpoints", model.state(), config.run.keep, workers)
            )
            restored = None if config.run.clear_output_dir else checkpoints.restore()
        run.check_restored(restored and restored.train_state)
        state = restored[0] if restored else TrainState()
        train, test = make_splits(
            model,
            data,
            workers,
            config.data,
            steps_per_call=config.performance.steps_per_call or 1,
            uses_pairs=config.uses_pairs,
            peak=peak,
        )
    if not state.is_done(config.optimization.epochs, config.evaluation.patience):
        watchdog = _make_watchdog(config.distribution.step_timeout, workers, checkpoints)
        earlier_xla = run.saved_config.performance.xla if run.saved_config else None
        xla = choose_form(config.performance, config.networks, config.run, earlier_xla, workers, model, train, watchdog)
        config, run.config = config.replace(xla=xla), run.config.replace(xla=xla)
        test.dataset.steps_per_call = train.dataset.steps_per_call
    evaluator = None
    if workers.is_chief and config.evaluation.evaluate_every:
        features, is_paired = config.evaluation.evaluate_features, config.data.is_embedded
        images, bars = (data.test_x.images, data.test_y.images), config.run.verbose > 0
        with terminal.phase("Loading the network for FID and KID", if_slow=True):
            evaluator = make_evaluator(features, model.generators_in_use, *images, data.size, is_paired, bars)
    parts = Parts(model, train, test, state, checkpoints, NullSummaryWriter())
    with terminal.phase("Comparing the images", if_slow=True):
        facts = _facts(config.data, config.networks.multiple, config.performance.precision, workers, run, data, parts)
    overview.log(config, facts)
    if not state.is_done(config.optimization.epochs, config.evaluation.patience):
        parts = dataclasses.replace(parts, summary=_start_run(config.optimization, workers, run, data, parts))
    return workers.keep_alive(assemble_trainer(config, workers, parts, evaluator, run.check, run.note_checkpoint))


def assemble_trainer(
    config: Config,
    workers: Workers,
    parts: Parts,
    evaluator: Evaluator | None = None,
    check_folder: Callable[[], None] = lambda: None,
    note_checkpoint: Callable[[], None] = lambda: None,
) -> Trainer:
    """Return a trainer with the policies and callbacks that a configuration asks for.

    Args:
        config: The configuration.
        workers: All workers.
        parts: Parts of the run.
        evaluator: Evaluator of the generators, on the chief.
        check_folder: Function that raises an error if the folder of the run was removed or moved.
        note_checkpoint: Function that is called when a new run has its first checkpoint.
    """
    train, test, summary, checkpoints = parts.train, parts.test, parts.summary, parts.checkpoints
    minutes, patience = config.run.checkpoint_minutes, config.evaluation.patience
    watchdog = _make_watchdog(config.distribution.step_timeout, workers, checkpoints)
    policy = CheckpointPolicy(checkpoints, Signals(), summary, minutes, check_folder, workers, watchdog.beat)
    datasets = {split.name: split.dataset for split in (train, test)}
    divergence = DivergencePolicy(config.optimization.max_bad_steps, datasets, checkpoints, summary, workers.strategy)
    learning_rates = StepLearningRates(functools.partial(schedule.learning_rates, config.optimization), train.dataset)
    throughput = Throughput(train.throughput.flops, train.throughput.peak)
    writer, objective = cast(SummaryWriter, summary), config.objective  # the writer is on the chief
    plots = [PlotCallback(parts.model, test.dataset, writer, config.run.plot_every)] if workers.is_chief else []
    callbacks: list[Callback] = [
        ProfileCallback(config.performance.profile_steps, summary.folder, train.dataset, config.optimization.epochs),
        EvaluationCallback(evaluator, config.evaluation, workers, divergence),
        MetricsCallback(summary, config.run.log_every, learning_rates, throughput),
        SilentFailureCallback(summary, objective.adversarial, hasattr(objective, "lambda_cycle")),
        *plots,
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
        watchdog=watchdog,
        show_bars=config.run.verbose > 0,
    )
    return Trainer(parts.state, config.optimization.epochs, (train, test), passes, note_checkpoint, patience)


def _make_watchdog(step_timeout: int | None, workers: Workers, checkpoints: CheckpointManager) -> Watchdog:
    prefix = f"worker {workers.index}: " if workers.count > 1 else ""
    return Watchdog(step_timeout, lambda: checkpoints.newest, prefix)


def _facts(
    settings: DataConfig,
    multiple: int,
    precision: str,
    workers: Workers,
    run: RunDirectory,
    data: Domains,
    parts: Parts,
) -> overview.Facts:
    return overview.Facts(
        notes=(*data.notes, *inspection_summary.lines(settings, multiple, data)),
        devices=workers.strategy.extended.worker_devices,
        workers=workers.cluster.addresses if workers.cluster else (),
        train=parts.train.dataset,
        test=parts.test.dataset,
        parameters=parts.model.networks.parameter_counts(),
        peak=parts.train.throughput.peak,
        uses_tf32=hardware.multiplies_in_tf32(precision),
        folder=run.path,
        checkpoint=parts.checkpoints.restored,
        epochs_done=parts.state.epoch,
        pairs_done=parts.state.train.pairs_done,
    )


def _start_run(
    optimization: OptimizationConfig, workers: Workers, run: RunDirectory, data: Domains, parts: Parts
) -> Summary:
    """Warn of what changes in a resumed run, write its folder, and return the writer of its log."""
    state, dataset = parts.state, parts.train.dataset
    warnings = batch_size_warnings(
        state.global_batch_size,
        dataset.global_batch_size,
        workers.strategy.num_replicas_in_sync,
        dataset.epoch_size,
        has_pools=bool(parts.model.pools),
    )
    if run.saved_config:
        warnings += learning_rate_warnings(run.saved_config.optimization, optimization, state.epoch)
    for text in (*run.warnings, *warnings):
        logger.warning(text)
    with terminal.phase("Preparing the folder of the run", if_slow=True):
        run.start(data.fingerprint())
    if not workers.is_chief:
        return NullSummaryWriter()
    started = trackers.start(run.config.run, run.config.settings(), run.path)
    with terminal.phase("Preparing the logs of the run", if_slow=True):
        summary = SummaryWriter(run.path, started)
        summary.rewind(state.log_bytes, state.epoch, state.step)
    return summary
