#!/usr/bin/env python
"""Times training on synthetic pictures: `scripts/benchmark.py --help`; docs/performance.md says how to read what it prints.

All that is compared is built first and then takes turns, call by call, so that whatever else the machine does hits all of it:
compare the rows of one run with each other, not with those of another.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import time
import types

import tqdm

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cyclegan import console
from cyclegan.config import Config
from cyclegan.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLUMNS = {
    "steps": (
        *("form", "size", "batch", "precision", "xla", "replicas", "identity", "steps_per_call"),
        *("ms", "best_ms", "spread", "images_per_second", "TFLOP_per_second", "share_of_peak", "ratio"),
        *("traces", "memory_GB", "first_seconds"),
    ),
    "data": (
        *("form", "cache", "elsewhere", "size", "batch", "precision", "xla", "replicas", "identity", "steps_per_call"),
        *("pipeline_images_per_second", "step_images_per_second", "data_wait"),
        *("ms", "best_ms", "spread", "relative", "traces"),
    ),
    "scaling": (
        *("size", "batch", "precision", "xla", "identity", "steps_per_call", "replicas"),
        *("ms", "best_ms", "spread", "relative", "traces", "first_seconds"),
    ),
}
PERCENT = ("spread", "share_of_peak", "data_wait")
DRAINED = 1.0  # seconds that one measurement of the pipeline alone takes
FED = 2.0  # seconds that one turn of steps that are fed takes, at least
FORMS = {
    "steps": ("few", "norm", "both", "adam", "packed"),
    "data": ("ahead", "prefetch"),
}  # what --without leaves out of each part
PLAIN = {"form": "plain", "precision": "float32", "xla": "off", "replicas": 1, "steps_per_call": 1}


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is timed. `batch` is the global batch, `form` "default", "plain" or "without LEVER", `xla` "on" or "off", and `cache`
    "ram" for pictures that are decoded, or "none" for JPEGs that are decoded each time. Where `elsewhere` is not 0, nothing is
    computed: a step is as many milliseconds in which the processor is free, as with a GPU.
    """

    form: str
    size: int
    batch: int
    precision: str
    xla: str
    replicas: int
    identity: float
    steps_per_call: int
    filters: int
    residual_blocks: int
    cache: str = "ram"
    elsewhere: float = 0.0

    def without_step(self):
        """The same without what a stand-in for a step does not have."""
        return dataclasses.replace(self, precision="", xla="", identity=None)

    def config(self):
        """What is trained, a `Config`."""
        names = ("precision", "xla", "filters", "residual_blocks")
        return Config.from_settings(
            lambda_identity=self.identity, image_size=self.size, **{name: getattr(self, name) for name in names}
        )


