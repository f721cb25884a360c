"""Learning-rate schedules, with their settings."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from cyclegan.config.fields import WARN, flag
from cyclegan.config.sections import OptimizationConfig

if TYPE_CHECKING:
    from cyclegan.data.unpaired import UnpairedDataset
    from cyclegan.run.train_state import TrainState


@dataclasses.dataclass(frozen=True)
class Constant(OptimizationConfig):
    """No decay."""

    def decay_factor(self, epochs_done: float) -> float:
        """Return 1."""
        return 1.0


@dataclasses.dataclass(frozen=True)
class _Decay(OptimizationConfig):
    decay_from: int = flag(100, WARN, derive=lambda settings: settings["epochs"] // 2)
    """epochs with constant learning rates (default: half of --epochs)"""

    def progress(self, epochs_done: float) -> float:
        """Return the position between `decay_from`, which is 0, and the end of training, which is 1."""
        decay_epochs = self.epochs - self.decay_from
        return min(max(0.0, epochs_done - self.decay_from) / decay_epochs, 1.0) if decay_epochs > 0 else 0.0


@dataclasses.dataclass(frozen=True)
class Linear(_Decay):
    """Along a straight line from --decay_from on, to zero at the end (Zhu et al. 2017, appendix)."""

    def decay_factor(self, epochs_done: float) -> float:
        """Return the factor after `epochs_done` epochs."""
        return 1.0 - self.progress(epochs_done)


@dataclasses.dataclass(frozen=True)
class Cosine(_Decay):
    """Along half a cosine from --decay_from on, to zero at the end (Loshchilov and Hutter 2017)."""

    def decay_factor(self, epochs_done: float) -> float:
        """Return the factor after `epochs_done` epochs."""
        return 0.5 + 0.5 * math.cos(math.pi * self.progress(epochs_done))


# Learning rate schedules by the value of --lr_schedule.
SCHEDULES: dict[str, type[OptimizationConfig]] = {"linear": Linear, "cosine": Cosine, "constant": Constant}


def learning_rates(optimization: OptimizationConfig, epochs_done: float) -> tuple[float, float]:
    """Return the learning rates of the generators and of the discriminators after `epochs_done` epochs."""
    factor = optimization.decay_factor(epochs_done)
    return optimization.lr * factor, optimization.lr_discriminator * factor


def rates_of_next_call(
    optimization: OptimizationConfig, dataset: UnpairedDataset, state: TrainState
) -> list[tuple[float, float, float]]:
    """Return the learning rates of each step of the next call, and the share of the training before the step."""
    pairs = (state.train.pairs_done + step * dataset.global_batch_size for step in range(dataset.steps_per_call))
    epochs = (state.epoch + pair / dataset.epoch_size for pair in pairs)
    return [(*learning_rates(optimization, each), each / optimization.epochs) for each in epochs]


def rates_of_last_step(
    optimization: OptimizationConfig, dataset: UnpairedDataset, state: TrainState
) -> dict[str, float]:
    """Return the learning rates of the last step by metric name; one if both are the same."""
    last_pair = state.train.pairs_done - 1
    first_pair = max(last_pair - last_pair % dataset.global_batch_size, 0)  # of the batch
    generators, discriminators = learning_rates(optimization, state.epoch + first_pair / dataset.epoch_size)
    rates = {"learning_rate": generators, "learning_rate_discriminators": discriminators}
    return rates if generators != discriminators else {"learning_rate": generators}
