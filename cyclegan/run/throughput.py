"""Speed of training, and its share of the peak of the devices."""

from __future__ import annotations

from cyclegan.distribution import hardware

PREFIX = "speed/"  # of the names of the metrics


class Throughput:
    """Counter of steps and of the time they take.

    Args:
        flops: Floating-point operations of a step on all devices together; 0 if not counted.
        peak: FLOP/s that all devices together have reached, see `hardware.measure_peak`; 0 if not measured.

    Attributes:
        flops: Floating-point operations of a step.
        peak: Peak of the devices in FLOP/s.
        images: Images of both domains since the last reset.
        steps: Steps since the last reset.
        seconds: Time of these steps in seconds.
        waited: Part of `seconds` spent waiting for images.
    """

    def __init__(self, flops: float = 0.0, peak: float = 0.0) -> None:
        self.flops, self.peak = flops, peak
        self.reset()

    def reset(self) -> None:
        """Set all counters to zero."""
        self.images = self.steps = 0
        self.seconds = self.waited = 0.0

    def add(self, images: int, steps: int, seconds: float, waited: float) -> None:
        """Count steps.

        Args:
            images: Images of both domains in these steps.
            steps: Number of steps.
            seconds: Time of the steps in seconds.
            waited: Part of that time spent waiting for images.
        """
        self.images += images
        self.steps += steps
        self.seconds += seconds
        self.waited += waited

    def metrics(self) -> dict[str, float]:
        """Return the metrics by name; empty if nothing was counted.

        These are the images of both domains per second, the milliseconds per step, the share of the time in [0, 1] spent waiting
        for images, TFLOP/s and their share of the peak, and the peak memory use of a device in GB.
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
            if self.peak:  # a rate above the peak means that the device was busy while the peak was measured
                values["share_of_peak"] = rate / max(self.peak, rate)
        values["memory_GB"] = hardware.peak_memory() / 1e9
        return {PREFIX + name: value for name, value in values.items()}

    def __str__(self) -> str:
        """Return the metrics as text for a progress bar."""
        values = {name[len(PREFIX) :]: value for name, value in self.metrics().items()}
        if not values:
            return ""
        text = f"{_three_digits(values['images_per_second'])} images/s, {_three_digits(values['ms_per_step'])} ms"
        text += f", data {values['data_wait']:.1%}"
        if "TFLOP_per_second" in values:
            text += f", {_three_digits(values['TFLOP_per_second'])} TFLOP/s"
        if "share_of_peak" in values:
            text += f" ({values['share_of_peak']:.0%})"
        return text + f", {_three_digits(values['memory_GB'])} GB"


def _three_digits(value: float) -> str:
    """Format a number with three significant digits and no exponent: 0.0123, 12.3, 12300."""
    return f"{float(f'{value:.3g}'):g}"
