"""When a checkpoint is due, what happens when it can't be written, and leaving with one."""

import signal
import time

from cyclegan.errors import Stopped, TrainingError, UserError

WISHES = ("stop", "save")  # what one of several workers may want all of them to do
RETRY_SECONDS = 60.0  # until a checkpoint that could not be written is tried again


class CheckpointPolicy:
    """Saves when it is time to, or when a signal asks for it.

    Args:
        checkpoints: the `checkpoint.CheckpointManager` to save to.
        signals: the `signals.Signals` to obey.
        summary: the `summaries.SummaryWriter`, whose log belongs to the place that is saved.
        minutes: between checkpoints; 0 is at every occasion.
        say: called with a text that the user should not miss.
        check: called before anything is written; raises if the run's folder has been taken away.
        workers: the `workers.Workers` that train together, if there are several. What one of them is asked for, all have to do
            at the same step: each tells the others its `wishes`, and does what was wished for when all have heard of it.
    """

    def __init__(self, checkpoints, signals, summary, minutes, say=print, check=lambda: None, workers=None):
        self.checkpoints = checkpoints
        self.signals = signals
        self.summary = summary
        self.seconds = 60 * minutes
        self.say = say
        self.check = check
        self.workers = workers
        self._heard = dict.fromkeys(WISHES, False)  # what any of several workers has wished for
        self._asked = False  # a signal asked for a checkpoint that is not there yet
        self.plan()

    @property
    def together(self):
        """Whether there are several workers."""
        return self.workers is not None and self.workers.count > 1

    def wishes(self):
        """What this worker wishes for, of `WISHES`: a dict of floats, 1 or 0. It is the chief's clock that counts."""
        on_time = self.workers.is_chief and time.monotonic() >= self._next
        return {"stop": float(bool(self.signals.stop)), "save": float(self.signals.save or on_time)}

    def hear(self, wishes):
        """Takes what all workers wished for together, a dict of sums by name."""
        for name in WISHES:
            self._heard[name] = self._heard[name] or wishes[name] > 0

    @property
    def stopping(self):
        """The number of the signal that training stops for, 0 if it goes on; SIGTERM where another worker got one."""
        if self.together:
            return self._heard["stop"] and (self.signals.stop or signal.SIGTERM)
        return self.signals.stop

    def due(self):
        """Whether it is time to save, or a signal asks for something."""
        if self.together:
            return any(self._heard.values())
        return self.signals.stop or self.signals.save or time.monotonic() >= self._next

    def save(self, progress, sound, then="Training goes on", best=None):
        """Saves a checkpoint. Returns its folder, or `None` where there is none: then it is tried again.

        Args:
            progress: the place in training.
            sound: whether the last steps were finite. If not, the weights themselves may be what is wrong, so nothing is
                saved until one is finite again; unless a signal asks to stop, which pushes out no older checkpoint.
            then: what happens if it could not be written, for the message.
            best: the scores of directions that are the best so far here, a dict ("x2y": 0.1): the checkpoint is kept under the
                name of each (best-x2y) too, and `progress` has them once it is saved.

        Raises:
            TrainingError: the run's folder is not there any more.
        """
        self._heard["save"] = False
        if not sound and not self.stopping:
            self.plan(0)
            return None
        if self.signals.save:
            self.signals.save, self._asked = False, True
        self.check()
        self.summary.flush()
        progress.log_bytes = self.summary.log_bytes
        before, best = progress.best_kid, best or {}
        progress.best_kid = {**before, **best}
        try:
            path = self.checkpoints.save(progress, sound, [f"best-{direction}" for direction in best])
        except UserError as error:
            progress.best_kid = before
            again = f". {then}, and tries again in {RETRY_SECONDS:.0f} s"
            self.say(f"{error}{'' if self.stopping else again}")
            self.plan(RETRY_SECONDS)
            return None
        self.plan()
        if self._asked:
            self.say(f"Saved {path}")
            self._asked = False
        return path

    def save_and_obey(self, progress, sound, best=None):
        """As `save`, and leaves if a signal asked for it.

        Raises:
            Stopped
        """
        path = self.save(progress, sound, best=best)
        if self.stopping:
            where = f"saved in {path}" if path else "what came after the last checkpoint is lost"
            of = "" if self.signals.stop else " of another worker"
            raise Stopped(
                self.stopping,
                f"stopped by {signal.Signals(self.stopping).name}{of} after {progress.epoch} epochs and"
                f" {progress.train.pairs_done} pairs (step {progress.step}), {where}; the same command resumes",
            )
        return path

    def save_the_end(self, progress, sound, best=None):
        """Saves the last checkpoint and the end of the log; where they can't be written, waits until they can.

        Raises:
            Stopped: a signal ended the wait.
            TrainingError: the last steps were not finite.
        """
        if not sound:
            raise TrainingError(
                "the last steps were not finite, so the end of training is not saved; the same command goes on from the last"
                " checkpoint. Try a lower --lr"
            )
        waits = "Training is done but for this; the program waits"
        while not self._all(self.save(progress, sound, waits, best) and self.summary.flush()):
            self.plan(RETRY_SECONDS)  # also where only the end of the log is missing
            while not self.due():
                time.sleep(0.1)  # signals are looked at in between
                if self.together:
                    sums = self.workers.all_gather([int(wish) for wish in self.wishes().values()]).sum(axis=0)
                    self.hear(dict(zip(WISHES, sums)))
            if self.stopping:
                self.save_and_obey(progress, sound, best)

    def _all(self, value):
        return self.workers.all_true(value) if self.together else value

    def plan(self, seconds=None):
        """The next checkpoint is due after so many seconds, by default the usual ones."""
        seconds = self.seconds if seconds is None else seconds
        self._next = time.monotonic() + seconds  # not the time of day, which may be set back
