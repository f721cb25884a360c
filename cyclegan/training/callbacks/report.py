"""The report of an epoch on the terminal."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from cyclegan.config.sections import DIRECTIONS
from cyclegan.methods.metric_names import CHANGES, ERRORS
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks.base import Callback, Epoch

logger = logging.getLogger(__name__)


class ReportCallback(Callback):
    """Log the errors and scores of every epoch for the terminal, and at the end the best and the last scores.

    Args:
        metric_names: Names of the metrics by split.
        all_losses: Report all losses, too.
    """

    def __init__(self, metric_names: Mapping[str, Sequence[str]], all_losses: bool) -> None:
        self._names = metric_names
        self._all_losses = all_losses

    def on_epoch_end(self, epoch: Epoch) -> None:
        """Log the report."""
        train, test = epoch.metrics["train"], epoch.metrics["test"]
        for pair in (ERRORS[::2], ERRORS[1::2]):
            if known := [name for name in pair if name in self._names["test"]]:
                logger.info("  ".join(f"{_last_part(name)}: {test.get(name, math.nan):.4f}" for name in known))
        if scores := {name: value for name, value in test.items() if name.startswith("score/")}:
            logger.info("  ".join(f"{_last_part(name)}: {value:.4g}" for name, value in scores.items()))
        for split, values in epoch.metrics.items() if self._all_losses else ():
            losses = [name for name in self._names[split] if name not in (*ERRORS, *CHANGES)]
            logger.info(f"{split}: " + "  ".join(f"{name} {values.get(name, math.nan):.4f}" for name in losses))
        logger.info(f"Elapsed: {train['epoch_seconds']:.2f}s")
        if epoch.is_last:
            report_best(epoch.state, epoch.best_kid, test)


def report_best(
    state: TrainState,
    best_now: Mapping[str, float] = MappingProxyType({}),
    test: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Log the best KID of each direction that has one, and the last one.

    Args:
        state: Position in training.
        best_now: Lowest KID by direction, where the last epoch reached it; not yet in `state`.
        test: Metrics of the test pass of the last epoch.
    """
    for direction, (source, target) in DIRECTIONS.items():
        best = {**state.best_kid, **best_now}.get(direction)
        if best is not None:
            at = f"{state.epoch if direction in best_now else state.best_epoch.get(direction, math.nan):.0f}"
            last = test.get(f"score/{direction}/KID")
            logger.info(
                f"{source} -> {target}: best KID {best:.4g} after epoch {at} (checkpoint best-{direction})"
                + (f", last KID {last:.4g} after epoch {state.epoch}" if last is not None else "")
            )


def _last_part(name: str) -> str:
    """Return a metric's name without its group: "MAE(X, F(X))" for "error/MAE(X, F(X))"."""
    return name.split("/", 1)[1]
