"""Command line of the benchmark."""

from __future__ import annotations

import argparse
import itertools
import pathlib
from collections.abc import Collection, Sequence
from typing import Any, Callable

from cyclegan.benchmarking.settings import LEVERS, Plan
from cyclegan.config.command_line import ArgumentParser
from cyclegan.errors import UserError
from cyclegan.methods import OBJECTIVES

BOTH = ["auto", "float32"]
DEFAULTS: dict[str, dict[str, list[Any]]] = {  # of the parts
    "steps": {"batch": [1], "replicas": [1], "precision": BOTH, "objective": ["cyclegan"]},
    "data": {"batch": [1], "replicas": [1], "precision": BOTH, "cache": ["ram"], "elsewhere": [0.0]},
    "scaling": {"batch": [6], "replicas": [1, 2, 3], "precision": BOTH},
    "census": {"batch": [1], "precision": ["auto"], "variant": ["keras"], "architecture": ["8.0"]},
}
STEP = ("size", "batch", "precision", "xla", "replicas", "identity", "steps_per_call", "filters", "residual_blocks")
USED = {  # flags that have an effect, by part; --json has one everywhere, and LEVERS has those of --without
    "steps": {*STEP, "runs", "warmup", "deterministic", "no_plain", "objective"},
    "data": {*STEP, "runs", "warmup", "deterministic", "cache", "elsewhere"},
    "scaling": {*STEP, "runs", "warmup", "deterministic"},
    "census": {"size", "batch", "precision", "identity", "filters", "residual_blocks", "variant", "architecture"},
    "gpu_day": {"budget"},
}
# Of the networks, which a simulated step does not have.
OF_NETWORKS = {"precision", "xla", "identity", "filters", "residual_blocks", "deterministic"}
# Of --census, which counts one step on one GPU.
ALONE: dict[str, list[Any]] = {"xla": ["off"], "steps_per_call": [1], "replicas": [1]}
FIELDS = ("size", "batch", "identity", "precision", "xla", "steps_per_call", "replicas")  # in the order of the rows


def _up_to(most: float) -> Callable[[str], float]:
    """Return a parser of numbers from 0 to `most`."""

    def number(text: str) -> float:
        value = float(text)
        if not 0 <= value <= most:
            raise argparse.ArgumentTypeError(f"{text}: expected a number from 0 to {most:,g}")
        return value

    return number


def _at_least(least: int, multiple: int = 1) -> Callable[[str], int]:
    """Return a parser of whole numbers of at least `least` that are a multiple of `multiple`."""

    def number(text: str) -> int:
        value = int(text)
        if value < least or value % multiple:
            what = f" and a multiple of {multiple}" if multiple > 1 else ""
            raise argparse.ArgumentTypeError(f"{text}: expected at least {least}{what}")
        return value

    return number


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = ArgumentParser(description="Time training on synthetic images.")
    parts = parser.add_argument_group("parts, each of which prints a table; --steps if none is given")
    parts.add_argument("--steps", action="store_true", help="training steps, in all combinations of the flags below")
    parts.add_argument("--data", action="store_true", help="the input pipeline alone, and steps that it feeds")
    parts.add_argument("--scaling", action="store_true", help="the same global batch on 1, 2 and 3 devices")
    text = "count the kernels of a step on one GPU, without a GPU: docs/performance.md explains the columns"
    parts.add_argument("--census", action="store_true", help=text)
    text = "all forms of the step on a GPU, the most important ones first; writes gpu_day.json and a table, gpu_day.md"
    parts.add_argument("--gpu_day", "--gpu-day", action="store_true", help=text)
    _add_values(parser.add_argument_group("what is timed: one value or several"))
    group = parser.add_argument_group("how")
    group.add_argument("--filters", type=_at_least(1), default=64, help="default: 64")
    group.add_argument("--residual_blocks", type=_at_least(0), help="default: 9, and 6 below 256 pixels")
    group.add_argument("--runs", type=_at_least(1), default=5, help="timed calls of each row (default: 5)")
    group.add_argument("--warmup", type=_at_least(0), default=1, help="untimed calls before them (default: 1)")
    levers = tuple(itertools.chain(*LEVERS.values()))
    group.add_argument("--without", nargs="+", choices=levers, default=[], help="also time without each of these")
    group.add_argument("--deterministic", action="store_true", help="only operations that give the same bits each time")
    group.add_argument("--no_plain", action="store_true", help="leave the plain form out")
    group.add_argument("--json", type=pathlib.Path, help="also write the rows and the machine to this file")
    group.add_argument("--budget", type=_at_least(1), default=480, help="seconds for --gpu_day (default: 480)")
    options = parser.parse_args(argv)
    parser.set_defaults(**dict.fromkeys(vars(options)))
    _check_flags(options, {name for name, value in vars(parser.parse_args(argv)).items() if value is not None})
    return options


