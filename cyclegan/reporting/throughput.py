"""How fast training is, how close that comes to what the device can do, and TensorFlow's profile of it."""

from cyclegan.distribution import hardware

PREFIX = "speed/"  # of the names of all figures here


class Throughput:
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
        values["memory_GB"] = hardware.memory() / 1e9
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
