"""When a checkpoint is due, what happens when it can't be written, and leaving with one."""

import signal
import time

from cyclegan.errors import Stopped, TrainingError, UserError

RETRY_SECONDS = 60.0  # until a checkpoint that could not be written is tried again


class Saver:
    """Saves when it is time to, or when a signal asks for it.

    Args:
        checkpoints: the `checkpoint.Checkpoints` to save to.
        signals: the `signals.Signals` to obey.
        summary: the `summaries.Summary`, whose log belongs to the place that is saved.
        minutes: between checkpoints; 0 is at every occasion.
        say: called with a text that the user should not miss.
        check: called before anything is written; raises if the run's folder has been taken away.
    """

    def __init__(self, checkpoints, signals, summary, minutes, say=print, check=lambda: None):
        self.checkpoints = checkpoints
        self.signals = signals
        self.summary = summary
        self.seconds = 60 * minutes
        self.say = say
        self.check = check
        self._asked = False  # a signal asked for a checkpoint that is not there yet
        self.plan()

    def due(self):
        """Whether it is time to save, or a signal asks for something."""
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
        if not sound and not self.signals.stop:
            self.plan(0)
            return None
        if self.signals.save:
            self.signals.save, self._asked = False, True
        self.check()
        self.summary.flush()
        progress.log_bytes = self.summary.log_bytes
        before, best = progress.best, best or {}
        progress.best = {**before, **best}
        try:
            path = self.checkpoints.save(progress, sound, [f"best-{direction}" for direction in best])
        except UserError as error:
            progress.best = before
            again = f". {then}, and tries again in {RETRY_SECONDS:.0f} s"
            self.say(f"{error}{'' if self.signals.stop else again}")
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
        if self.signals.stop:
            where = f"saved in {path}" if path else "what came after the last checkpoint is lost"
            raise Stopped(
                self.signals.stop,
                f"stopped by {signal.Signals(self.signals.stop).name} after {progress.epoch} epochs and"
                f" {progress.train.pairs} pairs (step {progress.step}), {where}; the same command resumes",
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
        while not self.save(progress, sound, waits, best) or not self.summary.flush():
            self.plan(RETRY_SECONDS)  # also where only the end of the log is missing
            while not self.due():
                time.sleep(0.1)  # signals are looked at in between
            if self.signals.stop:
                self.save_and_obey(progress, sound, best)

    def plan(self, seconds=None):
        """The next checkpoint is due after so many seconds, by default the usual ones."""
        seconds = self.seconds if seconds is None else seconds
        self._next = time.monotonic() + seconds  # not the time of day, which may be set back
