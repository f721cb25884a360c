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
from cyclegan.errors import Stopped, TrainingError, UserError, counted
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.run_directory import RunDirectory
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks import Summary
from cyclegan.training.divergence import DivergencePolicy

logger = logging.getLogger(__name__)

REQUESTS = ("stop", "save")  # made by one worker, obeyed by all
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RETRY_SECONDS = 60.0  # until the next attempt to write a checkpoint


@dataclasses.dataclass
class CheckpointPolicy:
    """Decide when to save a checkpoint within an epoch, on a timer or a signal, and what to do if that fails.

    Several workers must save and stop at the same step. Every step merges the `requests` of all workers, and each
    obeys the merged requests. A single worker acts on its requests at once. `signals` has the requests of the user.

    The `watchdog` beats while the end of training waits for free space. There are `minutes` between checkpoints; 0
    saves at every opportunity. The folder `run` is checked before each checkpoint, if it is given.
    """

    checkpoints: CheckpointManager
    summary: Summary
    divergence: DivergencePolicy
    workers: Workers
    watchdog: Watchdog
    minutes: float
    run: RunDirectory | None = None

    def __post_init__(self) -> None:
        self.signals = Signals()
        self._merged = dict.fromkeys(REQUESTS, False)
        self.restart_timer()

    @property
    def is_shared(self) -> bool:
        """Whether several workers decide together."""
        return self.workers.count > 1

    def requests(self) -> dict[str, float]:
        """Return the requests of this worker by name, 1 or 0. Only the chief's timer counts."""
        timed_out = self.workers.is_chief and time.monotonic() >= self._next_save
        return {"stop": float(self.signals.stop_signal > 0), "save": float(self.signals.save_requested or timed_out)}

    def merge_requests(self, requests: Mapping[str, float]) -> None:
        """Merge the save and stop requests of all workers, summed over the workers."""
        for name in REQUESTS:
            self._merged[name] = self._merged[name] or requests[name] > 0

    @property
    def stop_signal(self) -> int:
        """Number of the signal to stop on, or 0; SIGTERM if another worker received one."""
        return (self.signals.stop_signal or signal.SIGTERM) if self._decided()["stop"] else 0

    def is_due(self) -> bool:
        """Return whether to save now: a timer has run out, or a signal asks to save or to stop."""
        return any(self._decided().values())

    def _decided(self) -> Mapping[str, float]:
        return self._merged if self.is_shared else self.requests()

    def restart_timer(self, seconds: float | None = None) -> None:
        """Let the timer run out after some seconds, by default after the usual minutes."""
        self._next_save = time.monotonic() + (60 * self.minutes if seconds is None else seconds)

    def save(
        self, state: TrainState, best_kid: Mapping[str, float] | None = None, meanwhile: str = "Training continues"
    ) -> pathlib.Path | None:
        """Save a checkpoint; return its folder, or `None` after a failure, which sets the timer to the next attempt.

        If the newest step was not finite, the weights may be broken: nothing is saved until a step is finite again.

        Args:
            state: Position in training. It gets `best_kid` and its epoch if the checkpoint is saved.
            best_kid: Lowest KID so far of each direction that reached it here ("x2y"). Each gets a copy ("best-x2y").
            meanwhile: Description of what happens until the next attempt, for the warning; "" if there is none.

        Raises:
            TrainingError: The folder of the run was removed or moved.
        """
        self._merged["save"], best_kid = False, best_kid or {}
        if not self.divergence.is_sound:
            self.restart_timer(0)
            return None
        is_requested, self.signals.save_requested = self.signals.save_requested, False
        if self.run:
            self.run.check()
        try:
            if not self.workers.all_true(self.summary.flush()):
                raise UserError(f"no checkpoint {state.name} without its lines of the log; see the warning about these")
            saved = dataclasses.replace(
                state,
                log_bytes=self.summary.log_bytes,
                best_kid={**state.best_kid, **best_kid},
                best_epoch={**state.best_epoch, **dict.fromkeys(best_kid, state.epoch)},
            )
            path = self.checkpoints.save(saved, [f"best-{direction}" for direction in best_kid])
        except UserError as error:
            retries = meanwhile and not self.stop_signal
            logger.warning(f"{error}. {meanwhile}, and tries again in {RETRY_SECONDS:.0f} s" if retries else f"{error}")
            self.restart_timer(RETRY_SECONDS)
            return None
        state.best_kid, state.best_epoch = saved.best_kid, saved.best_epoch
        self.restart_timer()
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
                f"stopped by {signal.Signals(signum).name}{source} after {counted(state.epoch, 'epoch')} and"
                f" {counted(state.train.pairs_done, 'pair')} (step {state.step}), {where}; the same command resumes",
            )

    def save_final(self, state: TrainState, best_kid: Mapping[str, float] | None = None) -> None:
        """Save the last checkpoint; retry until there is room for it.

        Raises:
            Stopped: A signal ended the wait.
            TrainingError: The last steps were not finite.
        """
        if not self.divergence.is_sound:
            raise TrainingError(
                "the last steps were not finite, so the end of training is not saved; the same command resumes from the"
                " last checkpoint. Try a lower --lr"
            )
        while self.save(state, best_kid, "Training is done; the program waits") is None:
            while not self.is_due():
                self.watchdog.beat()
                time.sleep(0.1)
                if self.is_shared:
                    sums = self.workers.all_gather([int(request) for request in self.requests().values()]).sum(axis=0)
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
                text = "stopped at once, without a checkpoint; the same command resumes from the last one"
                terminal.end(text, 128 + signum, before="\n")  # below the progress bar
        elif signum in STOP_SIGNALS and not self.stop_signal:
            self.stop_signal = signum
            key = "Ctrl-C again" if signum == signal.SIGINT else "Ctrl-C"
            text = f"Stopping after this step, with a checkpoint; {key} leaves at once, without one"
            logger.warning(text, extra={"is_passing": True})  # the page does not keep it