class Timed:
    """A compiled step with pictures for it, and the times of its calls.

    Attributes:
        row: dict of the setting and the figures; has an "error" if it can't be built or has failed.
        seconds: of each turn that counts, per step.
    """

    def __init__(self, setting):
        self.setting, self.row, self.seconds = setting, dataclasses.asdict(setting), []

    def build(self):
        """Makes the networks and the step; calls it once, which traces it, and once more, for the memory that it takes."""
        from cyclegan.distribution import hardware
        from cyclegan.distribution.strategy import make_strategy

        held = _gpu_memory()
        self.strategy = make_strategy(self.setting.replicas)
        self.inputs = next(self.pairs(1).distributed(self.strategy))
        make = plain_form if self.setting.form == "plain" else default_form
        make = elsewhere if self.setting.elsewhere else make
        with self.without_lever():
            self.gan, self.function, self.step = make(self.strategy, self.setting)
            began = time.perf_counter()
            self.call()
        self.row["first_seconds"] = time.perf_counter() - began
        _forget_gpu_memory()  # tracing, and trying kernels, needs more than a step does
        self.call()
        self.row["memory_GB"] = (hardware.peak_memory() - held) / 1e9

    def without_lever(self):
        """Within it the package trains as the form says."""
        from scripts import levers

        return levers.without(self.setting.form.partition("without ")[2])

    def pairs(self, calls):
        """`data.UnpairedDataset` of noise with `calls` calls in an epoch, cropped at random from larger pictures and flipped."""
        import numpy as np

        from cyclegan.data.unpaired import UnpairedDataset

        size, batch, steps = self.setting.size, self.setting.batch, self.setting.steps_per_call
        load_size = Config.from_settings(image_size=size).load_size
        shape = (2, batch * steps * calls, load_size, load_size, 3)
        pictures = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        if self.setting.cache == "none":
            pictures = map(decoded_each_time, pictures)
        return UnpairedDataset(*pictures, batch, (size, size), seed=0, steps_per_call=steps)

    def call(self):
        """Does the steps of one call, and waits for them."""
        self.step(self.inputs).numpy()

    def take_turn(self, counts):
        """Does a call, and notes its time where it `counts`."""
        began = time.perf_counter()
        self.call()
        if counts:
            self.seconds.append((time.perf_counter() - began) / self.setting.steps_per_call)

    def finish(self, peak):
        """Fills the row. `peak` is of a device, in FLOP/s; 0 if it is not known."""
        from cyclegan.distribution import workers

        median, batch = statistics.median(self.seconds), self.setting.batch
        flops = self.gan.flops(self.setting.size, self.setting.size) * batch / median
        peak *= workers.Workers(self.strategy).speedup()
        self.row.update(
            runs=len(self.seconds),
            seconds=self.seconds,
            ms=1000 * median,
            best_ms=1000 * min(self.seconds),
            spread=spread(self.seconds),
            images_per_second=2 * batch / median,
            TFLOP_per_second=flops / 1e12,
            peak_TFLOP_per_second=peak / 1e12 if peak else None,
            share_of_peak=flops / peak if peak else None,
            traces=self.function.experimental_get_tracing_count(),
        )


def decoded_each_time(pictures):
    """JPEGs of noise, as many and as large as uint8 [N, h, w, 3], as `--cache none` of train.py has them."""
    import numpy as np
    import tensorflow as tf

    from cyclegan.data.lazy_images import LazyImages
    from cyclegan.images import reader

    height, width = pictures.shape[1:3]
    coarse = pictures[:8].repeat(4, axis=1).repeat(4, axis=2)[:, :height, :width]  # a photograph is no finer
    files = [tf.io.encode_jpeg(picture).numpy() for picture in coarse]
    sizes = np.broadcast_to([height, width], (len(pictures), 2))
    return LazyImages(lambda i: reader.decode(files[i % len(files)]), pictures.shape, sizes, pictures.dtype)


def default_form(strategy, setting):
    """The step of the package. Returns (gan, compiled function, f(batches) -> something to wait for)."""
    import tensorflow as tf

    from cyclegan.training.compiled_steps import compile_train_step
    from cyclegan.training.gan import GAN
    from cyclegan.training.metric_names import LOSSES, SAMPLES

    with strategy.scope():
        gan = GAN(setting.batch, setting.config())
    function = compile_train_step(strategy, gan)
    totals = {key: tf.constant(0.0, tf.float64) for key in (*LOSSES, SAMPLES)}
    return gan, function, lambda batches: function(batches, totals, tf.constant(setting.steps_per_call))[1]


def plain_form(strategy, setting):
    """The step as tutorials have it. Returns as `default_form`."""
    from scripts import tutorial_step

    gan, function = tutorial_step.make(strategy, setting.batch, setting.config())
    return gan, function, function


def elsewhere(strategy, setting):
    """In place of a step, something that takes its time one after the other without the processor. Returns as `default_form`."""
    device, seconds = concurrent.futures.ThreadPoolExecutor(1), setting.elsewhere / 1000 * setting.steps_per_call
    return None, None, lambda batches: types.SimpleNamespace(numpy=device.submit(time.sleep, seconds).result)


