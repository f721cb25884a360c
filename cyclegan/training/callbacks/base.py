"""The events of training, and the base class of the objects that react to them."""

from __future__ import annotations

import dataclasses
from typing import Union

from cyclegan.run.summaries import NullSummaryWriter, SummaryWriter
from cyclegan.run.train_state import TrainState

Summary = Union[SummaryWriter, NullSummaryWriter]


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a compiled step function.

    Attributes:
        split: "train" or "test".
        steps: Number of steps of the call.
        state: Position in training: before the call when it starts, after the call when it ends.
    """

    split: str
    steps: int
    state: TrainState


@dataclasses.dataclass
class Epoch:
    """The end of an epoch.

    Attributes:
        state: Position in training after the epoch.
        is_last: Whether training ends here. The evaluation may decide that it does.
        metrics: Metrics of the epoch, by split ("train", "test") and name. Callbacks may add metrics for later callbacks.
        best_kid: Lowest KID so far by direction, for the directions that reached it in this epoch. Only the chief knows it.
        is_best: Whether a direction reached its lowest KID so far. All workers know it.
    """

    state: TrainState
    is_last: bool
    metrics: dict[str, dict[str, float]]
    best_kid: dict[str, float] = dataclasses.field(default_factory=dict)
    is_best: bool = False


class Callback:
    """Base of the objects that react to the events of training. Its own methods do nothing."""

    def on_train_begin(self, state: TrainState) -> None:
        """React to the start of training at a position."""

    def on_train_end(self) -> None:
        """React to the end of training, also by an error or a signal."""

    def is_due_before(self, call: Call) -> bool:
        """Return whether `on_call_begin` must run before a call, once the devices are idle."""
        return False

    def on_call_begin(self, call: Call) -> None:
        """React to the start of a call, if `is_due_before`."""

    def is_due_after(self, call: Call) -> bool:
        """Return whether `on_call_end` must run after a call, once its outcome is known."""
        return False

    def on_call_end(self, call: Call) -> None:
        """React to the end of a call, if `is_due_after`."""

    def on_epoch_end(self, epoch: Epoch) -> None:
        """React to the end of an epoch."""
