"""Table of the input pipeline: its speed alone, and the speed of the steps that it feeds."""

from __future__ import annotations

import collections
import dataclasses
import statistics
import time
from typing import Any

from cyclegan.benchmarking import levers
from cyclegan.benchmarking.noise import make_dataset
from cyclegan.benchmarking.settings import Plan
from cyclegan.benchmarking.timed_step import TimedStep, compare
from cyclegan.benchmarking.turns import Keep, Row, build, with_bar
from cyclegan.run.throughput import PREFIX, Throughput
from cyclegan.training import in_flight

DRAIN_SECONDS = 1.0  # of one measurement of the pipeline alone
FEED_SECONDS = 2.0  # of one turn of steps that are fed, at least
CALLS = 8  # in an epoch of the dataset


class FedStep:
    """A step that the pipeline feeds, and the measurements of its turns.

    Args:
        step: The step.
    """

    def __init__(self, step: TimedStep) -> None:
        self.step = step
        self._throughput = Throughput()
        self._drained: list[float] = []

    def take_turn(self, counts: bool) -> None:
        """Measure the pipeline alone, then feeding the step; fill the row if the turn counts."""
        with self.step.record_failure(), levers.without(self.step.setting.lever):
            if not counts:
                feed(self.step, Throughput())
                return
            self._drained.append(drain(self.step))
            self.step.seconds.append(feed(self.step, self._throughput))
            self.step.row.update(self._measurements())

    def _measurements(self) -> dict[str, Any]:
        metrics, function = self._throughput.metrics(), self.step.compiled.function
        return {
            "pipeline_images_per_second": statistics.median(self._drained),
            "step_images_per_second": metrics[f"{PREFIX}images_per_second"],
            "data_wait": metrics[f"{PREFIX}data_wait"],
            **self.step.times(),
            **({"traces": function.experimental_get_tracing_count()} if function else {}),
        }


def measure_data(plan: Plan, keep: Keep) -> list[Row]:
    """Return rows of the pipeline: alone, and feeding a step, with and without levers."""
    rows: list[Row] = []
    settings = (each.without_step() if each.elsewhere else each for each in plan.settings())
    for setting in dict.fromkeys(settings):
        steps = build(dataclasses.replace(setting, form=form) for form in plan.forms)
        rows += [each.row for each in steps]
        fed = [FedStep(each) for each in steps]
        for turn in with_bar(plan.turns, "Timing"):
            for each in fed:
                if not each.step.has_failed:
                    each.take_turn(turn >= 0)
            if turn >= 0:
                compare(steps, "relative", {"form": "default"}, lambda own, default: own / default)
                keep(rows)
    return rows


def drain(step: TimedStep) -> float:
    """Return the images of both domains per second that the pipeline yields while nothing else runs."""
    batches, calls = make_dataset(step.setting, CALLS).distributed(step.strategy), 0
    next(batches)  # starts it
    began = time.perf_counter()
    while time.perf_counter() < began + DRAIN_SECONDS:
        next(batches)
        calls += 1
    images = 2 * calls * step.setting.steps_per_call * step.setting.batch
    return images / (time.perf_counter() - began)


def feed(step: TimedStep, throughput: Throughput) -> float:
    """Do some calls with images from the pipeline, with the host as far ahead of the devices as in training.

    Args:
        step: The step.
        throughput: Counter of the calls.

    Returns:
        Seconds per step.
    """
    batches = make_dataset(step.setting, CALLS).distributed(step.strategy)
    pending: collections.deque[Any] = collections.deque()
    step.compiled.call(next(batches)).numpy()  # starts the pipeline
    steps, calls, seconds = step.setting.steps_per_call, 0, 0.0
    began = mark = time.perf_counter()
    while seconds < FEED_SECONDS or calls < 2:
        asked = time.perf_counter()
        images = next(batches)
        waited = time.perf_counter() - asked
        pending.append(step.compiled.call(images))
        calls += 1
        while len(pending) > in_flight.AHEAD:
            pending.popleft().numpy()
        now = time.perf_counter()
        throughput.add(2 * steps * step.setting.batch, steps, now - mark, waited)
        seconds, mark = now - began, now
    for outcome in pending:
        outcome.numpy()
    now = time.perf_counter()
    throughput.add(0, 0, now - mark, 0.0)
    return (now - began) / (calls * steps)
