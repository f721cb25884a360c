"""Epochs, progress bars, when to log, plot, save and stop."""

import math
import sys
import time

import numpy as np
import tensorflow as tf
import tqdm

from cyclegan.errors import TrainingError
from cyclegan.gan import ERRORS, LOSSES, to_float

SAMPLES = 5  # test pictures to plot


def fit(
    gan,
    train,
    test,
    train_step,
    test_step,
    strategy,
    summary,
    checkpoints,
    epochs,
    plot_every=10,
    checkpoint_every=1,
    verbose=1,
):
    """Trains from `gan.epoch` until `epochs` epochs are done.

    Args:
        gan: the `CycleGAN`, restored or new.
        train, test: `data.Pairs`.
        train_step, test_step: compiled functions (batch, totals) -> totals, see `distribute.accumulate`.
        strategy: what the batches are distributed with.
        summary: the `Summary` to write to.
        checkpoints: the `Checkpoints` to save to.
        plot_every, checkpoint_every: in epochs; both also happen at the end.
        verbose: 0 is silent, 1 shows bars and errors, 2 all losses too.

    Returns:
        The figures of the last epoch that ran, {"train": dict, "test": dict}; empty when nothing was left to do.

    Raises:
        TrainingError: a loss is not a finite number; nothing of that epoch is saved.
    """
    figures = {}
    done = int(gan.epoch.numpy())
    if done >= epochs:
        return figures
    # One iterator each for all epochs: getting rid of one takes TensorFlow up to half a minute.
    train_batches, test_batches = (
        pairs.distributed(strategy, done * pairs.steps, (epochs - done) * pairs.steps) for pairs in (train, test)
    )
    for epoch in range(done + 1, epochs + 1):
        if verbose:
            print(f"Epoch {epoch:03d}/{epochs:03d}", flush=True)
        start = time.perf_counter()
        figures["train"] = _run(train_step, train_batches, train, LOSSES, "Train", verbose)
        _check_finite(figures["train"], epoch)
        figures["test"] = _run(test_step, test_batches, test, LOSSES + ERRORS, "Test", verbose)
        _check_finite(figures["test"], epoch)  # also the weights after the last update
        figures["train"]["learning_rate"] = gan.learning_rate
        figures["train"]["epoch_seconds"] = time.perf_counter() - start
        gan.epoch.assign(epoch)
        step = int(gan.step.numpy())
        for split in ("train", "test"):
            summary.scalars(split, epoch, step, figures[split])
        if epoch % plot_every == 0 or epoch == epochs:
            plot(gan, test, summary, epoch)
        if epoch % checkpoint_every == 0 or epoch == epochs:
            checkpoints.save(epoch, step)
        if verbose:
            _report(figures, verbose)
    return figures


def plot(gan, test, summary, epoch):
    """Plots the cycles of the first test pictures. Returns the path of the PNG."""
    count = min(SAMPLES, test.pairs)
    x, y = (to_float(np.stack([test.picture(domain, slot) for slot in range(count)])) for domain in (0, 1))
    fake_y, cycle_x, fake_x, cycle_y = (picture.numpy() for picture in gan.cycle(x, y))
    return summary.cycles(epoch, (x.numpy(), fake_y, cycle_x), (y.numpy(), fake_x, cycle_y))


def _run(step, batches, pairs, keys, label, verbose):
    """One pass: exact means over the samples of all figures, the seconds it took, and images/s (of both domains)."""
    totals = {key: tf.zeros([]) for key in keys}
    start = time.perf_counter()
    bar = tqdm.tqdm(
        total=pairs.steps,
        desc=label,
        disable=not verbose,
        # A log file gets a line every half minute.
        mininterval=0.2 if sys.stderr.isatty() else 30,
        bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
    )
    with bar:
        for done in range(1, pairs.steps + 1):
            try:
                totals = step(next(batches), totals)
            except tf.errors.ResourceExhaustedError as error:
                raise TrainingError(
                    "the device has not enough memory for a step: try a smaller --batch_size, --image_size or --filters"
                ) from error
            images = 2 * min(done * pairs.global_batch_size, pairs.pairs)
            if done % 8 == 0 or done == pairs.steps:
                totals[keys[0]].numpy()  # wait for the device: the bar runs ahead of what is done by 8 steps at most
            bar.set_postfix_str(f"{images / (time.perf_counter() - start):.1f} images/s", refresh=False)
            bar.update()
    seconds = time.perf_counter() - start
    # Each step's figures are sums over its samples / global batch, so the sum over the steps is a sum over samples.
    figures = {key: float(total) * pairs.global_batch_size / pairs.pairs for key, total in totals.items()}
    return {**figures, "seconds": seconds, "images_per_second": 2 * pairs.pairs / seconds}


def _check_finite(figures, epoch):
    bad = [key for key, value in figures.items() if not math.isfinite(value)]
    if bad:
        raise TrainingError(
            f"epoch {epoch}: {', '.join(bad)} not finite: training has diverged; nothing of this epoch is saved. Try a lower --lr"
        )


def _report(figures, verbose):
    for pair in (ERRORS[::2], ERRORS[1::2]):
        print("  ".join(f"{key.split('/', 1)[1]}: {figures['test'][key]:.4f}" for key in pair))
    if verbose > 1:
        for split, values in figures.items():
            print(f"{split}: " + "  ".join(f"{key} {values[key]:.4f}" for key in LOSSES))
    print(f"Elapsed: {figures['train']['epoch_seconds']:.2f}s", flush=True)
