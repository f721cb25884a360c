"""How fast training is, how close that comes to what the device can do, and TensorFlow's profile of it."""

import tensorflow as tf

from cyclegan import devices

PREFIX = "speed/"  # of the names of all figures here


class Speed:
    """Counts steps and the time they took.

    Args:
        flops: floating-point operations of a step, on all devices together; 0 where nobody counted.
        peak: FLOP/s that the devices together have been seen to do, see `devices.peak`; 0 if not measured.
    """

    def __init__(self, flops=0.0, peak=0.0):
        self.flops, self.peak = flops, peak
        self.reset()

    def reset(self):
        """Forgets what was counted."""
        self.images = self.steps = 0
        self.seconds = self.waited = 0.0

    def add(self, images, steps, seconds, waited):
        """Counts some steps: `seconds` that went by, of which `waited` for pictures."""
        self.images += images
        self.steps += steps
        self.seconds += seconds
        self.waited += waited

    def figures(self):
        """What was counted, a dict of floats; empty if that is nothing.

        Images (of both domains) per second, milliseconds per step, the share of the time spent waiting for pictures [0, 1],
        TFLOP/s and their share of the peak, and the most memory that a device has used so far, in GB.
        """
        if not self.steps or not self.seconds:
            return {}
        values = {
            "images_per_second": self.images / self.seconds,
            "ms_per_step": 1000 * self.seconds / self.steps,
            "data_wait": self.waited / self.seconds,
        }
        if self.flops:
            rate = self.flops * self.steps / self.seconds
            values["TFLOP_per_second"] = rate / 1e12
            if self.peak:  # which was too low if it is beaten: the device had other things to do
                values["share_of_peak"] = rate / max(self.peak, rate)
        values["memory_GB"] = devices.memory() / 1e9
        return {PREFIX + name: value for name, value in values.items()}

    def __str__(self):
        """The figures for a progress bar."""
        values = {name[len(PREFIX) :]: value for name, value in self.figures().items()}
        if not values:
            return ""
        text = f"{_short(values['images_per_second'])} images/s, {_short(values['ms_per_step'])} ms"
        text += f", data {values['data_wait']:.1%}"
        if "TFLOP_per_second" in values:
            text += f", {_short(values['TFLOP_per_second'])} TFLOP/s"
        if "share_of_peak" in values:
            text += f" ({values['share_of_peak']:.0%})"
        return text + f", {_short(values['memory_GB'])} GB"


def _short(value):
    """Three digits, without an exponent: 0.0123, 12.3, 12300."""
    return f"{float(f'{value:.3g}'):g}"


class Profile:
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
