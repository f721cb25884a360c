"""Calls that the devices may still be computing."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable

import tensorflow as tf

AHEAD = 2  # calls that the host may be ahead of the devices


@dataclasses.dataclass(frozen=True)
class PendingCall:
    """A call that was started, and its future results.

    Attributes:
        split: "train" or "test".
        first_pair: Pairs of the pass that were done before the call.
        first_step: Training steps that were done before the call.
        is_finite: Whether all metrics of each step are finite, bool [steps].
        metrics: Metrics of each step by name, float32 [steps].
    """

    split: str
    first_pair: int
    first_step: int
    is_finite: tf.Tensor
    metrics: dict[str, tf.Tensor]


class InFlightCalls:
    """Queue of started calls that the host inspects later, so that the devices never wait for the host.

    Args:
        inspect: Function that waits for the outcome of a call and inspects it.
    """

    def __init__(self, inspect: Callable[[PendingCall], None]) -> None:
        self._inspect = inspect
        self._calls: collections.deque[PendingCall] = collections.deque()

    def add(self, call: PendingCall) -> None:
        """Append a call that was just started."""
        self._calls.append(call)

    def inspect_old(self) -> None:
        """Inspect the oldest calls until the host is at most `AHEAD` calls ahead."""
        self._inspect_until(AHEAD)

    def inspect_all(self) -> None:
        """Inspect all calls, after which the devices are idle."""
        self._inspect_until(0)

    def _inspect_until(self, left: int) -> None:
        while len(self._calls) > left:
            self._inspect(self._calls.popleft())