def _add_values(group: Any) -> None:
    """Add the flags that take several values."""
    add = group.add_argument
    add("--size", type=_at_least(16, 4), nargs="+", default=[128], help="sides of the images (default: 128)")
    add("--batch", type=_at_least(1), nargs="+", help="global batches in pairs (default: 1; of --scaling: 6)")
    precisions = ("auto", "float32", "bfloat16", "float16")
    text = "auto is the precision that train.py chooses here (default: auto and float32; of --census: bfloat16)"
    add("--precision", nargs="+", choices=precisions, help=text)
    add("--xla", nargs="+", choices=("off", "on"), default=["off"], help="default: off")
    add("--replicas", type=_at_least(1), nargs="+", help="devices (default: 1; of --scaling: 1 2 3)")
    add("--identity", type=_up_to(1e9), nargs="+", default=[5.0], help="weights of the identity loss (default: 5)")
    add("--steps_per_call", type=_at_least(1), nargs="+", default=[1], help="times stay per step (default: 1)")
    add("--objective", choices=tuple(OBJECTIVES), nargs="+", help="of --steps (default: cyclegan)")
    add("--cache", choices=("ram", "none"), nargs="+", help="of --data: decoded images, or JPEGs (default: ram)")
    text = (
        "of --data: a simulated step that takes this long and leaves the processor free, as a GPU does (0: a real step)"
    )
    add("--elsewhere", type=_up_to(60_000), nargs="+", metavar="MS", help=text)
    add("--variant", choices=("keras", "paper"), nargs="+", help="of --census: networks (default: keras)")
    text = "of --census: compute capabilities; 8.0 is an A100, 9.0 an H100 (default: 8.0)"
    add("--architecture", choices=("8.0", "9.0"), nargs="+", help=text)


def plan_parts(options: argparse.Namespace) -> list[Plan]:
    """Return the plan of each part that the command line asks for.

    Raises:
        UserError: Settings do not fit together.
    """
    plans = []
    for part in _asked(options):
        fields = (*FIELDS, *(name for name in DEFAULTS[part] if name not in FIELDS))
        fixed: dict[str, list[Any]] = ALONE if part == "census" else {}
        values: dict[str, list[Any]] = {
            name: fixed.get(name) or getattr(options, name) or DEFAULTS[part][name] for name in fields
        }
        if part == "data" and "prefetch" in options.without and values["replicas"] != [1]:
            raise UserError(f"--without prefetch on --replicas {max(values['replicas'])}: expected 1")
        if part == "steps" and "packed" in options.without and values["replicas"] == [1]:
            raise UserError("--without packed has no effect with --replicas 1; name several replicas, or drop the flag")
        for batch, replicas in itertools.product(values["batch"], values["replicas"]):
            if batch % replicas:
                raise UserError(f"--batch {batch} on --replicas {replicas}: expected a multiple")
        without, has_plain = tuple(options.without), not options.no_plain
        plans.append(
            Plan(
                part, values, options.filters, options.residual_blocks, without, has_plain, options.runs, options.warmup
            )
        )
    if options.json and not options.json.parent.is_dir():
        raise UserError(
            f"--json {options.json}: no folder {options.json.parent}; expected an existing one: make it, or name another"
        )
    return plans


def _asked(options: argparse.Namespace) -> list[str]:
    """Return the parts that the command line asks for, without --gpu_day."""
    return [name for name in DEFAULTS if getattr(options, name)] or ["steps"]


def _check_flags(options: argparse.Namespace, given: Collection[str]) -> None:
    """Refuse flags without effect.

    Args:
        options: The command line.
        given: Names of the flags that it has.

    Raises:
        UserError: A flag has no effect.
    """
    if options.gpu_day:
        for name in sorted(set(given) - {"gpu_day", "json", *USED["gpu_day"]}):
            raise UserError(f"--{name} has no effect with --gpu_day, which sets it; drop one of the two")
        return
    asked = _asked(options)
    used = {"json", "without", *USED, *itertools.chain.from_iterable(USED[part] for part in asked)}
    needed = {f"--{name}": next(part for part in USED if name in USED[part]) for name in given if name not in used}
    needed.update({f"--without {name}": part for part in LEVERS for name in options.without if name in LEVERS[part]})
    for flag, part in needed.items():
        if part not in asked:
            raise UserError(f"{flag} has no effect with --{' --'.join(asked)}; add --{part}, or drop the flag")
    if asked == ["data"] and options.elsewhere and all(options.elsewhere):
        for name in sorted(OF_NETWORKS.intersection(given)):
            raise UserError(f"--{name} has no effect with --elsewhere, which needs no networks; drop one of the two")
