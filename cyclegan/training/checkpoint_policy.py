"""The policy about checkpoints: when to save one, what to do if that fails, and when to stop training."""

from __future__ import annotations

import dataclasses
import logging
import os
import pathlib
import signal
import threading
import time
from collections.abc import Mapping
from typing import Any

from cyclegan import terminal
from cyclegan.distribution.workers import Watchdog, Workers
from cyclegan.errors import Stopped, TrainingError, UserError
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.run_directory import RunDirectory
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks import Summary
from cyclegan.training.divergence import DivergencePolicy

logger = logging.getLogger(__name__)

REQUESTS = ("stop", "save")  # made by one worker, obeyed by all
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RETRY_SECONDS = 60.0  # until the next attempt to write a checkpoint


class CheckpointPolicy:
    """Decide when to save a checkpoint within an epoch, on a timer or a signal, and what to do if that fails.

    Several workers must save and stop at the same step. Every step merges the `requests` of all workers, and each
    obeys the merged requests. A single worker acts on its requests at once. `signals` has the requests of the user.

    Args:
        checkpoints: Manager of the checkpoints.
        summary: Writer of the log; each checkpoint records the log's length.
        divergence: Policy that knows whether the weights are good.
        workers: All workers.
        watchdog: Watchdog of the training, which beats while the end of training waits for free space.
        minutes: Minutes between checkpoints; 0 saves at every opportunity.
        run: Folder of the run, which is checked before each checkpoint; `None` for no check.
    """

    def __init__(
        self,
        checkpoints: CheckpointManager,
        summary: Summary,
        divergence: DivergencePolicy,
        workers: Workers,
        watchdog: Watchdog,
        minutes: float,
        run: RunDirectory | None = None,
    ) -> None:
        self.checkpoints = checkpoints
        self.signals = Signals()
        self._summary = summary
        self._divergence = divergence
        self._workers = workers
        self._watchdog = watchdog
        self._seconds = 60 * minutes
        self._run = run
        self._merged = dict.fromkeys(REQUESTS, False)
        self.restart_timer()

    @property
    def is_shared(self) -> bool:
        """Whether several workers decide together."""
        return self._workers.count > 1

    def requests(self) -> dict[str, float]:
        """Return the requests of this worker by name, 1 or 0. Only the chief's timer counts."""
        timed_out = self._workers.is_chief and time.monotonic() >= self._next_save
        return {"stop": float(self.signals.stop_signal > 0), "save": float(self.signals.save_requested or timed_out)}

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
        return any((self._merged if self.is_shared else self.requests()).values())

    def restart_timer(self, seconds: float | None = None) -> None:
        """Let the timer run out after some seconds, by default after the usual minutes."""
        self._next_save = time.monotonic() + (self._seconds if seconds is None else seconds)

    def save(
        self, state: TrainState, best_kid: Mapping[str, float] | None = None, meanwhile: str = "Training continues"
    ) -> pathlib.Path | None:
        """Save a checkpoint; return its folder, or `None` after a failure, which sets the timer to the next attempt.

        If the newest step was not finite, the weights may be broken: nothing is saved until a step is finite again,
        except when training must stop; then all older checkpoints are kept.

        Args:
            state: Position in training. It gets `best_kid` and its epoch if the checkpoint is saved.
            best_kid: Lowest KID so far of each direction that reached it here ("x2y"). Each gets a copy ("best-x2y").
            meanwhile: Description of what happens until the next attempt, for the warning; "" if there is none.

        Raises:
            TrainingError: The folder of the run was removed or moved.
        """
        self._merged["save"] = False
        is_sound, best_kid = self._divergence.is_sound, best_kid or {}
        if not is_sound and not self.stop_signal:
            self.restart_timer(0)
            return None
        is_requested, self.signals.save_requested = self.signals.save_requested, False
        if self._run:
            self._run.check()
        self._summary.flush()
        saved = dataclasses.replace(
            state,
            log_bytes=self._summary.log_bytes,
            best_kid={**state.best_kid, **best_kid},
            best_epoch={**state.best_epoch, **dict.fromkeys(best_kid, state.epoch)},
        )
        try:
            path = self.checkpoints.save(saved, is_sound, [f"best-{direction}" for direction in best_kid])
        except UserError as error:
            retries = meanwhile and not self.stop_signal
            logger.warning(f"{error}. {meanwhile}, and tries again in {RETRY_SECONDS:.0f} s" if retries else f"{error}")
            self.restart_timer(RETRY_SECONDS)
            return None
        state.best_kid, state.best_epoch = saved.best_kid, saved.best_epoch
        self.restart_timer()
        self._divergence.note_checkpoint(state)
        if is_requested:
            logger.info(f"Saved {path}")
        return path

    def save_and_obey(self, state: TrainState, best_kid: Mapping[str, float] | None = None) -> None:
        """Save a checkpoint as `save` does, and stop if a signal asked for it.

        Raises:
            Stopped: A signal asked to stop.
        """
        path = self.save(state, best_kid)
        if signum := self.stop_signal:
            where = f"saved in {path}" if path else "everything since the last checkpoint is lost"
            source = "" if self.signals.stop_signal else " of another worker"
            raise Stopped(
                signum,
                f"stopped by {signal.Signals(signum).name}{source} after {state.epoch} epochs and"
                f" {state.train.pairs_done} pairs (step {state.step}), {where}; the same command resumes",
            )

    def save_final(self, state: TrainState, best_kid: Mapping[str, float] | None = None) -> None:
        """Save the last checkpoint, and write the pending lines of the log; retry until both succeed.

        Raises:
            Stopped: A signal ended the wait.
            TrainingError: The last steps were not finite.
        """
        if not self._divergence.is_sound:
            raise TrainingError(
                "the last steps were not finite, so the end of training is not saved; the same command resumes from the"
                " last checkpoint. Try a lower --lr"
            )
        meanwhile = "Training is done; the program waits"
        while True:
            is_saved = self.save(state, best_kid, meanwhile) is not None
            is_logged = self._summary.flush()
            if self._workers.all_true(is_saved and is_logged):
                return
            if not is_logged:
                logger.warning(
                    "The last lines of the log cannot be written; an earlier warning names the file and the cause."
                    f" {meanwhile}, and tries again in {RETRY_SECONDS:.0f} s"
                )
            self.restart_timer(RETRY_SECONDS)  # also if only the lines of the log are missing
            while not self.is_due():
                self._watchdog.beat()
                time.sleep(0.1)
                if self.is_shared:
                    sums = self._workers.all_gather([int(request) for request in self.requests().values()]).sum(axis=0)
                    self.merge_requests(dict(zip(REQUESTS, sums)))
            if self.stop_signal:
                self.save_and_obey(state, best_kid)


