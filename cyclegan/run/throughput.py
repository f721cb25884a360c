"""Speed of training: steps and images per second, the share of the devices' peak, and TensorFlow's profile."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.errors import first_line

logger = logging.getLogger(__name__)

PREFIX = "speed/"  # of the names of the metrics
FAST_FLOPS = 8.83e10  # of a training step of --preset fast with one pair of color images, see `Objective.flops`


def duration(seconds: float) -> str:
    """Return a time in one unit, rounded to two digits: "17 h"."""
    units = {"days": 86400, "h": 3600, "min": 60, "s": 1}
    unit = next((unit for unit, size in units.items() if seconds >= 2 * size), "s")
    return f"{float(f'{max(1, seconds / units[unit]):.2g}'):g} {unit}"


class Throughput:
    """Counter of steps and of the time they take.

    Attributes:
        flops: Floating-point operations of a step on all devices together; 0 if not counted.
        peak: FLOP/s that all devices together have reached, see `hardware.measure_peak`; 0 if not measured.
        steps: Steps since the last `reset`.
    """

    def __init__(self, flops: float = 0.0, peak: float = 0.0) -> None:
        self.flops, self.peak = flops, peak
        self.reset()

    def reset(self) -> None:
        """Set all counters to zero."""
        self._images = self.steps = 0
        self._seconds = self._waited = 0.0

    def add(self, images: int, steps: int, seconds: float, waited: float) -> None:
        """Count the images of both domains in some steps, the seconds of the steps, and those `waited` for images."""
        self._images += images
        self.steps += steps
        self._seconds += seconds
        self._waited += waited

    @property
    def seconds_per_step(self) -> float:
        """Mean time of a step; there must be one."""
        return self._seconds / self.steps

    def metrics(self) -> dict[str, float]:
        """Return the metrics by name, empty if nothing was counted; `data_wait` is a share of the time in [0, 1]."""
        if not self._seconds:
            return {}
        values = {
            "images_per_second": self._images / self._seconds,
            "ms_per_step": 1000 * self.seconds_per_step,
            "data_wait": self._waited / self._seconds,
        }
        if self.flops:
            rate = self.flops * self.steps / self._seconds
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
        texts = {name: f"{float(f'{value:.3g}'):g}" for name, value in values.items()}  # 12300, not 1.23e+04
        parts = [f"{texts['images_per_second']} images/s, {texts['ms_per_step']} ms, data {values['data_wait']:.1%}"]
        parts.append(f"{texts['memory_GB']} GB")
        if self.flops:
            share = f" ({values['share_of_peak']:.0%})" if self.peak else ""
            parts.append(f"{texts['TFLOP_per_second']} TFLOP/s{share}")
        return ", ".join(parts)


class Profiler:
    """TensorFlow's profile of some training steps, for TensorBoard, including the time between calls.

    Args:
        steps: (START, END): profile from after START steps of the run until END are done. `None` profiles nothing.
        folder: Folder of the run, in which the profile goes to `plugins/profile`; `None` if another worker writes it.
    """

    def __init__(self, steps: tuple[int, int] | None, folder: str | os.PathLike[str] | None) -> None:
        self._start, self._end = steps or (0, 0)
        self._folder = folder
        self._first = 0  # step of the running profile, from 1
        self._last = 0

    def should_start(self, step: int, steps: int) -> bool:
        """Return whether to call `start` when `step` steps are done and a call of `steps` steps comes next."""
        return self._start < step + steps and step < self._end and not self._first

    def start(self, step: int) -> None:
        """Start the profile, after `step` steps and while the device is idle."""
        self._first, self._last = step + 1, step
        self._call("started", tf.profiler.experimental.start, str(self._folder))

    def should_stop(self, step: int) -> bool:
        """Return whether to call `stop` once the device has done `step` steps; call it after every training call."""
        self._last = step
        return self._first > 0 and step >= self._end

    def stop(self) -> None:
        """Write the profile if one is running; there is no other one."""
        if self._first:
            if self._call("written", tf.profiler.experimental.stop) and self._first <= self._last:
                steps = f"{self._first} to {self._last}"
                logger.info(f"Profile of steps {steps} written to {self._folder}/plugins/profile")
            self._first = self._end = 0

    def _call(self, action: str, function: Callable[..., None], *arguments: str) -> bool:
        """Call a function of TensorFlow; return whether it worked. Warn if it fails: then there is no profile."""
        if not self._folder:
            return False
        try:
            function(*arguments)
        except (tf.errors.OpError, OSError) as error:
            logger.warning("the profile could not be %s (%s); training continues without it", action, first_line(error))
            self._first = self._end = 0
            return False
        return True
