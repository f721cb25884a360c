"""Preparation of a training run: its images, its networks, and the position to start from."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Callable

from cyclegan.checkpointing.manager import CheckpointManager
from cyclegan.checkpointing.run_directory import RunDirectory
from cyclegan.checkpointing.train_state import TrainState
from cyclegan.config import Config
from cyclegan.data import sources
from cyclegan.data.sources import Domains
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution import hardware
from cyclegan.distribution.workers import Workers
from cyclegan.networks import compat
from cyclegan.reporting import overview
from cyclegan.reporting.summaries import NullSummaryWriter, SummaryWriter
from cyclegan.reporting.throughput import Throughput
from cyclegan.training.assembly import Parts, assemble_trainer
from cyclegan.training.callbacks.base import Summary
from cyclegan.training.callbacks.evaluate import Evaluator
from cyclegan.training.compiled_steps import compile_test_step, compile_train_step
from cyclegan.training.gan import GAN
from cyclegan.training.resume_warnings import batch_size_warnings, learning_rate_warnings
from cyclegan.training.splits import Split
from cyclegan.training.trainer import Trainer

logger = logging.getLogger(__name__)

MakeEvaluator = Callable[..., Evaluator]  # see `evaluation.in_training.make_evaluator`


def config_of_worker(config: Config, workers: Workers) -> Config:
    """Return the configuration of a worker, with the precision of its devices; only the chief shows progress."""
    if config.performance.precision == "auto":
        # config.json records the choice, so that training warns if another machine chooses differently.
        config = config.replace(precision=hardware.best_precision())
    return config if workers.is_chief else config.replace(verbose=0)


def load_data(config: Config, workers: Workers, run: RunDirectory) -> Domains:
    """Load the images on every worker; check that all workers have the same, and that the run was trained on them.

    Raises:
        UserError: Images are missing, can't be used or differ from the run's images so far, or the workers differ.
    """
    is_tfds = sources.is_tfds(config.data.dataset)
    workers.check_equal({**config.shared_settings, **compat.stack(), "dataset of TensorFlow Datasets": is_tfds})
    cache_folder = run.path if workers.count == 1 else tempfile.gettempdir()
    with workers.chief_first(is_tfds):  # the others read what the chief has prepared
        data = sources.load_domains(
            config.data,
            config.networks.multiple,
            cache_dir=cache_folder,
            local_workers=workers.count_on_this_host(),
            bars=config.run.verbose > 0,
        )
    run.check_data(data.fingerprint())
    workers.check_equal(data.fingerprint())
    return data


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
    peak = 0.0 if config.performance.no_peak else hardware.measure_peak(config.performance.precision)
    global_batch_size = workers.strategy.num_replicas_in_sync * config.optimization.batch_size
    with workers.strategy.scope():
        model = workers.keep_alive(GAN(global_batch_size, config, data.size))
        checkpoints = workers.keep_alive(
            CheckpointManager(run.path / "checkpoints", model.state(), config.run.keep, workers)
        )
        restored = None if config.run.clear_output_dir else checkpoints.restore()
    state = restored[0] if restored else TrainState()
    train, test = _make_splits(config, workers, model, data, peak)
    evaluator = None
    if workers.is_chief and config.evaluation.evaluate_every:
        evaluator = make_evaluator(
            config.evaluation.evaluate_features,
            model.generators_in_use,
            data.test_x.images,
            data.test_y.images,
            data.size,
            paired=config.data.dataset == "stripes",
            bars=config.run.verbose > 0,
        )
    parts = Parts(model, train, test, state, checkpoints, NullSummaryWriter())
    overview.log(config, _facts(workers, run, data, parts))
    if state.epoch < config.optimization.epochs:
        parts = dataclasses.replace(parts, summary=_start_run(config, workers, run, data, parts))
    return workers.keep_alive(assemble_trainer(config, workers, parts, evaluator, check_folder=run.check))


def _facts(workers: Workers, run: RunDirectory, data: Domains, parts: Parts) -> overview.Facts:
    return overview.Facts(
        notes=data.notes,
        devices=workers.strategy.extended.worker_devices,
        workers=workers.cluster.addresses if workers.cluster else (),
        train=parts.train.dataset,
        test=parts.test.dataset,
        parameters=parts.model.networks.parameter_counts(),
        peak=parts.train.throughput.peak,
        folder=run.path,
        checkpoint=parts.checkpoints.restored,
        epochs_done=parts.state.epoch,
        pairs_done=parts.state.train.pairs_done,
    )


def _start_run(config: Config, workers: Workers, run: RunDirectory, data: Domains, parts: Parts) -> Summary:
    """Warn of what changes in a resumed run, write its folder, and return the writer of its log."""
    state, dataset = parts.state, parts.train.dataset
    warnings = batch_size_warnings(
        state.global_batch_size, dataset.global_batch_size, workers.strategy.num_replicas_in_sync, dataset.epoch_size
    )
    if run.saved_config:
        warnings += learning_rate_warnings(run.saved_config, config, state.epoch)
    for text in (*run.warnings, *warnings):
        logger.warning(text)
    run.start(data.fingerprint())
    summary: Summary = SummaryWriter(run.path) if workers.is_chief else NullSummaryWriter()
    summary.rewind(state.log_bytes, state.epoch, state.step)
    return summary


def _make_splits(config: Config, workers: Workers, model: GAN, data: Domains, peak: float) -> tuple[Split, Split]:
    """Return the training pass and the test pass; `peak` is the FLOP/s of a device, 0 if not measured."""
    batch, strategy, shares = model.global_batch_size, workers.strategy, workers.speedup()
    flops = model.flops(*data.size) * batch
    steps_per_call = workers.broadcast_from_chief(
        config.performance.choose_steps_per_call(
            flops, config.run.log_every, config.run.checkpoint_minutes, hardware.expected_speed(peak) * shares
        )
    )
    assert data.train_x is not None and data.train_y is not None
    train, test = (
        UnpairedDataset(
            x.images,
            y.images,
            batch,
            data.size,
            seed,
            names=(x.names, y.names),
            steps_per_call=steps_per_call,
            flip=not config.data.no_flip,
        )
        for x, y, seed in (
            (data.train_x, data.train_y, config.optimization.seed),
            (data.test_x, data.test_y, None),
        )
    )
    train_step, test_step = compile_train_step(strategy, model), compile_test_step(strategy, model)
    return (
        Split("train", train, train_step, model.metric_names["train"], Throughput(flops, peak * shares)),
        Split("test", test, test_step, model.metric_names["test"], Throughput()),
    )