@contextlib.contextmanager
def failures_told(row):
    """Within it, what a device can't do (no such kernel, no memory left) becomes the "error" of the row, one line."""
    import tensorflow as tf

    try:
        yield
    # The last three are what TensorFlow raises, while it traces, for a type or a shape that it has no kernel for.
    except (tf.errors.OpError, MemoryError, NotImplementedError, TypeError, ValueError) as error:
        lines = str(getattr(error, "message", error)).strip().splitlines()
        row["error"] = f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def _gpus():
    import tensorflow as tf

    return [gpu.name[len("/device:") :] for gpu in tf.config.list_logical_devices("GPU")]


def _gpu_memory():
    """Bytes that the fullest GPU holds; 0 where there is no GPU."""
    import tensorflow as tf

    return max((tf.config.experimental.get_memory_info(name)["current"] for name in _gpus()), default=0)


def _forget_gpu_memory():
    """The most that `devices.memory` knows of begins anew, on GPUs."""
    import tensorflow as tf

    for name in _gpus():
        tf.config.experimental.reset_memory_stats(name)


def spread(values):
    """The interquartile range over the median, for which single outliers count little; None for a single value."""
    if len(values) < 2:
        return None
    first, median, third = statistics.quantiles(values, n=4, method="inclusive")
    return (third - first) / median


def shown(turns, title):
    """The same, with a bar on a terminal."""
    return tqdm.tqdm(turns, desc=title, leave=False, disable=None)


def measure(settings, options):
    """Builds what the settings say, times all of it in turns and fills the rows, anew after each turn. Returns `Timed`s."""
    from cyclegan.distribution import hardware

    timed = [Timed(setting) for setting in settings]
    peaks = {precision: hardware.measure_peak(precision) for precision in {setting.precision for setting in settings}}
    for each in shown(timed, "Building"):
        with failures_told(each.row):
            each.build()
    for turn in shown(range(-options.warmup, options.runs), "Timing"):
        for each in timed:
            if "error" not in each.row:
                with failures_told(each.row):
                    each.take_turn(turn >= 0)
        if turn == options.runs - 1:
            for precision in peaks:  # once more: what else the machine does only makes it smaller
                peaks[precision] = max(peaks[precision], hardware.measure_peak(precision))
        for each in timed:
            if turn >= 0 and "error" not in each.row:
                each.finish(peaks[each.setting.precision])
        options.keep([each.row for each in timed])
    return timed


def compare(timed, name, reference, quotient):
    """Fills the figure `name` of each row: the median over the turns of quotient(seconds, seconds of the reference).

    The reference differs in the fields of the dict `reference` alone. Where there is none, the figure is None.
    """
    found = {each.setting: each for each in timed if "error" not in each.row}
    for each in found.values():
        other = found.get(dataclasses.replace(each.setting, **reference))
        turns = zip(each.seconds, other.seconds) if other else ()
        each.row[name] = statistics.median(quotient(*turn) for turn in turns) if other else None


def combinations(options, **chosen):
    """The settings of all combinations; `chosen` has lists of values that go before those of the command line."""
    names = ("size", "batch", "identity", "precision", "xla", "steps_per_call", "replicas")
    values = {"form": ["default"], **{name: getattr(options, name) for name in names}, **chosen}
    for combination in itertools.product(*values.values()):
        setting = dict(zip(values, combination))
        blocks = options.residual_blocks
        if blocks is None:
            blocks = Config.from_settings(image_size=setting["size"]).residual_blocks
        yield Setting(**setting, filters=options.filters, residual_blocks=blocks)


def forms_of(part, options):
    """The default form, and those without the levers of a part that were asked for."""
    return ["default", *(f"without {name}" for name in options.without if name in FORMS[part])]


