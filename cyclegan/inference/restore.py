"""Trained generators of a run, restored without a strategy from the folder of the run alone."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import pathlib

import tensorflow as tf

from cyclegan.config import Config, serialization
from cyclegan.config.sections import DIRECTIONS, ObjectiveConfig
from cyclegan.distribution.gpus import allow_memory_growth
from cyclegan.errors import UserError
from cyclegan.networks import compat, generators
from cyclegan.run import run_directory
from cyclegan.run.manager import CheckpointManager, Restored
from cyclegan.run.train_state import TrainState

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RestoredRun:
    """The generators of a run at one checkpoint.

    The generators are Keras models of float32 [N, H, W, C] in [-1, 1]; H and W are multiples of `config.networks.multiple`.

    Attributes:
        path: Folder of the run.
        config: Configuration of the run.
        G: Generator X -> Y, with its EMA weights if the run has them (--ema).
        F: Generator Y -> X, likewise; `None` if the objective has none.
        checkpoint: Folder of the checkpoint.
        train_state: Position in training.
    """

    path: pathlib.Path
    config: Config
    G: tf.keras.Model
    F: tf.keras.Model | None
    checkpoint: pathlib.Path
    train_state: TrainState

    def generator(self, direction: str) -> tf.keras.Model:
        """Return the generator of a direction, "x2y" or "y2x".

        Raises:
            UserError: The objective has no generator of this direction.
        """
        refuse_missing(self.path, self.config.objective, direction)
        found: tf.keras.Model = {"x2y": self.G, "y2x": self.F}[direction]
        return found

    def at(self, checkpoint: str) -> RestoredRun:
        """Restore another checkpoint, by name, into the same generators; this object then has its weights, too."""
        networks = {network.name: network for network in (self.G, self.F) if network is not None}
        train_state, path = _restore_by_name(CheckpointManager(self.path / "checkpoints", networks), checkpoint)
        return dataclasses.replace(self, checkpoint=path, train_state=train_state)

    def channels(self, direction: str) -> tuple[int, int]:
        """Return the numbers of channels (of the source, of the target) of a direction."""
        x, y = self.config.data.channels_x, self.config.data.channels_y
        return {"x2y": (x, y), "y2x": (y, x)}[direction]


def restore(
    run: str | os.PathLike[str],
    checkpoint: str | None = None,
    precision: str | None = None,
    device: str | None = None,
) -> RestoredRun:
    """Make the generators of a run and restore their weights; nothing is written.

    If TensorFlow has not started yet, it allocates the memory of GPUs as needed from then on, so that other programs may use them.

    Args:
        run: Folder of the run.
        checkpoint: Name of a checkpoint, such as "best-x2y" or "epoch_0010"; by default the newest that can be read.
        precision: "float32", "bfloat16" or "float16" to compute in; by default the precision of the training.
        device: TensorFlow's name of the device; by default TensorFlow chooses.

    Raises:
        UserError: The folder holds no run, or one of another stack; or the checkpoint does not exist, or none can be read.
    """
    run = pathlib.Path(run).expanduser()
    if not run.is_dir():
        raise UserError(f"{run}: no such folder; expected the folder of a run, see --output_dir of training")
    saved = serialization.load(run / "config.json")
    config = saved.config
    run_directory.refuse_other_stack(run, saved.stack, compat.stack())
    precision = precision or config.performance.precision
    suffix = "_ema" if config.optimization.ema else ""
    allow_memory_growth()
    try:
        with tf.device(device), compat.precision_policy("float32" if precision == "auto" else precision):
            x, y = config.data.channels_x, config.data.channels_y
            G = generators.make_generator(config.networks, x, y, name=f"G{suffix}")
            has_F = "y2x" in config.objective.directions
            F = generators.make_generator(config.networks, y, x, name=f"F{suffix}") if has_F else None
    except (MemoryError, tf.errors.ResourceExhaustedError):
        raise UserError(
            f"{run}: --filters {config.networks.filters}: not enough memory for its generators; expected a device with more"
        ) from None
    networks = {network.name: network for network in (G, F) if network is not None}
    checkpoints = CheckpointManager(run / "checkpoints", networks)
    train_state, path = _restore_by_name(checkpoints, checkpoint) if checkpoint else _restore_newest(checkpoints)
    if not saved.imported and not train_state.step:
        _warn_once(
            f"{path} is from before the first step of training, when the networks are random; expected a later one"
        )
    return RestoredRun(run, config, G, F, path, train_state)


def refuse_missing(run: str | os.PathLike[str], objective: ObjectiveConfig, direction: str) -> None:
    """Raise `UserError` if the objective of a run has no generator of a direction."""
    if direction not in objective.directions:
        raise UserError(
            f"{run}: --objective {objective.objective} has no generator {' -> '.join(DIRECTIONS[direction])}; expected"
            f" --direction {' or '.join(objective.directions)}"
        )


def _restore_newest(checkpoints: CheckpointManager) -> Restored:
    found = checkpoints.restore(strict=False)
    if not found:
        run = checkpoints.folder.parent
        raise UserError(
            f"{run}: no checkpoint yet; expected a run that has begun to train: train it, or use another run"
        )
    return found


def _restore_by_name(checkpoints: CheckpointManager, name: str) -> Restored:
    path = checkpoints.folder / name
    if not path.is_dir() or path.parent != checkpoints.folder:
        names = sorted(each.name for each in checkpoints.folder.glob("[!.]*") if each.is_dir())
        raise UserError(f"{path}: no such checkpoint; expected one of {', '.join(names) or 'none, there are none yet'}")
    return Restored(checkpoints.restore_from(path), path)


@functools.cache
def _warn_once(text: str) -> None:
    """Log a warning once, even if a run is restored on several devices."""
    logger.warning(text)
