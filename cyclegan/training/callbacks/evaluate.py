"""Scores of the generators during training."""

from __future__ import annotations

import logging
import math
from typing import Any, Optional, Protocol

from cyclegan.checkpointing.train_state import TrainState
from cyclegan.config.directions import DIRECTIONS
from cyclegan.distribution.workers import Workers
from cyclegan.errors import TrainingError
from cyclegan.training.callbacks.base import Callback, Epoch
from cyclegan.training.divergence import DivergencePolicy
from cyclegan.training.out_of_memory import explain_out_of_memory

logger = logging.getLogger(__name__)


class Evaluator(Protocol):
    """The part of `evaluation.evaluator.Evaluator` that training needs."""

    extractor: Any

    def scores(self, direction: str, errors: bool = True) -> dict[str, float]:
        """Return the scores of a direction by name."""


class EvaluationCallback(Callback):
    """Score the generators every few epochs and at the end, and find the epochs with the lowest KID.

    Args:
        evaluator: Evaluator of the generators; `None` on workers other than the chief.
        every: Epochs between evaluations; 0 for none.
        workers: All workers.
        divergence: The policy that knows whether the weights are good.
    """

    def __init__(
        self, evaluator: Optional[Evaluator], every: int, workers: Workers, divergence: DivergencePolicy
    ) -> None:
        self._evaluator = evaluator
        self._every = every
        self._workers = workers
        self._divergence = divergence

    def on_epoch_end(self, epoch: Epoch) -> None:
        """Add the scores to the metrics of the epoch, and note the lowest KIDs so far."""
        if not self._every or (epoch.state.epoch % self._every and not epoch.is_last):
            return
        if self._evaluator is not None and self._divergence.is_sound:
            scores, epoch.best_kid = self._scores(self._evaluator, epoch.state)
            epoch.metrics["test"].update(scores)
        epoch.is_best = bool(self._workers.broadcast_from_chief(bool(epoch.best_kid)))

    def _scores(self, evaluator: Evaluator, state: TrainState) -> tuple[dict[str, float], dict[str, float]]:
        """Return the finite scores by metric name, and the KID of each direction if it is the lowest so far."""
        self._check_features(evaluator.extractor.name, state)
        try:
            with explain_out_of_memory():
                scores = {direction: evaluator.scores(direction, errors=False) for direction in DIRECTIONS}
        except TrainingError as error:
            logger.warning(f"epoch {state.epoch} has no scores: {error}")
            return {}, {}
        metrics = {
            f"score/{direction}/{key}": value for direction in scores for key, value in scores[direction].items()
        }
        best = {d: s["KID"] for d, s in scores.items() if s["KID"] < state.best_kid.get(d, math.inf)}
        return {name: value for name, value in metrics.items() if math.isfinite(value)}, best

    def _check_features(self, name: str, state: TrainState) -> None:
        """Reset the best scores if they were measured with other features."""
        if state.best_kid_features == name:
            return
        if state.best_kid:
            logger.warning(
                f"the scores use other features from here on ({state.best_kid_features} -> {name}): the search for the best starts"
                " again"
            )
        state.best_kid, state.best_kid_features = {}, name
