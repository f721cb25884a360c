"""Metrics for TensorBoard and metrics.jsonl."""

from __future__ import annotations

import math

from cyclegan.run.throughput import Throughput
from cyclegan.training.callbacks.base import Call, Callback, Epoch, Summary
from cyclegan.training.metric_totals import means
from cyclegan.training.schedule import StepLearningRates


class MetricsCallback(Callback):
    """Log the metrics of every epoch, and the means over the training steps since the last log line of an epoch.

    Args:
        summary: Writer of the metrics.
        every: Training steps between log lines within an epoch.
        learning_rates: Learning rates of the training steps.
        throughput: Counter of the training steps, which every log line resets.
    """

    def __init__(self, summary: Summary, every: int, learning_rates: StepLearningRates, throughput: Throughput) -> None:
        self._summary = summary
        self._every = every
        self._learning_rates = learning_rates
        self._throughput = throughput
        self._is_complete = False

    def is_due_after(self, call: Call) -> bool:
        """Return whether a log line is due."""
        state = call.state
        return call.split == "train" and math.ceil(state.train.pairs_done / state.global_batch_size) % self._every == 0

    def on_call_end(self, call: Call) -> None:
        """Log the means over the steps since the last log line."""
        state = call.state
        sums = {name: value - state.logged_sums.get(name, 0.0) for name, value in state.train.sums.items()}
        state.logged_sums = dict(state.train.sums)
        values = {**means(sums), **self._learning_rates.of_last_step(state), **self._throughput.metrics()}
        self._throughput.reset()
        self._summary.write_scalars("steps", state.epoch + 1, state.step, values)

    def on_epoch_end(self, epoch: Epoch) -> None:
        """Log the metrics of the epoch."""
        self._is_complete = epoch.is_last
        for split, values in epoch.metrics.items():
            self._summary.write_scalars(split, epoch.state.epoch, epoch.state.step, values)

    def on_train_end(self) -> None:
        """Close the writer."""
        self._summary.close(self._is_complete)
