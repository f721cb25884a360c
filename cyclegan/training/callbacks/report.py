"""The report of an epoch on the terminal."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

from cyclegan.config.directions import DIRECTIONS
from cyclegan.training.callbacks.base import Callback, Epoch
from cyclegan.training.metric_names import CHANGES, ERRORS

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
            _report_best(epoch)


def _report_best(epoch: Epoch) -> None:
    """Log the best and the last KID of each direction."""
    state = epoch.state
    for direction, (source, target) in DIRECTIONS.items():
        is_best = direction in epoch.best_kid  # not yet in `state`
        best = (epoch.best_kid if is_best else state.best_kid).get(direction)
        last = epoch.metrics["test"].get(f"score/{direction}/KID")
        if best is not None and last is not None:
            at = f"{state.epoch if is_best else state.best_epoch.get(direction, math.nan):.0f}"
            logger.info(
                f"{source} -> {target}: best KID {best:.4g} after epoch {at} (checkpoint best-{direction}),"
                f" last KID {last:.4g} after epoch {state.epoch}"
            )


def _last_part(name: str) -> str:
    """Return a metric's name without its group: "MAE(X, F(X))" for "error/MAE(X, F(X))"."""
    return name.split("/", 1)[1]
