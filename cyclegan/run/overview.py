"""Overview of a run, logged before training begins: data, devices, networks, position."""

from __future__ import annotations

import dataclasses
import logging
import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from cyclegan.config.command_line import PRESETS
from cyclegan.config.config import Config

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Facts:
    """Facts about a run that are not in its configuration.

    Attributes:
        notes: Remarks about the data.
        devices: Names of the devices of this worker, as TensorFlow spells them.
        workers: Addresses of the workers; empty if there is only one.
        train: The image pairs for training, a `data.unpaired.UnpairedDataset`.
        test: The image pairs for validation.
        parameters: Number of weights of a generator, of a discriminator, and of the heads of the features, 0 without heads.
        peak: FLOP/s of all devices together; 0 if not measured.
        checkpoint: Folder of the checkpoint that training resumes from; `None` for a new run.
        pairs_done: Training pairs done in the current epoch.
    """

    notes: Sequence[str]
    devices: Sequence[str]
    workers: Sequence[str]
    train: Any
    test: Any
    parameters: tuple[int, int, int]
    peak: float
    folder: str | os.PathLike[str]
    uses_tf32: bool = False
    checkpoint: str | os.PathLike[str] | None = None
    epochs_done: int = 0
    pairs_done: int = 0


def log(config: Config, facts: Facts) -> None:
    """Log the overview of a run, line by line."""
    for line in _lines(config, facts):
        logger.info(line)


def _lines(config: Config, facts: Facts) -> Iterator[str]:
    train, test, performance = facts.train, facts.test, config.performance
    if config.run.preset:
        yield f"Preset {config.run.preset}: {_preset_flags(config)}"
    yield from facts.notes
    if not config.data.same_channels:
        yield "No identity losses: X and Y have different numbers of channels"
    is_one_of_several = len(facts.workers) > 1
    if is_one_of_several:
        yield f"Workers: {len(facts.workers)} ({', '.join(facts.workers)})"
    each = " in each worker" if is_one_of_several else ""
    yield f"Number of devices: {len(facts.devices)} ({facts.devices[0].split(':')[-2]}){each}"
    batch_size = config.optimization.batch_size
    replicas = train.global_batch_size // batch_size
    yield f"Replicas: {replicas}, global batch: {replicas} x {batch_size} = {train.global_batch_size} image pairs"
    if facts.peak:
        yield f"Peak speed of a matrix product: {facts.peak / 1e12:.3g} TFLOP/s"
    arithmetic = ", products in TF32" if facts.uses_tf32 else ""
    arithmetic += ", XLA" if performance.xla == "on" else ""
    arithmetic += ", deterministic" if performance.deterministic else ""
    yield f"Precision: {performance.precision}{arithmetic}, steps per call: {train.steps_per_call}"
    yield (
        f"Steps per epoch: {train.steps_per_epoch} for training ({train.epoch_size} pairs),"
        f" {test.steps_per_epoch} for validation ({test.epoch_size} pairs)"
    )
    generator, discriminator, heads = facts.parameters
    is_one_way = len(config.objective.directions) == 1
    which, more = "the" if is_one_way else "each", f", {heads:,} in the heads of the features" if heads else ""
    yield f"Parameters: {generator:,} in {which} generator, {discriminator:,} in {which} discriminator{more}"
    if is_one_way:
        yield f"Objective {config.objective.objective}: one generator, X -> Y; there is none for Y -> X"
    yield f"Writing to {facts.folder} (tensorboard --logdir {shlex.quote(str(facts.folder))})"
    epochs = config.optimization.epochs
    if facts.checkpoint:
        part = f" and {facts.pairs_done} of {train.epoch_size} pairs of the next" if facts.pairs_done else ""
        yield f"Resumed from {facts.checkpoint}: {facts.epochs_done} of {epochs} epochs{part} are done"
    if facts.epochs_done >= epochs:
        what = " or to profile" if performance.profile is not None else ""
        yield f"Nothing is left to do{what}: raise --epochs to train longer"


def _preset_flags(config: Config) -> str:
    """Return the settings of --preset that are in effect, as flags."""
    settings = config.settings()
    preset = PRESETS[config.run.preset] if config.run.preset else {}
    in_effect = {name: value for name, value in preset.items() if settings.get(name) == value}
    return " ".join(f"--{name} {value}" for name, value in in_effect.items())
