"""TensorFlow's profile of some steps."""

from __future__ import annotations

import logging
import pathlib

from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import UserError
from cyclegan.run.throughput import Profiler
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks.base import Call, Callback

logger = logging.getLogger(__name__)


class ProfileCallback(Callback):
    """Profile the training steps of --profile START:END.

    Args:
        steps: (START, END); `None` for no profile.
        folder: Folder of the run; `None` if another worker writes the profile.
        dataset: Training pairs.
        epochs: Length of the whole training, in epochs.
    """

    def __init__(
        self,
        steps: tuple[int, int] | None,
        folder: pathlib.Path | None,
        dataset: UnpairedDataset,
        epochs: int,
    ) -> None:
        self._profiler = Profiler(steps, folder)
        self._steps = steps
        self._dataset = dataset
        self._epochs = epochs

    def on_train_begin(self, state: TrainState) -> None:
        """Warn if --profile covers no remaining step.

        Raises:
            UserError: It covers no step of the whole run.
        """
        first = state.step + 1
        whole_epochs = self._epochs - state.epoch - 1
        last = (
            state.step + self._dataset.steps_left(state.train.pairs_done) + whole_epochs * self._dataset.steps_per_epoch
        )
        if self._steps and not (self._steps[0] < last and first <= self._steps[1]):
            start, end = self._steps
            nothing = f"--profile {start}:{end} profiles nothing"
            if start >= last and first == 1:
                raise UserError(f"{nothing}: the run has {last} steps; expected fewer for START, or more --epochs")
            logger.warning(f"{nothing}: the remaining steps are {first} to {last}, counted over the whole run")

    def on_train_end(self) -> None:
        """Write the profile if one is running."""
        self._profiler.stop()

    def is_due_before(self, call: Call) -> bool:
        """Return whether the profile starts with this call."""
        return call.split == "train" and self._profiler.should_start(call.state.step, call.steps)

    def on_call_begin(self, call: Call) -> None:
        """Start the profile."""
        self._profiler.start(call.state.step)

    def is_due_after(self, call: Call) -> bool:
        """Return whether the profile ends with this call."""
        return call.split == "train" and self._profiler.should_stop(call.state.step)

    def on_call_end(self, call: Call) -> None:
        """Write the profile."""
        self._profiler.stop()
