"""The trained generators of a run: found by its folder alone, restored without a strategy, whatever it was trained on."""

import dataclasses
import functools
import logging
import pathlib

import tensorflow as tf

from cyclegan.checkpointing import run_directory
from cyclegan.checkpointing.manager import CheckpointManager
from cyclegan.checkpointing.train_state import TrainState
from cyclegan.config import Config, serialization
from cyclegan.distribution.gpus import allow_memory_growth
from cyclegan.errors import UserError
from cyclegan.networks import compat, generators

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RestoredRun:
    """A run's generators, at one place of its training.

    `path`: the run's folder. `config`: its `Config`. `G`, `F`: X -> Y and Y -> X, Keras models of float32 [N, H, W, C] in [-1, 1],
    H and W multiples of `multiple`; the running means of them where the run keeps these (`--ema`). `checkpoint`: the folder
    that they are from. `progress`: the place in training.
    """

    path: pathlib.Path
    config: Config
    G: tf.keras.Model
    F: tf.keras.Model
    checkpoint: pathlib.Path
    progress: TrainState

    def network(self, direction):
        """The generator of "x2y" or of "y2x"."""
        return {"x2y": self.G, "y2x": self.F}[direction]

    def channels(self, direction):
        """(of what goes in, of what comes out) for "x2y" or "y2x"."""
        x, y = self.config.data.channels_x, self.config.data.channels_y
        return {"x2y": (x, y), "y2x": (y, x)}[direction]


@functools.cache  # once, on however many devices a run is restored
def _warn_once(text):
    logger.warning(text)


def restore(run, checkpoint=None, precision=None, device=None):
    """Makes the generators of a run and restores their weights. Nothing is written.

    Where TensorFlow has not started yet, it takes the memory of GPUs as needed from then on: another program may use them too.

    Args:
        run: the run's folder.
        checkpoint: the name of one of its checkpoints, "best-x2y" or "epoch_0010" say; by default the newest that can be read.
        precision: "float32", "bfloat16" or "float16", what they compute in; by default what the run was trained in.
        device: TensorFlow's name of the device that they are on; `None` is where TensorFlow puts them.

    Returns:
        A `RestoredRun`.

    Raises:
        UserError: the folder is no run's, it is of the other TensorFlow, or it has no such checkpoint, or none that can be read.
    """
    run = pathlib.Path(run).expanduser()
    if not run.is_dir():
        raise UserError(f"{run}: no such folder; expected the folder of a run, see --output_dir of train.py")
    config, stack, _, imported = serialization.load(run / "config.json")
    run_directory.refuse_other_stack(run, stack, compat.stack())
    precision = precision or config.performance.precision
    ending = "_ema" if config.optimization.ema else ""
    allow_memory_growth()
    with tf.device(device), compat.precision_policy("float32" if precision == "auto" else precision):
        x, y = config.data.channels_x, config.data.channels_y
        G = generators.make_generator(config.networks, x, y, name=f"G{ending}")
        F = generators.make_generator(config.networks, y, x, name=f"F{ending}")
    checkpoints = CheckpointManager(run / "checkpoints", {f"G{ending}": G, f"F{ending}": F})
    if checkpoint:
        path = checkpoints.folder / checkpoint
        if not path.is_dir() or path.parent != checkpoints.folder:
            names = sorted(path.name for path in checkpoints.folder.glob("[!.]*") if path.is_dir())
            raise UserError(
                f"{path}: no such checkpoint; expected one of {', '.join(names) or 'none, there are none yet'}"
            )
        progress = checkpoints.restore_from(path)
    else:
        found = checkpoints.restore(strict=False)
        if not found:
            raise UserError(f"{run}: no checkpoint yet; expected a run that has begun to train")
        progress, path = found
    if not imported and not progress.step:
        _warn_once(
            f"{path} is from before the first step of training, when networks can do nothing yet; expected a later one"
        )
    return RestoredRun(run, config, G, F, path, progress)
