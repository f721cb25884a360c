"""Tables of steps that take turns: all forms in all combinations, and the same global batch on several devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable, TypeVar

import tqdm

from cyclegan.benchmarking.settings import PLAIN, Plan, Setting
from cyclegan.benchmarking.timed_step import TimedStep, compare
from cyclegan.distribution import hardware

Row = dict[str, Any]
Keep = Callable[[list[Row]], None]  # called with all rows of a table after each turn
T = TypeVar("T")


def with_bar(items: Iterable[T], title: str) -> Iterable[T]:
    """Return the items, with a progress bar on a terminal."""
    return tqdm.tqdm(items, desc=title, leave=False, disable=None)


def build(settings: Iterable[Setting]) -> list[TimedStep]:
    """Build the steps of all settings."""
    steps = [TimedStep(setting) for setting in settings]
    for each in with_bar(steps, "Building"):
        with each.record_failure():
            each.build()
    return steps


def measure(settings: Iterable[Setting], plan: Plan, keep: Keep) -> list[TimedStep]:
    """Build all steps, then time them in turns, call by call, so that other load on the machine slows all of them.

    Args:
        settings: Settings of the steps.
        plan: Number of turns.
        keep: Function that is called with the rows after each turn.
    """
    settings = list(settings)
    peaks = {precision: hardware.measure_peak(precision) for precision in {each.precision for each in settings}}
    steps = build(settings)
    for turn in with_bar(plan.turns, "Timing"):
        for each in steps:
            if not each.has_failed:
                with each.record_failure():
                    each.take_turn(turn >= 0)
        if turn == plan.turns[-1]:  # other load on the machine only lowers a peak, so the better measurement counts
            peaks = {precision: max(peak, hardware.measure_peak(precision)) for precision, peak in peaks.items()}
        for each in steps:
            if turn >= 0 and not each.has_failed:
                each.update_row(peaks[each.setting.precision])
        keep([each.row for each in steps])
    return steps


def measure_steps(plan: Plan, keep: Keep) -> list[Row]:
    """Return rows of training steps: the default form, with and without levers, beside the plain form."""
    settings = list(plan.settings(form=plan.forms))
    if plan.has_plain:
        settings = [*plan.settings(**{name: [value] for name, value in PLAIN.items()}), *settings]
    settings.sort(key=lambda setting: (setting.size, setting.batch, setting.identity or 0.0))
    steps = measure(settings, plan, keep)
    compare(steps, "ratio", PLAIN, lambda own, plain: plain / own)
    cyclegan = {"objective": "cyclegan", "identity": plan.values["identity"][0]}  # other objectives may have none
    compare(steps, "of_cyclegan", cyclegan, lambda own, reference: own / reference)
    return [each.row for each in steps]


def measure_scaling(plan: Plan, keep: Keep) -> list[Row]:
    """Return rows of the same step, with the same global batch, on several numbers of devices."""
    steps = measure(plan.settings(), plan, keep)
    compare(steps, "relative", {"replicas": min(plan.values["replicas"])}, lambda own, fewest: own / fewest)
    return [each.row for each in steps]