class Signals:
    """Context manager that turns signals into requests, which training checks after each call.

    SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal) ask to stop, SIGUSR1 asks to save a checkpoint and continue.
    Ctrl-C after that ends a command of this package at once, even in the middle of a step: a thread reads the signals,
    because Python's own handlers run only between two calls of TensorFlow. In other programs, such as notebooks, it
    raises `KeyboardInterrupt` after the step. Signals that the parent process ignores stay ignored, as under `nohup`.

    Attributes:
        stop_signal: Number of the signal that asked to stop; 0 if none did.
        save_requested: Whether a checkpoint was asked for. The policy that saves it resets this.
    """

    def __init__(self) -> None:
        self.stop_signal = 0
        self.save_requested = False
        self._stops = 0
        self._handlers: dict[signal.Signals, Any] = {}
        self._thread: threading.Thread | None = None
        self._write_end = self._previous_wakeup = -1

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread may handle signals
        read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._previous_wakeup = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for signum in (*STOP_SIGNALS, signal.SIGUSR1):
            if signal.getsignal(signum) != signal.SIG_IGN:
                self._handlers[signum] = signal.signal(signum, self._handle)
        self._thread = threading.Thread(target=self._listen, args=(read_end,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._thread is None:
            return
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._previous_wakeup)
        os.close(self._write_end)  # ends the thread
        self._thread.join()

    def _handle(self, signum: int, _: object) -> None:
        self._stops += signum in STOP_SIGNALS
        if self._stops > 1 and signum == signal.SIGINT:
            raise KeyboardInterrupt

    def _listen(self, read_end: int) -> None:
        with open(read_end, "rb", buffering=0) as pipe:
            while received := pipe.read(1):
                self._receive(received[0])

    def _receive(self, signum: int) -> None:
        if signum == signal.SIGUSR1:
            self.save_requested = True
        elif self.stop_signal and signum == signal.SIGINT:
            if terminal.is_command:
                os._exit(128 + signum)
        elif signum in STOP_SIGNALS and not self.stop_signal:
            self.stop_signal = signum
            key = "Ctrl-C again" if signum == signal.SIGINT else "Ctrl-C"
            logger.warning(f"Stopping after this step, with a checkpoint; {key} leaves at once, without one")
