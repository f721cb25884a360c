"""Overview of a run, logged before training begins: data, devices, networks, position."""

from __future__ import annotations

import logging
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

from cyclegan.config.command_line import PRESETS, flags_of
from cyclegan.config.config import Config
from cyclegan.distribution import hardware
from cyclegan.distribution.workers import Workers
from cyclegan.errors import counted
from cyclegan.run.train_state import TrainState

logger = logging.getLogger(__name__)


def log(
    config: Config,
    workers: Workers,
    splits: tuple[Any, Any],
    state: TrainState,
    checkpoint: pathlib.Path | None,
    notes: Sequence[str],
    parameters: tuple[int, int, int],
) -> None:
    """Log the overview of a run, line by line.

    Args:
        config: The configuration.
        workers: All workers.
        splits: The training pairs and the held-out pairs, see `training.trainer.Split`.
        state: Position that training starts from.
        checkpoint: Folder of the checkpoint that training resumes from; `None` for a new run.
        notes: Remarks about the data.
        parameters: Number of weights of a generator, of a discriminator, and of the heads of the features, or 0.
    """
    train, test = (split.dataset for split in splits)
    addresses = workers.cluster.addresses if workers.cluster else ()
    devices, peak = workers.strategy.extended.worker_devices, splits[0].throughput.peak
    performance = config.performance
    if config.run.preset:
        settings = config.settings()
        preset = {name: value for name, value in PRESETS[config.run.preset].items() if settings.get(name) == value}
        logger.info(f"Preset {config.run.preset}: {flags_of(preset) or 'all its flags are overridden'}")
    for note in notes:
        logger.info(note)
    if not config.data.same_channels:
        logger.info("No identity losses: X and Y have different numbers of channels")
    if addresses:
        logger.info(f"Workers: {len(addresses)} ({', '.join(addresses)})")
    where = " in each worker" if addresses else ""
    logger.info(f"Number of devices: {len(devices)} ({devices[0].split(':')[-2]}){where}")
    whole, size = train.global_batch_size, config.optimization.batch_size
    logger.info(f"Replicas: {whole // size}, global batch: {whole // size} x {size} = {whole} image pairs")
    if peak:
        logger.info(f"Peak speed of a matrix product: {peak / 1e12:.3g} TFLOP/s")
    arithmetic = ", products in TF32" if hardware.multiplies_in_tf32(performance.precision) else ""
    arithmetic += ", XLA" if performance.xla == "on" else ""
    arithmetic += ", deterministic" if performance.deterministic else ""
    logger.info(f"Precision: {performance.precision}{arithmetic}, steps per call: {train.steps_per_call}")
    logger.info(
        f"Steps per epoch: {train.steps_per_epoch} for training ({counted(train.epoch_size, 'pair')}),"
        f" {test.steps_per_epoch} for validation ({counted(test.epoch_size, 'pair')})"
    )
    if train.epoch_size == 1:
        logger.info(
            "An epoch has one pair of images: --preprocess crop --epoch_size 500 trains on 500 crops of large ones"
        )
    generator, discriminator, heads = parameters
    is_one_way = len(config.objective.directions) == 1
    which, more = "the" if is_one_way else "each", f", {heads:,} in the heads of the features" if heads else ""
    logger.info(f"Parameters: {generator:,} in {which} generator, {discriminator:,} in {which} discriminator{more}")
    if is_one_way:
        logger.info(f"Objective {config.objective.objective}: one generator, X -> Y; there is none for Y -> X")
    folder = config.run.output_dir
    logger.info(f"Writing to {folder} (tensorboard --logdir {shlex.quote(folder)})")
    epochs = config.optimization.epochs
    if checkpoint:
        done = state.train.pairs_done
        part = f" and {done} of {counted(train.epoch_size, 'pair')} of the next" * bool(done)
        whole = f" of {counted(epochs, 'epoch')}" if state.epoch <= epochs else f" epochs (more than --epochs {epochs})"
        logger.info(f"Resumed from {checkpoint}: {state.epoch}{whole}{part} are done")
        logger.info(f"Settings of the run: {flags_of(config.unusual_settings()) or 'the defaults'}")
    if state.epoch >= epochs:
        what = " or to profile" if performance.profile is not None else ""
        logger.info(
            f"Nothing is left to do{what}: raise --epochs to train longer; another --output_dir begins a new run"
        )
