"""Scores of the generators during training."""

from __future__ import annotations

import logging
import math
from typing import Protocol

from cyclegan.config.sections import EvaluationConfig
from cyclegan.distribution.workers import Workers
from cyclegan.errors import TrainingError
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks.base import Callback, Epoch
from cyclegan.training.divergence import DivergencePolicy
from cyclegan.training.out_of_memory import explain_out_of_memory

logger = logging.getLogger(__name__)


class Extractor(Protocol):
    """The part of `evaluation.features.FeatureExtractor` that training needs."""

    name: str


class Evaluator(Protocol):
    """The part of `evaluation.evaluator.Evaluator` that training needs."""

    directions: tuple[str, ...]

    @property
    def extractor(self) -> Extractor:
        """Features that FID and KID compare."""

    def scores(self, direction: str, errors: bool = True) -> dict[str, float]:
        """Return the scores of a direction by name."""


class EvaluationCallback(Callback):
    """Score the generators every few epochs and at the end, and find the epochs with the lowest KID.

    Training ends after `patience` evaluations without a new lowest KID.

    Args:
        evaluator: Evaluator of the generators; `None` on workers other than the chief.
        config: The evaluation section of the configuration.
        workers: All workers.
        divergence: The policy that knows whether the weights are good.
    """

    def __init__(
        self, evaluator: Evaluator | None, config: EvaluationConfig, workers: Workers, divergence: DivergencePolicy
    ) -> None:
        self._evaluator = evaluator
        self._every = config.evaluate_every
        self._patience = config.patience
        self._workers = workers
        self._divergence = divergence

    def on_epoch_end(self, epoch: Epoch) -> None:
        """Add the scores to the metrics of the epoch, note the lowest KIDs so far, and decide whether training ends."""
        if not self._every or (epoch.state.epoch % self._every and not epoch.is_last):
            return
        scores: dict[str, float] = {}
        if self._evaluator is not None and self._divergence.is_sound:
            scores, epoch.best_kid = self._scores(self._evaluator, epoch.state)
            epoch.metrics["test"].update(scores)
        outcome = self._workers.broadcast_from_chief(2 if epoch.best_kid else bool(scores))
        epoch.is_best = outcome == 2
        if outcome:  # an epoch without scores does not count
            self._count(epoch)

    def _count(self, epoch: Epoch) -> None:
        """Count the evaluations since the best one; end training if they exceed the patience."""
        state = epoch.state
        state.evaluations_since_best = 0 if epoch.is_best else state.evaluations_since_best + 1
        if not epoch.is_last and state.is_stalled(self._patience):
            epoch.is_last = True
            logger.info(
                f"Training ends after epoch {state.epoch}: in the last {state.evaluations_since_best} evaluations, the KID of no"
                f" direction was the lowest so far (--patience {self._patience})"
            )

    def _scores(self, evaluator: Evaluator, state: TrainState) -> tuple[dict[str, float], dict[str, float]]:
        """Return the finite scores by metric name, and the KID of each direction if it is the lowest so far."""
        self._check_features(evaluator.extractor.name, state)
        try:
            with explain_out_of_memory():
                scores = {direction: evaluator.scores(direction, errors=False) for direction in evaluator.directions}
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
        state.best_kid, state.best_epoch, state.best_kid_features = {}, {}, name