def steps(options):
    """Rows of training steps: the default form in all combinations, with and without levers, and the plain form beside them."""
    forms = forms_of("steps", options)
    plain = {name: [value] for name, value in PLAIN.items()}
    settings = [*([] if options.no_plain else combinations(options, **plain)), *combinations(options, form=forms)]
    settings.sort(key=lambda setting: (setting.size, setting.batch, setting.identity))
    timed = measure(settings, options)
    compare(timed, "ratio", PLAIN, lambda own, plain: plain / own)
    return [each.row for each in timed]


def scaling(options):
    """Rows of the same step, with the same global batch, on several numbers of devices."""
    timed = measure(list(combinations(options)), options)
    compare(timed, "relative", {"replicas": min(options.replicas)}, lambda own, fewest: own / fewest)
    return [each.row for each in timed]


def data(options):
    """Rows of the pipeline: how fast it is alone, and what a step that is fed by it gets, with and without levers."""
    from cyclegan.reporting.throughput import PREFIX, Throughput

    rows = []
    settings = combinations(options, cache=options.cache, elsewhere=options.elsewhere)
    for setting in dict.fromkeys(setting.without_step() if setting.elsewhere else setting for setting in settings):
        timed = [Timed(dataclasses.replace(setting, form=form)) for form in forms_of("data", options)]
        rows += [each.row for each in timed]
        counters, rates = [Throughput() for _ in timed], [[] for _ in timed]
        for each in shown(timed, "Building"):
            with failures_told(each.row):
                each.build()
        for turn in shown(range(-options.warmup, options.runs), "Timing"):
            for each, counter, drained in zip(timed, counters, rates):
                if "error" in each.row:
                    continue
                with failures_told(each.row), each.without_lever():
                    if turn < 0:
                        feed(each, Throughput())
                        continue
                    drained.append(drain(each))
                    each.seconds.append(feed(each, counter))
                if "error" in each.row:
                    continue
                figures = counter.metrics()
                each.row.update(
                    pipeline_images_per_second=statistics.median(drained),
                    step_images_per_second=figures[f"{PREFIX}images_per_second"],
                    data_wait=figures[f"{PREFIX}data_wait"],
                    ms=1000 * statistics.median(each.seconds),
                    best_ms=1000 * min(each.seconds),
                    spread=spread(each.seconds),
                )
                if each.function:
                    each.row["traces"] = each.function.experimental_get_tracing_count()
            if turn >= 0:
                compare(timed, "relative", {"form": "default"}, lambda own, default: own / default)
                options.keep(rows)
    return rows


def drain(timed):
    """Images per second, of both domains, that the pipeline has where nothing else runs."""
    batches, calls = timed.pairs(8).distributed(timed.strategy), 0
    next(batches)  # starts it
    began = time.perf_counter()
    while time.perf_counter() < began + DRAINED:
        next(batches)
        calls += 1
    images = 2 * calls * timed.setting.steps_per_call * timed.setting.batch
    return images / (time.perf_counter() - began)


def feed(timed, counter):
    """Some calls with pictures from the pipeline, added to a `speed.Throughput` as in training, see `loop.Trainer`.

    Returns:
        Seconds per step.
    """
    from cyclegan.training.in_flight import AHEAD

    batches, waiting, took, calls = timed.pairs(8).distributed(timed.strategy), [], 0.0, 0
    timed.step(next(batches)).numpy()  # starts it
    began = mark = time.perf_counter()
    while took < FED or calls < 2:
        asked = time.perf_counter()
        pictures = next(batches)
        waited = time.perf_counter() - asked
        waiting.append(timed.step(pictures))
        calls += 1
        while len(waiting) > AHEAD:
            waiting.pop(0).numpy()
        now = time.perf_counter()
        steps, took = timed.setting.steps_per_call, now - began
        counter.add(2 * steps * timed.setting.batch, steps, now - mark, waited)
        mark = now
    for outcome in waiting:
        outcome.numpy()
    now = time.perf_counter()
    counter.add(0, 0, now - mark, 0.0)
    return (now - began) / (calls * steps)


