"""The policy about checkpoints: when to save one, what to do if that fails, and when to stop training."""

from __future__ import annotations

import logging
import pathlib
import signal
import time
from collections.abc import Callable, Mapping

from cyclegan.distribution.workers import Workers
from cyclegan.errors import Stopped, TrainingError, UserError
from cyclegan.run.folder import Position
from cyclegan.run.manager import CheckpointManager
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks import Summary
from cyclegan.training.signals import Signals

logger = logging.getLogger(__name__)

REQUESTS = ("stop", "save")  # made by one worker, obeyed by all
RETRY_SECONDS = 60.0  # until the next attempt to write a checkpoint


class CheckpointPolicy:
    """Decide when to save a checkpoint: on a timer, on a signal, at the end.

    Several workers must save and stop at the same step. Every step merges the `requests` of all workers, and each worker obeys
    the merged requests. A single worker acts on its requests at once.

    Args:
        checkpoints: Manager of the checkpoints.
        signals: Requests of the user.
        summary: Writer of the log; each checkpoint records the log's length.
        minutes: Minutes between checkpoints; 0 saves at every opportunity.
        check_folder: Function that raises an error if the folder of the run was removed or moved.
        workers: All workers.
        beat: Function that is called again and again while the end of training waits for free space.

    Attributes:
        checkpoints: Manager of the checkpoints.
        signals: Requests of the user.
    """

    def __init__(
        self,
        checkpoints: CheckpointManager,
        signals: Signals,
        summary: Summary,
        minutes: float,
        check_folder: Callable[[], None],
        workers: Workers,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self.checkpoints = checkpoints
        self.signals = signals
        self._summary = summary
        self._seconds = 60 * minutes
        self._check_folder = check_folder
        self._workers = workers
        self._beat = beat
        self._merged = dict.fromkeys(REQUESTS, False)
        self._is_save_unanswered = False  # a signal asked for a checkpoint that could not be written yet
        self.restart_timer()

    @property
    def is_shared(self) -> bool:
        """Whether several workers decide together."""
        return self._workers.count > 1

    def requests(self) -> dict[str, float]:
        """Return the requests of this worker by name, 1 or 0. Only the chief's timer counts."""
        timed_out = self._workers.is_chief and time.monotonic() >= self._next_save
        return {
            "stop": float(bool(self.signals.stop_signal)),
            "save": float(self.signals.save_requested or timed_out),
        }

    def merge_requests(self, requests: Mapping[str, float]) -> None:
        """Merge the save and stop requests of all workers, summed over the workers."""
        for name in REQUESTS:
            self._merged[name] = self._merged[name] or requests[name] > 0

    @property
    def stop_signal(self) -> int:
        """Number of the signal to stop on, or 0; SIGTERM if another worker received one."""
        if self.is_shared:
            return (self.signals.stop_signal or signal.SIGTERM) if self._merged["stop"] else 0
        return self.signals.stop_signal

    def is_due(self) -> bool:
        """Return whether to save now: a timer has run out, or a signal asks to save or to stop."""
        if self.is_shared:
            return any(self._merged.values())
        timed_out = time.monotonic() >= self._next_save
        return bool(self.signals.stop_signal) or self.signals.save_requested or timed_out

    def restart_timer(self, seconds: float | None = None) -> None:
        """Let the timer run out after some seconds, by default after the usual minutes."""
        # Not the time of day, which may be set back.
        self._next_save = time.monotonic() + (self._seconds if seconds is None else seconds)

    def save(
        self,
        state: TrainState,
        is_sound: bool,
        best_kid: Mapping[str, float] | None = None,
        meanwhile: str = "Training continues",
    ) -> pathlib.Path | None:
        """Save a checkpoint, unless training is where it was restored.

        Args:
            state: Position in training. It gets `best_kid` and its epoch if the checkpoint is saved.
            is_sound: Whether the newest step was finite. If not, the weights may be broken: nothing is saved until a step is
                finite again, except when training must stop; then all older checkpoints are kept.
            best_kid: Lowest KID so far, for the directions that reached it here ("x2y"). The checkpoint is also kept under the
                name of each ("best-x2y").
            meanwhile: What happens until the next attempt, for the warning.

        Returns:
            The folder of the checkpoint; `None` if it could not be saved. Then the timer is set to the next attempt.

        Raises:
            TrainingError: The folder of the run was removed or moved.
        """
        self._merged["save"] = False
        if not is_sound and not self.stop_signal:
            self.restart_timer(0)
            return None
        restored = self.checkpoints.restored
        if restored and restored.name == Position.of(state).name:  # nothing was trained since
            return restored
        if self.signals.save_requested:
            self.signals.save_requested, self._is_save_unanswered = False, True
        self._check_folder()
        self._summary.flush()
        state.log_bytes = self._summary.log_bytes
        try:
            path = self._write(state, is_sound, best_kid or {})
        except UserError as error:
            retry = "" if self.stop_signal else f". {meanwhile}, and tries again in {RETRY_SECONDS:.0f} s"
            logger.warning(f"{error}{retry}")
            self.restart_timer(RETRY_SECONDS)
            return None
        self.restart_timer()
        if self._is_save_unanswered:
            logger.info(f"Saved {path}")
            self._is_save_unanswered = False
        return path

    def _write(self, state: TrainState, is_sound: bool, best_kid: Mapping[str, float]) -> pathlib.Path:
        """Write a checkpoint of a state with `best_kid`; if that fails, leave the state unchanged."""
        before = state.best_kid, state.best_epoch
        state.best_kid = {**state.best_kid, **best_kid}
        state.best_epoch = {**state.best_epoch, **dict.fromkeys(best_kid, state.epoch)}
        try:
            return self.checkpoints.save(state, is_sound, [f"best-{direction}" for direction in best_kid])
        except UserError:
            state.best_kid, state.best_epoch = before
            raise

    def save_and_obey(
        self, state: TrainState, is_sound: bool, best_kid: Mapping[str, float] | None = None
    ) -> pathlib.Path | None:
        """Save a checkpoint as `save` does, and stop if a signal asked for it.

        Raises:
            Stopped: A signal asked to stop.
        """
        path = self.save(state, is_sound, best_kid)
        if signum := self.stop_signal:
            where = f"saved in {path}" if path else "everything since the last checkpoint is lost"
            source = "" if self.signals.stop_signal else " of another worker"
            raise Stopped(
                signum,
                f"stopped by {signal.Signals(signum).name}{source} after {state.epoch} epochs and {state.train.pairs_done} pairs"
                f" (step {state.step}), {where}; the same command resumes",
            )
        return path

    def save_final(self, state: TrainState, is_sound: bool, best_kid: Mapping[str, float] | None = None) -> None:
        """Save the last checkpoint and the end of the log; wait until both can be written.

        Raises:
            Stopped: A signal ended the wait.
            TrainingError: The last steps were not finite.
        """
        if not is_sound:
            raise TrainingError(
                "the last steps were not finite, so the end of training is not saved; the same command resumes from the last"
                " checkpoint. Try a lower --lr"
            )
        meanwhile, warned = "Training is done except for this; the program waits", False
        while True:
            is_saved = self.save(state, is_sound, best_kid, meanwhile) is not None
            is_logged = self._summary.flush()
            if self._workers.all_true(is_saved and is_logged):
                return
            if not is_logged and not warned:
                logger.warning(f"The end of the log cannot be written, see above. {meanwhile}")
                warned = True
            self.restart_timer(RETRY_SECONDS)  # also if only the end of the log is missing
            self._wait()
            if self.stop_signal:
                self.save_and_obey(state, is_sound, best_kid)

    def _wait(self) -> None:
        """Wait until the timer runs out or a signal arrives, on any worker."""
        while not self.is_due():
            self._beat()
            time.sleep(0.1)
            if self.is_shared:
                sums = self._workers.all_gather([int(request) for request in self.requests().values()]).sum(axis=0)
                self.merge_requests(dict(zip(REQUESTS, sums)))
