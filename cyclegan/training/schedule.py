"""Learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Callable

from cyclegan.config.optimization import OptimizationConfig
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.run.train_state import TrainState


def decay_factor(optimization: OptimizationConfig, epochs_done: float) -> float:
    """Return the factor in [0, 1] that multiplies the initial learning rates.

    The factor is 1 until `decay_from` epochs are done. From there to the end of training, every step lowers it to 0: along a
    straight line (Zhu et al. 2017, appendix) or half a cosine (Loshchilov and Hutter 2017, without restarts). It depends on the
    position alone, so a run that is resumed with other --epochs continues as if it had begun with them.

    Args:
        optimization: Settings of the schedule.
        epochs_done: Epochs done so far, including the fraction of the current one.
    """
    if optimization.lr_schedule == "constant" or epochs_done <= optimization.decay_from:
        return 1.0
    decay_epochs = optimization.epochs - optimization.decay_from
    progress = min(1.0, (epochs_done - optimization.decay_from) / decay_epochs) if decay_epochs > 0 else 0.0
    if optimization.lr_schedule == "linear":
        return 1.0 - progress
    return 0.5 + 0.5 * math.cos(math.pi * progress)


def learning_rates(optimization: OptimizationConfig, epochs_done: float) -> tuple[float, float]:
    """Return the learning rates of the generators and of the discriminators after `epochs_done` epochs."""
    factor = decay_factor(optimization, epochs_done)
    return optimization.lr * factor, optimization.lr_discriminator * factor


class StepLearningRates:
    """Learning rates of the training steps.

    Args:
        schedule: Function from the epochs done to the learning rates of the generators and of the discriminators.
        dataset: Training pairs.
    """

    def __init__(self, schedule: Callable[[float], tuple[float, float]], dataset: UnpairedDataset) -> None:
        self.schedule = schedule
        self._dataset = dataset

    def of_next_call(self, state: TrainState) -> list[tuple[float, float]]:
        """Return the learning rates of each step of the next call."""
        dataset = self._dataset
        pairs = (state.train.pairs_done + step * dataset.global_batch_size for step in range(dataset.steps_per_call))
        return [self.schedule(state.epoch + pair / dataset.epoch_size) for pair in pairs]

    def of_last_step(self, state: TrainState) -> dict[str, float]:
        """Return the learning rates of the last step by metric name; one if both are the same."""
        dataset = self._dataset
        last_pair = state.train.pairs_done - 1
        first_pair = max(last_pair - last_pair % dataset.global_batch_size, 0)  # of the batch
        generators, discriminators = self.schedule(state.epoch + first_pair / dataset.epoch_size)
        rates = {"learning_rate": generators}
        if discriminators != generators:
            rates["learning_rate_discriminators"] = discriminators
        return rates
