#!/usr/bin/env python
"""Times training steps on synthetic pictures: `scripts/benchmark.py --help`.

Each combination of --size, --batch, --replicas and --identity is timed as it is (`default`) and, with one replica, in the plain
form that tutorials have (`plain`): every network on every input by itself, four tapes, four optimizers, nothing shared. All are
built first and then take turns, run by run, so that whatever else the machine does hits all of them: compare the rows of one
run with each other, not with those of another.
"""

import argparse
import itertools
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cyclegan import quiet  # noqa: E402  the package lies beside this folder

COLUMNS = (
    "form",
    "size",
    "batch",
    "replicas",
    "identity",
    "ms",
    "spread",
    "images_per_second",
    "ratio",
    "trace_seconds",
)


def arguments(argv):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, nargs="+", default=[128], help="sides of the pictures (default: 128)")
    parser.add_argument("--batch", type=int, nargs="+", default=[1], help="global batches (default: 1)")
    parser.add_argument("--replicas", type=int, nargs="+", default=[1], help="numbers of devices (default: 1)")
    parser.add_argument(
        "--identity", type=float, nargs="+", default=[5.0], help="weights of the identity loss (default: 5)"
    )
    parser.add_argument("--filters", type=int, default=64, help="default: 64")
    parser.add_argument("--residual_blocks", type=int, help="default: 9, and 6 under 256 pixels")
    parser.add_argument("--runs", type=int, default=5, help="timed steps of each row (default: 5)")
    parser.add_argument("--no_plain", action="store_true", help="leave the plain form out")
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows and the machine here")
    return parser.parse_args(argv)


def default_step(strategy, batch, identity, filters, blocks):
    """The step of the package. Returns f(batch) -> a scalar to wait for."""
    from cyclegan import distribute
    from cyclegan.gan import CycleGAN

    with strategy.scope():
        gan = CycleGAN(batch, filters, blocks, lambda_identity=identity)
    step = distribute.accumulate(strategy, gan.train_step, batch, gan.update)
    return lambda inputs: step(inputs, {}, 1)[1]


def plain_step(strategy, batch, identity, filters, blocks):
    """The step as tutorials have it. Returns f(batch) -> a scalar to wait for."""
    import tensorflow as tf

    from cyclegan import layers, models

    with strategy.scope(), mock.patch.object(layers, "FEW", 0):
        G, F = (models.generator(filters, blocks) for _ in "GF")
        D_X, D_Y = (models.discriminator(filters) for _ in "XY")
        networks = (G, F, D_X, D_Y)
        optimizers = [tf.keras.optimizers.Adam(2e-4, 0.5) for _ in networks]
        for optimizer, network in zip(optimizers, networks):
            optimizer.build(network.trainable_variables)

    def mean(values):
        return tf.reduce_sum(tf.reduce_mean(values, axis=[1, 2, 3])) / batch

    def step(x, y, weight):
        x, y = (tf.cast(images, tf.float32) / 127.5 - 1 for images in (x, y))
        with tf.GradientTape() as g, tf.GradientTape() as f, tf.GradientTape() as d_x, tf.GradientTape() as d_y:
            fake_y, fake_x = G(x, training=True), F(y, training=True)
            cycle_x, cycle_y = F(fake_y, training=True), G(fake_x, training=True)
            same_x, same_y = F(x, training=True), G(y, training=True)
            real_x, judged_x = D_X(x, training=True), D_X(fake_x, training=True)
            real_y, judged_y = D_Y(y, training=True), D_Y(fake_y, training=True)
            losses = (
                mean((judged_y - 1) ** 2) + 10 * mean(abs(y - cycle_y)) + identity * mean(abs(y - same_y)),
                mean((judged_x - 1) ** 2) + 10 * mean(abs(x - cycle_x)) + identity * mean(abs(x - same_x)),
                0.5 * (mean((real_x - 1) ** 2) + mean(judged_x**2)),
                0.5 * (mean((real_y - 1) ** 2) + mean(judged_y**2)),
            )
        for tape, loss, network, optimizer in zip((g, f, d_x, d_y), losses, networks, optimizers):
            gradients = tape.gradient(loss, network.trainable_variables)
            optimizer.apply_gradients(zip(gradients, network.trainable_variables))
        return sum(losses)

    @tf.function(autograph=False)
    def run(inputs):
        return strategy.reduce(
            "SUM", strategy.run(lambda *parts: step(*(part[0] for part in parts)), args=inputs), axis=None
        )

    return run


def build(form, size, batch, replicas, identity, options):
    """A row to be filled, and the call that it times."""
    import numpy as np

    from cyclegan import distribute
    from cyclegan.data import Pairs

    strategy = distribute.make_strategy(replicas)
    blocks = options.residual_blocks
    if blocks is None:
        blocks = 9 if size >= 256 else 6
    make = {"default": default_step, "plain": plain_step}[form]
    step = make(strategy, batch, identity, options.filters, blocks)
    pictures = np.random.default_rng(0).integers(0, 256, (2, batch, size, size, 3)).astype(np.uint8)
    data = Pairs(*pictures, batch, size)
    inputs = next(data.distributed(strategy))
    began = time.perf_counter()
    step(inputs).numpy()  # traces
    row = {"form": form, "size": size, "batch": batch, "replicas": replicas, "identity": identity}
    row.update(filters=options.filters, residual_blocks=blocks, trace_seconds=time.perf_counter() - began)
    step(inputs).numpy()  # warm
    return row, lambda: step(inputs).numpy()


def measure(rows, runs):
    """Times the calls of all rows in turns, and fills the rows with seconds, medians and ratios to the first one."""
    seconds = [[] for _ in rows]
    for _ in range(runs):
        for times, (_, call) in zip(seconds, rows):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
    for times, (row, _) in zip(seconds, rows):
        median = statistics.median(times)
        row.update(runs=runs, ms=1000 * median, spread=(max(times) - min(times)) / median)
        row["images_per_second"] = 2 * row["batch"] / median
    for row, _ in rows:
        row["ratio"] = rows[0][0]["ms"] / row["ms"]


def machine():
    """What the figures depend on."""
    import tensorflow as tf

    cpu = "unknown"
    if pathlib.Path("/proc/cpuinfo").exists():
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {
        "commit": git.stdout.strip() or "unknown",
        "cpu": cpu,
        "cores": os.cpu_count(),
        "gpus": [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")],
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
    }


def table(rows):
    """The rows as Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        cells = [f"{row[name]:.3g}" if isinstance(row[name], float) else str(row[name]) for name in COLUMNS]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv=None):
    options = arguments(argv)
    with quiet.start():
        from cyclegan import distribute

        distribute.make_strategy(max(options.replicas))  # starts TensorFlow with as many devices
    rows = []
    for size, batch, replicas, identity in itertools.product(
        options.size, options.batch, options.replicas, options.identity
    ):
        if batch % replicas:
            raise SystemExit(f"--batch {batch} on --replicas {replicas}: expected a multiple")
        for form in ("plain", "default"):
            if form == "default" or (replicas == 1 and not options.no_plain):
                rows.append(build(form, size, batch, replicas, identity, options))
    measure(rows, options.runs)
    rows = [row for row, _ in rows]
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")
    return rows


if __name__ == "__main__":
    main()
