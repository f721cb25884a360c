"""Tables of training steps: beside the plain step of tutorials, fed by the pipeline, and on several devices."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from cyclegan.config import Config
from cyclegan.data import loading
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution import hardware
from cyclegan.distribution.strategy import make_strategy
from cyclegan.errors import first_line
from cyclegan.methods.objective import SAMPLES
from cyclegan.training.step import GAN, compile_train_step
from scripts.benchmark import plain

# Errors of TensorFlow if a device lacks a kernel or memory; it raises the last three while it traces.
DEVICE_ERRORS = (tf.errors.OpError, MemoryError, NotImplementedError, TypeError, ValueError)
PLAIN = {"form": "plain", "precision": "float32", "xla": "off", "replicas": 1, "steps_per_call": 1}
DRAIN_SECONDS = 1.0  # of one measurement of the pipeline alone
FEED_SECONDS = 2.0  # of one turn of steps that are fed, at least
CALLS = 8  # in an epoch of the dataset that feeds steps
AHEAD = 2  # calls that the host is ahead of the devices, as in training
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Setting:
    """A step to time; `form` is "default", the step of train.py, or "plain", the step of tutorials."""

    form: str
    size: int
    batch: int
    precision: str
    xla: str
    replicas: int
    steps_per_call: int
    objective: str
    variant: str
    filters: int
    residual_blocks: int | None
    antialias: bool = False

    def config(self) -> Config:
        """Return the configuration of the training."""
        names = ("precision", "xla", "filters", "residual_blocks", "variant", "objective", "antialias")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.objective == "hdce":
            given.update(objective="cut", nce="hdce")
        return Config.from_settings(image_size=self.size, **given)


def settings_of(options: argparse.Namespace, batch: int = 1, replicas: Sequence[int] = (1,)) -> list[Setting]:
    """Return the settings of all combinations of the flags."""
    best = "bfloat16" if options.census else hardware.best_precision()
    names = options.precision or (["auto"] if options.census else ["auto", "float32"])
    precisions = dict.fromkeys(best if name == "auto" else name for name in names)
    combinations = itertools.product(
        *(options.size, options.batch or [batch], precisions, options.xla, options.replicas or replicas),
        *(options.steps_per_call, options.objective, options.variant),
    )
    return [
        Setting("default", *values, options.filters, options.residual_blocks, options.antialias)
        for values in combinations
    ]


class TimedStep:
    """A step with images for it, and its row of the table."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.row: Row = dataclasses.asdict(setting)
        self.seconds: list[float] = []  # per step, of each turn that counts

    def attempt(self, work: Callable[..., None], *arguments: Any) -> None:
        """Do a part of the work, unless an earlier one failed; a failure becomes the "error" of the row."""
        try:
            if "error" not in self.row:
                work(*arguments)
        except DEVICE_ERRORS as error:
            self.row["error"] = f"{type(error).__name__}: {first_line(error)}"[:200]

    def build(self) -> None:
        """Make the networks and trace the step with a first call; measure the memory of a second call."""
        held = hardware.used_memory()
        self.strategy = make_strategy(self.setting.replicas)
        self._batches = next(make_dataset(self.setting, 1).distributed(self.strategy))
        config, batch = self.setting.config(), self.setting.batch
        if self.setting.form == "plain":
            self.call = plain.make(self.strategy, batch, config)
        else:
            self.call = make_default(self.strategy, batch, config, self.setting.steps_per_call)
        began = time.perf_counter()
        self.call(self._batches).numpy()
        self.row["first_seconds"] = time.perf_counter() - began
        hardware.reset_peak_memory()  # tracing and the choice of kernels need more memory than a step
        self.call(self._batches).numpy()
        self.row["memory_GB"] = (hardware.peak_memory() - held) / 1e9

    def take_turn(self, counts: bool) -> None:
        """Do one call and wait for it; record its time if it counts."""
        began = time.perf_counter()
        self.call(self._batches).numpy()
        if counts:
            self.seconds.append((time.perf_counter() - began) / self.setting.steps_per_call)
            self.row.update(seconds=self.seconds, runs=len(self.seconds), **times(self.seconds))
            self.row["images_per_second"] = 2 * self.setting.batch / statistics.median(self.seconds)


def times(seconds: list[float]) -> dict[str, float]:
    """Return the columns of the times per step; the spread is the interquartile range over the median."""
    low, median, high = np.percentile(seconds, (25, 50, 75)).tolist()
    return {"ms": 1000 * median, "best_ms": 1000 * min(seconds), "spread": (high - low) / median}


def make_default(strategy: tf.distribute.Strategy, batch: int, config: Config, steps: int) -> Callable[[Any], Any]:
    """Return the step of the package: a function of the batches of one call; `numpy` waits for its result."""
    with strategy.scope():
        gan = GAN(batch, config)
    function = compile_train_step(strategy, gan, config.performance.xla == "on")
    totals = {key: tf.constant(0.0, tf.float64) for key in (*gan.metric_names["train"], SAMPLES)}
    return lambda batches: function(batches, totals, tf.constant(steps))[1]


def make_dataset(setting: Setting, calls: int, cache: str = "ram") -> UnpairedDataset:
    """Return a dataset of noise with `calls` calls in an epoch."""
    load_size = setting.config().data.load_size
    count = setting.batch * setting.steps_per_call * calls
    x, y = np.random.default_rng(0).integers(0, 256, (2, count, load_size, load_size, 3), np.uint8)
    if cache == "none":
        x, y = as_jpegs(x), as_jpegs(y)
    size = (setting.size, setting.size)
    return UnpairedDataset(x, y, setting.batch, size, seed=0, steps_per_call=setting.steps_per_call)