def machine():
    """What the figures depend on."""
    import tensorflow as tf

    cpu = "unknown"
    if pathlib.Path("/proc/cpuinfo").exists():
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return {
        "commit": git.stdout.strip() or "unknown",
        "cpu": cpu,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "gpus": [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")],
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS"),
    }


def table(rows, columns):
    """The rows as Markdown."""
    if any("error" in row for row in rows):
        columns = (*columns, "error")
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell(name, row.get(name)) for name in columns) + " |" for row in rows]
    return "\n".join(lines)


def cell(name, value):
    """A value of a column as a text."""
    if not isinstance(value, float):
        return "" if value is None else str(value).replace("|", "/")
    if name in PERCENT:
        return f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def weight(text):
    """The type of an argument: a finite number of at least 0."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: expected a finite number of at least 0")
    return number


def milliseconds(text):
    """The type of an argument: a number from 0 to 60,000."""
    number = float(text)
    if not 0 <= number <= 60_000:
        raise argparse.ArgumentTypeError(f"{text}: expected milliseconds, from 0 to 60000")
    return number


def at_least(least, multiple=1):
    """The type of a flag's value: a whole number of at least so much."""

    def number(text):
        value = int(text)
        if value < least or value % multiple:
            what = f" and a multiple of {multiple}" if multiple > 1 else ""
            raise argparse.ArgumentTypeError(f"{text}: expected at least {least}{what}")
        return value

    return number


def arguments(argv):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parts = parser.add_argument_group("parts, of which each prints a table; --steps if none is given")
    parts.add_argument("--steps", action="store_true", help="training steps, in all combinations of the flags below")
    parts.add_argument("--data", action="store_true", help="the pictures' pipeline alone, and feeding the step")
    parts.add_argument("--scaling", action="store_true", help="the same global batch on 1, 2 and 3 devices")
    what = parser.add_argument_group("what is timed: one value or several")
    one = at_least(1)
    several = what.add_argument
    several("--size", type=at_least(16, 4), nargs="+", default=[128], help="sides of the pictures (default: 128)")
    several("--batch", type=one, nargs="+", help="global batches, in pairs (default: 1; of --scaling: 6)")
    several(
        "--precision",
        nargs="+",
        choices=("auto", "float32", "bfloat16", "float16"),
        default=["auto", "float32"],
        help="auto is what train.py takes here (default: auto and float32)",
    )
    several("--xla", nargs="+", choices=("off", "on"), default=["off"], help="default: off")
    several("--replicas", type=one, nargs="+", help="devices (default: 1; of --scaling: 1 2 3)")
    several("--identity", type=weight, nargs="+", default=[5.0], help="weights of the identity loss (default: 5)")
    several("--steps_per_call", type=one, nargs="+", default=[1], help="ms are per step all the same (default: 1)")
    several("--cache", choices=("ram", "none"), nargs="+", help="of --data: decoded pictures, or JPEGs (default: ram)")
    several(
        "--elsewhere",
        type=milliseconds,
        nargs="+",
        metavar="MS",
        help="of --data: what is fed takes so long and leaves the processor free, as a GPU does (0: a step, the default)",
    )
    how = parser.add_argument_group("how")
    how.add_argument("--filters", type=one, default=64, help="default: 64")
    how.add_argument("--residual_blocks", type=at_least(0), help="default: 9, and 6 under 256 pixels")
    how.add_argument("--runs", type=one, default=5, help="timed calls of each row (default: 5)")
    how.add_argument("--warmup", type=at_least(0), default=1, help="calls before them that do not count (default: 1)")
    levers = tuple(itertools.chain(*FORMS.values()))
    how.add_argument("--without", nargs="+", choices=levers, default=[], help="also without these levers")
    how.add_argument("--no_plain", action="store_true", help="leave the plain form out")
    how.add_argument("--json", type=pathlib.Path, help="also write the rows and the machine here")
    return parser.parse_args(argv)


