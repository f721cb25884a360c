"""The trainer: epochs of a training pass and a test pass."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import tensorflow as tf

from cyclegan import terminal
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks.base import Epoch
from cyclegan.training.callbacks.report import report_best
from cyclegan.training.divergence import DivergenceError
from cyclegan.training.metric_totals import means
from cyclegan.training.pass_runner import PassRunner
from cyclegan.training.splits import Split

logger = logging.getLogger(__name__)


class Trainer:
    """Train from a position until all epochs are done.

    Args:
        state: Position to start from; new, or restored together with the networks.
        epochs: Length of the whole training, in epochs.
        splits: The training pairs and the held-out pairs with their steps, in the order of an epoch.
        passes: Runner of the passes, with the policies and callbacks.
        patience: Evaluations in a row without a lowest KID after which training ends; 0 for no such end.

    Attributes:
        state: Position in training.
        epochs: Length of the whole training, in epochs.
        patience: See above.
        splits: The training pairs and the held-out pairs with their steps, in the order of an epoch.
        passes: Runner of the passes, with the policies and callbacks.

    Raises:
        UserError: The position does not fit the datasets.
    """

    def __init__(
        self,
        state: TrainState,
        epochs: int,
        splits: tuple[Split, Split],
        passes: PassRunner,
        patience: int = 0,
    ) -> None:
        self.epochs = epochs
        self.patience = patience
        self.splits = splits
        self.passes = passes
        self._adopt(state)

    def _adopt(self, state: TrainState) -> None:
        for split in self.splits:
            split.adopt(state)
        self.state = state

    @tf.autograph.experimental.do_not_convert  # as in `make_trainer`
    def fit(self) -> dict[str, dict[str, float]]:
        """Train.

        Returns:
            The metrics of the last epoch that ran, by split ("train", "test") and name; empty if nothing was left to do.

        Raises:
            Stopped: A signal asked to stop. A checkpoint was saved first.
            TrainingError: Training has diverged again after it went back once.
            UserError: The first checkpoint of a new run could not be written.
        """
        metrics: dict[str, dict[str, float]] = {}
        if self.state.is_done(self.epochs, self.patience):
            if self.state.is_stalled(self.patience):
                logger.info(f"Training ended by --patience {self.patience}: raise or drop it to train longer")
            report_best(self.state)
            return metrics
        checkpoints = self.passes.checkpoint_policy.checkpoints
        with self.passes.checkpoint_policy.signals, self.passes.watchdog, self._train_events():
            if not self.state.step and not checkpoints.restored:
                with terminal.phase("Saving the first checkpoint", if_slow=True):
                    checkpoints.save(self.state)  # to go back to; and a folder that can't be written to fails now
                self.passes.watchdog.beat()
            self.passes.divergence.start(self.state)
            self.passes.checkpoint_policy.restart_timer()
            while not self.state.is_done(self.epochs, self.patience):
                try:
                    metrics = self._run_epoch()
                except DivergenceError:
                    self._go_back()
        return metrics

    @contextlib.contextmanager
    def _train_events(self) -> Iterator[None]:
        """Notify the callbacks of the start and the end of training."""
        try:
            for callback in self.passes.callbacks:
                callback.on_train_begin(self.state)
            yield
        finally:
            for callback in self.passes.callbacks:
                callback.on_train_end()

    def _run_epoch(self) -> dict[str, dict[str, float]]:
        """Run the remaining steps of an epoch; return its metrics."""
        state = self.state
        logger.info(f"Epoch {state.epoch + 1:03d}/{self.epochs:03d}")
        for split in self.splits:
            self.passes.run(split, state)
        metrics = {split.name: self._metrics(split) for split in self.splits}
        metrics["train"].update(self.passes.learning_rates.of_last_step(state))
        metrics["train"]["epoch_seconds"] = state.train.seconds + state.test.seconds
        state.next_epoch()
        epoch = Epoch(state, state.epoch == self.epochs, metrics)
        for callback in self.passes.callbacks:
            self.passes.watchdog.beat()
            callback.on_epoch_end(epoch)
        return metrics

    def _metrics(self, split: Split) -> dict[str, float]:
        """Return the exact means over the samples of a finished pass, its duration and its speed since the program started."""
        progress = split.progress(self.state)
        return {
            **means(progress.sums),
            "seconds": progress.seconds,
            **split.throughput.metrics(),
            "skipped_steps": float(progress.skipped_steps),
        }

    def _go_back(self) -> None:
        """Continue from the last good checkpoint."""
        self._adopt(self.passes.divergence.go_back(self.state))
        for split in self.splits:
            split.batches = None
        self.passes.checkpoint_policy.restart_timer()