def as_jpegs(images: np.ndarray) -> loading.ImageFiles:
    """Return JPEGs of noise, as many and as large as the images, which are decoded on each access."""
    coarse = images[:8].repeat(4, axis=1).repeat(4, axis=2)[:, : images.shape[1], : images.shape[2]]
    files = [tf.io.encode_jpeg(image).numpy() for image in coarse]  # a photograph is no finer
    sources = [files[i % len(files)] for i in range(len(images))]
    facts = loading.check_files({"": sources}, {"": 3})[""]
    return loading.ImageFiles("", sources, facts, loading.sizes_of(facts))


def build(settings: Iterable[Setting]) -> list[TimedStep]:
    """Build the steps of all settings."""
    steps = [TimedStep(setting) for setting in settings]
    for each in tqdm.tqdm(steps, desc="Building", leave=False, disable=None):
        each.attempt(each.build)
    return steps


def take_turns(settings: Iterable[Setting], options: argparse.Namespace) -> Iterator[list[TimedStep]]:
    """Time the steps of all settings in turns, call by call; yield them after each turn."""
    steps = build(settings)
    for turn in tqdm.trange(-options.warmup, options.runs, desc="Timing", leave=False, disable=None):
        for each in steps:
            each.attempt(each.take_turn, turn >= 0)
        yield steps


def compare(steps: list[TimedStep], column: str, **reference: Any) -> None:
    """Fill a column with the median time relative to the step of the same turn with the fields `reference`."""
    found = {each.setting: each for each in steps if each.seconds}
    for each in found.values():
        other = found.get(dataclasses.replace(each.setting, **reference))
        turns = zip(each.seconds, other.seconds) if other else ()
        each.row[column] = statistics.median(own / of_other for own, of_other in turns) if other else None


def measure_steps(options: argparse.Namespace) -> Iterator[list[Row]]:
    """Yield the rows of training steps: the step of the package beside the plain form."""
    settings = settings_of(options)
    if not options.no_plain:
        plain_ones = (dataclasses.replace(each, objective="cyclegan", **PLAIN) for each in settings)
        settings = [*dict.fromkeys(plain_ones), *settings]
    for steps in take_turns(sorted(settings, key=lambda setting: (setting.size, setting.batch)), options):
        compare(steps, "of_plain", objective="cyclegan", **PLAIN)
        compare(steps, "of_cyclegan", objective="cyclegan")
        yield [each.row for each in steps]


def measure_scaling(options: argparse.Namespace) -> Iterator[list[Row]]:
    """Yield the rows of the same step, with the same global batch, on several numbers of devices."""
    for steps in take_turns(settings_of(options, 6, (1, 2, 3)), options):
        compare(steps, "relative", replicas=min(each.setting.replicas for each in steps))
        yield [each.row for each in steps]


def measure_data(options: argparse.Namespace) -> Iterator[list[Row]]:
    """Yield the rows of the pipeline, alone and feeding a step, with decoded images and with JPEGs."""
    rows: list[Row] = []
    for step in build(settings_of(options)):
        if "error" in step.row:
            rows.append(step.row)
            yield rows
            continue
        turns: dict[str, list[tuple[float, float, float]]] = {"ram": [], "none": []}
        for _ in tqdm.trange(options.warmup + options.runs, desc="Timing", leave=False, disable=None):
            for cache, measured in turns.items():
                measured.append((drain(step, cache), *feed(step, cache)))
        for cache, measured in turns.items():
            drained, seconds, waits = (list(values) for values in zip(*measured[options.warmup :]))
            images = 2 * step.setting.batch / statistics.median(seconds)
            rows.append({**step.row, "cache": cache, "pipeline_images_per_second": statistics.median(drained)})
            rows[-1].update(step_images_per_second=images, data_wait=statistics.median(waits), **times(seconds))
        yield rows


def drain(step: TimedStep, cache: str) -> float:
    """Return the images of both domains per second that the pipeline yields while nothing else runs."""
    batches, calls = make_dataset(step.setting, CALLS, cache).distributed(step.strategy), 0
    next(batches)  # starts it
    began = time.perf_counter()
    while time.perf_counter() < began + DRAIN_SECONDS:
        next(batches)
        calls += 1
    images = 2 * calls * step.setting.steps_per_call * step.setting.batch
    return images / (time.perf_counter() - began)


def feed(step: TimedStep, cache: str) -> tuple[float, float]:
    """Do calls with images from the pipeline; return (seconds per step, share of the time spent waiting)."""
    batches = make_dataset(step.setting, CALLS, cache).distributed(step.strategy)
    pending: collections.deque[Any] = collections.deque()
    step.call(next(batches)).numpy()  # starts the pipeline
    began, waited, calls = time.perf_counter(), 0.0, 0
    while time.perf_counter() - began < FEED_SECONDS or calls < 2:
        asked = time.perf_counter()
        images = next(batches)
        waited += time.perf_counter() - asked
        pending.append(step.call(images))
        calls += 1
        while len(pending) > AHEAD:
            pending.popleft().numpy()
    for outcome in pending:
        outcome.numpy()
    seconds = time.perf_counter() - began
    return seconds / (calls * step.setting.steps_per_call), waited / seconds
