"""A compiled step and the times of its calls."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Iterator
from typing import Any, Callable

import tensorflow as tf

from cyclegan.benchmarking import forms, levers
from cyclegan.benchmarking.noise import make_dataset
from cyclegan.benchmarking.settings import Setting
from cyclegan.distribution import hardware
from cyclegan.distribution.strategy import make_strategy
from cyclegan.distribution.workers import Workers
from cyclegan.errors import first_line

# Errors of TensorFlow if a device lacks a kernel or memory; it raises the last three while it traces.
DEVICE_ERRORS = (tf.errors.OpError, MemoryError, NotImplementedError, TypeError, ValueError)


class TimedStep:
    """A step with images for it, and its row of the table.

    Attributes:
        setting: The setting of the step.
        row: The setting and its measurements by column, with an "error" if the step failed.
        seconds: Seconds per step of each turn that counts.
        strategy: Strategy of the replicas.
        compiled: The step.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.row: dict[str, Any] = dataclasses.asdict(setting)
        self.seconds: list[float] = []
        self.strategy: tf.distribute.Strategy
        self.compiled: forms.CompiledStep

    @property
    def has_failed(self) -> bool:
        """Whether the step failed."""
        return "error" in self.row

    @contextlib.contextmanager
    def record_failure(self) -> Iterator[None]:
        """Turn a failure of the device inside the context into the "error" of the row, one line."""
        try:
            yield
        except DEVICE_ERRORS as error:
            self.row["error"] = f"{type(error).__name__}: {first_line(error)}"[:200]

    def build(self) -> None:
        """Make the networks and trace the step with a first call; measure the memory of a second call."""
        held = hardware.used_memory()
        self.strategy = make_strategy(self.setting.replicas)
        self._batches = next(make_dataset(self.setting, 1).distributed(self.strategy))
        with levers.without(self.setting.lever):
            self.compiled = forms.make(self.strategy, self.setting)
            began = time.perf_counter()
            self._call()
        self.row["first_seconds"] = time.perf_counter() - began
        hardware.reset_peak_memory()  # tracing and the choice of kernels need more memory than a step
        self._call()
        self.row["memory_GB"] = (hardware.peak_memory() - held) / 1e9

    def _call(self) -> None:
        """Do the steps of one call and wait for them."""
        self.compiled.call(self._batches).numpy()

    def take_turn(self, counts: bool) -> None:
        """Do one call; record its time if it counts."""
        began = time.perf_counter()
        self._call()
        if counts:
            self.seconds.append((time.perf_counter() - began) / self.setting.steps_per_call)

    def times(self) -> dict[str, float | None]:
        """Return the columns of the times per step."""
        return {
            "ms": 1000 * statistics.median(self.seconds),
            "best_ms": 1000 * min(self.seconds),
            "spread": spread(self.seconds),
        }

    def update_row(self, peak: float) -> None:
        """Fill the row with the turns so far.

        Args:
            peak: Peak of one device in FLOP/s; 0 if it is not known.
        """
        assert self.compiled.gan is not None and self.compiled.function is not None
        median, batch = statistics.median(self.seconds), self.setting.batch
        flops = self.compiled.gan.flops(self.setting.size, self.setting.size) * batch / median
        peak *= Workers(self.strategy).speedup()
        self.row.update(
            runs=len(self.seconds),
            seconds=self.seconds,
            **self.times(),
            images_per_second=2 * batch / median,
            TFLOP_per_second=flops / 1e12,
            peak_TFLOP_per_second=peak / 1e12 if peak else None,
            share_of_peak=flops / peak if peak else None,
            traces=self.compiled.function.experimental_get_tracing_count(),
        )


def spread(values: list[float]) -> float | None:
    """Return the interquartile range over the median, which single outliers hardly change; `None` for a single value."""
    if len(values) < 2:
        return None
    first, median, third = statistics.quantiles(values, n=4, method="inclusive")
    return (third - first) / median


def compare(
    steps: list[TimedStep], column: str, reference: dict[str, Any], quotient: Callable[[float, float], float]
) -> None:
    """Fill a column of all rows with the median over the turns of a quotient of times.

    Args:
        steps: Steps that took turns.
        column: Name of the column.
        reference: Fields by which the reference of a step differs from it. The value is `None` if the reference is not timed.
        quotient: Function of the seconds of the step and of its reference in the same turn.
    """
    found = {each.setting: each for each in steps if not each.has_failed}
    for each in found.values():
        other = found.get(dataclasses.replace(each.setting, **reference))
        turns = zip(each.seconds, other.seconds) if other else ()
        each.row[column] = statistics.median(quotient(*turn) for turn in turns) if other else None