def prepare(options):
    """The options of each part that was asked for, a dict; starts TensorFlow with as many devices as they want.

    Raises:
        UserError: something in them can't work.
    """
    defaults = {"steps": ([1], [1]), "data": ([1], [1]), "scaling": ([6], [1, 2, 3])}
    asked = [name for name in defaults if getattr(options, name)] or ["steps"]
    needed = {"--no_plain": "steps"} if options.no_plain else {}
    needed.update({f"--{name}": "data" for name in ("cache", "elsewhere") if getattr(options, name)})
    needed.update({f"--without {name}": part for part in FORMS for name in options.without if name in FORMS[part]})
    for flag, part in needed.items():
        if part not in asked:
            raise UserError(f"{flag}: does nothing here; expected it with --{part}")
    parts = {}
    for name in asked:
        parts[name] = argparse.Namespace(**vars(options))
        parts[name].cache, parts[name].elsewhere = options.cache or ["ram"], options.elsewhere or [0.0]
        parts[name].batch = options.batch or defaults[name][0]
        parts[name].replicas = options.replicas or defaults[name][1]
        if name == "data" and "prefetch" in options.without and parts[name].replicas != [1]:
            raise UserError(f"--without prefetch on --replicas {max(parts[name].replicas)}: expected 1")
        if name == "steps" and "packed" in options.without and parts[name].replicas == [1]:
            raise UserError("--without packed: does nothing here; expected it with several --replicas")
        for batch, replicas in itertools.product(parts[name].batch, parts[name].replicas):
            if batch % replicas:
                raise UserError(f"--batch {batch} on --replicas {replicas}: expected a multiple")
    if options.json and not options.json.parent.is_dir():
        raise UserError(f"--json {options.json}: no folder {options.json.parent}: make it, or name another")
    with console.start():
        import tensorflow as tf

        from cyclegan.distribution import hardware
        from cyclegan.distribution.strategy import make_strategy

        tf.get_logger().setLevel("ERROR")  # it takes so many different functions for one traced again and again
        try:
            make_strategy(max(max(part.replicas) for part in parts.values()))
        except UserError as error:
            raise UserError(str(error).replace("--devices", "--replicas")) from None
    for name in ("few", "norm"):
        if name in options.without and hardware.has_accelerator():
            raise UserError(f"--without {name}: does nothing here; expected it where there is no GPU")
    best = hardware.best_precision()
    precisions = dict.fromkeys(best if name == "auto" else name for name in options.precision)
    for part in parts.values():
        part.precision = list(precisions)
    return parts


def main(argv=None):
    """Returns what `--json` writes: the command, the machine, and the rows of each part.

    Raises:
        SystemExit: a row is missing everywhere, or a step was traced more than once.
    """
    options = arguments(argv)
    parts = prepare(options)
    command = shlex.join(["scripts/benchmark.py", *(sys.argv[1:] if argv is None else argv)])
    result = {"command": command, "machine": machine()}

    def keep(name, rows):
        result[name] = rows
        if options.json:  # after each turn: what takes hours may be cut off
            partial = options.json.with_name(options.json.name + ".partial")
            partial.write_text(json.dumps(result, indent=2) + "\n")
            partial.replace(options.json)

    for name, part in parts.items():
        part.keep = functools.partial(keep, name)
        keep(name, {"steps": steps, "data": data, "scaling": scaling}[name](part))
        print(f"\n{table(result[name], COLUMNS[name])}", flush=True)
    rows = [row for name in parts for row in result[name]]
    if all("error" in row for row in rows):
        raise SystemExit("benchmark.py: nothing could be timed, see the errors in the table")
    if any(row.get("traces", 1) != 1 for row in rows):
        raise SystemExit("benchmark.py: a step was traced more than once, see the column traces")
    return result


if __name__ == "__main__":
    sys.exit(console.run(main, "stopped; a file of --json has the turns until then"))
