"""TensorFlow's profile of some training steps, for TensorBoard."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import tensorflow as tf

from cyclegan.errors import first_line

logger = logging.getLogger(__name__)


class Profiler:
    """Profile of a range of training steps.

    Calls of several steps are profiled as a whole, including the time between calls. If the profile cannot be started or written,
    training continues without it.

    Args:
        steps: (START, END): profile from after START steps of the run until END steps are done. `None` profiles nothing.
        folder: Folder of the profile, which goes to `plugins/profile` in it; `None` if another worker writes the profile.

    Attributes:
        running: Whether a profile is running.
    """

    def __init__(self, steps: tuple[int, int] | None, folder: str | os.PathLike[str] | None) -> None:
        self.running = False
        self._start, self._end = steps or (0, 0)
        self._folder = folder
        self._first = self._last = 0

    def should_start(self, step: int, steps: int) -> bool:
        """Return whether to call `start` when `step` steps are done and a call of `steps` steps comes next."""
        return self._start < step + steps and step < self._end and not self.running

    def start(self, step: int) -> None:
        """Start the profile, after `step` steps and while the device is idle."""
        self.running = self._try("started", tf.profiler.experimental.start, str(self._folder))
        self._first, self._last = step + 1, step
        if not self.running:
            self._end = 0

    def should_stop(self, step: int) -> bool:
        """Return whether to call `stop` once the device has done `step` steps; to be called after every training call."""
        self._last = step
        return self.running and step >= self._end

    def stop(self) -> None:
        """Write the profile if one is running."""
        if not self.running:
            return
        self.running, self._end = False, 0
        if self._try("written", tf.profiler.experimental.stop) and self._folder and self._last >= self._first:
            logger.info(
                "Profile of steps %d to %d written to %s/plugins/profile", self._first, self._last, self._folder
            )

    def _try(self, action: str, function: Callable[..., None], *args: str) -> bool:
        """Call a function of TensorFlow unless another worker does; return whether it worked, and warn if not."""
        try:
            if self._folder:
                function(*args)
            return True
        except (tf.errors.OpError, OSError) as error:
            logger.warning("the profile could not be %s (%s); training continues without it", action, first_line(error))
            return False
