"""Overview of a run, logged before training begins: data, devices, networks, position."""

from __future__ import annotations

import dataclasses
import logging
import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Protocol

from cyclegan.config.command_line import PRESETS
from cyclegan.config.config import Config

logger = logging.getLogger(__name__)


class DatasetSize(Protocol):
    """Size of an epoch of training or validation; `data.unpaired.UnpairedDataset` has these attributes."""

    epoch_size: int
    steps_per_epoch: int
    steps_per_call: int
    global_batch_size: int


@dataclasses.dataclass(frozen=True)
class Facts:
    """Facts about a run that are not in its configuration.

    Attributes:
        notes: Remarks about the data.
        devices: Names of the devices of this worker, as TensorFlow spells them.
        workers: Addresses of the workers; empty if there is only one.
        train: The image pairs for training.
        test: The image pairs for validation.
        parameters: Number of weights of a generator, of a discriminator, and of the heads of the features, 0 without heads.
        peak: FLOP/s of all devices together; 0 if not measured.
        folder: Folder of the run.
        uses_tf32: Whether float32 products are computed in TF32.
        checkpoint: Folder of the checkpoint that training resumes from; `None` for a new run.
        epochs_done: Epochs done.
        pairs_done: Training pairs done in the current epoch.
    """

    notes: Sequence[str]
    devices: Sequence[str]
    workers: Sequence[str]
    train: DatasetSize
    test: DatasetSize
    parameters: tuple[int, int, int]
    peak: float
    folder: str | os.PathLike[str]
    uses_tf32: bool = False
    checkpoint: str | os.PathLike[str] | None = None
    epochs_done: int = 0
    pairs_done: int = 0


def log(config: Config, facts: Facts) -> None:
    """Log the overview of a run, line by line."""
    for line in (
        *_plan(config, facts),
        *_position(config.optimization.epochs, config.performance.profile is not None, facts),
    ):
        logger.info(line)


def _plan(config: Config, facts: Facts) -> Iterator[str]:
    train, test = facts.train, facts.test
    generator, discriminator, heads = facts.parameters
    workers = len(facts.workers)
    if config.run.preset:
        yield f"Preset {config.run.preset}: {preset_flags(config)}"
    yield from facts.notes
    if not config.data.same_channels:
        yield "No identity losses: X and Y have different numbers of channels"
    if workers > 1:
        yield f"Workers: {workers} ({', '.join(facts.workers)})"
    each = " in each worker" if workers > 1 else ""
    yield f"Number of devices: {len(facts.devices)} ({facts.devices[0].split(':')[-2]}){each}"
    batch_size = config.optimization.batch_size
    replicas = train.global_batch_size // batch_size
    yield f"Replicas: {replicas}, global batch: {replicas} x {batch_size} = {train.global_batch_size} image pairs"
    if facts.peak:
        yield f"Peak speed of a matrix product: {facts.peak / 1e12:.3g} TFLOP/s"
    tf32 = ", products in TF32" if facts.uses_tf32 else ""
    compiled = ", XLA" if config.performance.xla == "on" else ""
    compiled += ", deterministic" if config.performance.deterministic else ""
    yield f"Precision: {config.performance.precision}{tf32}{compiled}, steps per call: {train.steps_per_call}"
    yield (
        f"Steps per epoch: {train.steps_per_epoch} for training ({train.epoch_size} pairs),"
        f" {test.steps_per_epoch} for validation ({test.epoch_size} pairs)"
    )
    one_way = len(config.objective.directions) == 1
    which, more = "the" if one_way else "each", f", {heads:,} in the heads of the features" if heads else ""
    yield f"Parameters: {generator:,} in {which} generator, {discriminator:,} in {which} discriminator{more}"
    if one_way:
        yield f"Objective {config.objective.objective}: one generator, X -> Y; there is none for Y -> X"
    yield f"Writing to {facts.folder} (tensorboard --logdir {shlex.quote(str(facts.folder))})"


def preset_flags(config: Config) -> str:
    """Return the settings of --preset that are in effect, as flags."""
    settings = config.settings()
    preset = PRESETS[config.run.preset] if config.run.preset else {}
    in_effect = {name: value for name, value in preset.items() if settings.get(name) == value}
    return " ".join(f"--{name} {value}" for name, value in in_effect.items())


def _position(epochs: int, profiles: bool, facts: Facts) -> Iterator[str]:
    if facts.checkpoint:
        part = f" and {facts.pairs_done} of {facts.train.epoch_size} pairs of the next" if facts.pairs_done else ""
        yield f"Resumed from {facts.checkpoint}: {facts.epochs_done} of {epochs} epochs{part} are done"
    if facts.epochs_done >= epochs:
        yield f"Nothing is left to do{' or to profile' if profiles else ''}: raise --epochs to train longer"
