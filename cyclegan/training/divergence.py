"""The policy about steps whose losses or gradients are not finite."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import TrainingError
from cyclegan.methods.objective import GRADIENTS, LOSS_SCALE
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks import Summary
from cyclegan.training.optimizers import SMALLEST_SCALE

logger = logging.getLogger(__name__)

LISTED = 4  # losses and images named on the terminal, at most; metrics.jsonl names all


class DivergenceError(Exception):
    """Too many steps in a row were not finite."""


@dataclasses.dataclass(frozen=True)
class PendingCall:
    """A call of a train function that was started, and its future results."""

    split: str  # "train" or "test"
    first_pair: int  # pairs of the pass that were done before the call
    first_step: int  # training steps that were done before the call
    is_finite: tf.Tensor  # whether all metrics of each step are finite, bool [steps]
    metrics: dict[str, tf.Tensor]  # of each step by name, float32 [steps]


@dataclasses.dataclass
class DivergencePolicy:
    """Count consecutive steps that are not finite; after `max_bad_steps`, return training to a checkpoint, only once.

    Such steps update nothing. The datasets, by split, name the images in the log.

    Attributes:
        is_sound: Whether the weights are worth saving: the newest step was finite, or an earlier test step with them.
        is_validated: Whether a test step with the present weights was finite.
        last_good: Training steps done before the newest finite step: the weights were good then.
    """

    max_bad_steps: int
    datasets: Mapping[str, UnpairedDataset]
    checkpoints: CheckpointManager
    summary: Summary
    strategy: tf.distribute.Strategy
    is_sound: bool = True
    is_validated: bool = False
    last_good: int = -1

    def inspect(self, call: PendingCall, is_finite: np.ndarray, state: TrainState) -> None:
        """Count the steps of a call that are not finite, log them, and name their images.

        Raises:
            DivergenceError: There are too many in a row.
        """
        for i, good in enumerate(is_finite):
            if good:
                self.is_validated, self.is_sound = call.split == "test", True
                self.last_good = call.first_step + (i if call.split == "train" else 0)
                _bad_steps(state, call.split).clear()
                continue
            values = {name: float(value[i]) for name, value in call.metrics.items()}
            pair = call.first_pair + i * self.datasets[call.split].global_batch_size
            step = call.first_step + (i + 1 if call.split == "train" else 0)
            self._count_bad_step(call.split, pair, step, values, state)

    def _count_bad_step(
        self, split: str, pair: int, step: int, metrics: Mapping[str, float], state: TrainState
    ) -> None:
        not_finite = [name for name, value in metrics.items() if not math.isfinite(value)]
        (state.train if split == "train" else state.test).skipped_steps += 1
        # Loss scales are powers of 2; this one is the rounded sum of the replicas' shares.
        if metrics.get(LOSS_SCALE, 0.0) > 1.5 * SMALLEST_SCALE and set(not_finite) <= {*GRADIENTS}:
            return  # float16 training lowers its loss scale
        self.is_validated = self.is_sound = split == "test" and self.is_validated
        images = self.datasets[split].batch_names(state.epoch, pair, state.reshuffles)
        self.summary.write_event(split, state.epoch + 1, step, "not finite", metrics=not_finite, images=images)
        row = _bad_steps(state, split)
        row.append(
            f"epoch {state.epoch + 1}, step {step} ({split}): {_shorten(not_finite)} not finite,"
            f" with {_shorten(images)}"
        )
        logger.warning(f"{row[-1]}; nothing was updated ({len(row)} in a row)")
        if len(row) >= self.max_bad_steps:
            raise DivergenceError

    def go_back(self, state: TrainState) -> TrainState:
        """Restore the last good checkpoint and return its state, with another order of the images.

        Raises:
            TrainingError: Training went back before, or there is no checkpoint.
        """
        bad_steps = max(state.nonfinite_train, state.nonfinite_test, key=len)
        if state.reshuffles:
            raise TrainingError(
                f"{bad_steps[0]}: the first of {len(bad_steps)} such steps in a row. Training went back once, diverged"
                " again, and stops; the last checkpoint is from before. Try a lower --lr, and look at these images"
            )
        with self.strategy.scope():
            found = self.checkpoints.restore()
            # No step with the weights of a checkpoint within an epoch has been finite: they may be broken.
            if found and found[0].train.pairs_done and found[0].step > self.last_good:
                found = self.checkpoints.restore(newest_last=True)
        if not found:
            raise TrainingError(
                f"{bad_steps[0]}. Training has diverged, and there is no checkpoint to go back to. Try a lower --lr"
            )
        restored, path = found
        restored.reshuffles += 1
        restored.warned = state.warned
        restored.nonfinite_train, restored.nonfinite_test = [], []
        self.is_sound, self.is_validated, self.last_good = True, False, -1
        self.summary.rewind(restored, restored.changes(state), self.datasets["train"].epoch_size)
        restored.settings, restored.images = state.settings, state.images
        self.summary.write_event("train", restored.epoch + 1, restored.step, "went back", bad_steps=bad_steps)
        logger.warning(
            f"{len(bad_steps)} steps in a row were not finite: training goes back to {path} and continues with another"
            " order of the images"
        )
        return restored


def _bad_steps(state: TrainState, split: str) -> list[str]:
    return state.nonfinite_train if split == "train" else state.nonfinite_test


def _shorten(names: Sequence[str]) -> str:
    """Return the first few names as a text."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
