"""How fast training is, how close that comes to what the device can do, and TensorFlow's profile of it."""

import tensorflow as tf


class Profiler:
    """TensorFlow's profile of some steps, for TensorBoard. Calls of several steps are profiled as a whole, and what is between.

    Args:
        steps: (START, END), for the steps after START steps of the run are done until END are; `None` for no profile.
        folder: where it is written, under plugins/profile; `None` where another worker writes it.
        say: is called with a text when it can't be made or written, for which training does not stop.
        tell: is called with a text when it is there.
    """

    def __init__(self, steps, folder, say=print, tell=print):
        self.start, self.end = steps or (0, 0)
        self.folder, self.say, self.tell = folder, say, tell
        self.running = False

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.finish()

    def wanted(self, step, steps):
        """Whether to call `begin`, when `step` steps are done and the next `steps` are about to begin."""
        return self.start < step + steps and step < self.end and not self.running

    def begin(self, step):
        """Begins, once the device has done `step` steps and has nothing to do."""
        self.running = self._told("begun", tf.profiler.experimental.start, str(self.folder))
        self.first, self.last = step + 1, step
        if not self.running:
            self.end = 0

    def over(self, step):
        """Whether to call `finish`, once the device has done `step` steps. To be asked after each call."""
        self.last = step
        return self.running and step >= self.end

    def finish(self):
        """Writes the profile, if one runs."""
        if self.running:
            self.running, self.end = False, 0
            if self._told("written", tf.profiler.experimental.stop) and self.folder and self.last >= self.first:
                self.tell(f"Profile of steps {self.first} to {self.last} written to {self.folder}/plugins/profile")

    def _told(self, done, call, *args):
        """Whether TensorFlow does what is called; if not, the user is told."""
        try:
            if self.folder:
                call(*args)
            return True
        except (tf.errors.OpError, OSError) as error:
            why = str(getattr(error, "message", error)).strip().splitlines() or [type(error).__name__]
            self.say(f"the profile could not be {done} ({why[0]}); training goes on without")
            return False
