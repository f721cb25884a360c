"""Epochs, progress bars, when to log, plot, save, go back and stop."""

import contextlib
import dataclasses
import math
import sys
import time

import numpy as np
import tensorflow as tf
import tqdm

from cyclegan.errors import TrainingError
from cyclegan.gan import CHANGES, ERRORS, LOSSES, SAMPLES, to_float
from cyclegan.guard import silent_failures
from cyclegan.progress import Progress
from cyclegan.saving import Saver
from cyclegan.signals import Signals

SAMPLE_PICTURES = 5  # test pictures to plot
FIGURES = {"train": LOSSES, "test": LOSSES + ERRORS + CHANGES}
LABELS = {"train": "Train", "test": "Test"}
AHEAD = 8  # steps that the host may be ahead of the device


class Diverged(Exception):
    """Too many steps in a row were not finite; the text says which."""


@dataclasses.dataclass
class Loop:
    """Trains from a place until `epochs` epochs are done, whatever happens on the way.

    Args:
        gan: the `CycleGAN`, restored or new.
        train, test: `data.Pairs`.
        train_step, test_step: compiled functions (batch, totals) -> (totals, good, figures), see `distribute.accumulate`.
        strategy: what the batches are distributed with.
        summary: the `Summary` to write to.
        checkpoints: the `Checkpoints` to save to.
        progress: where the run is; kept up to date at every checkpoint and at the end.
        plot_every, checkpoint_every: in epochs; both also happen at the end.
        checkpoint_minutes: between checkpoints inside of an epoch; 0 is after every step.
        log_every: steps between lines about steps.
        max_bad_steps: how many steps in a row may be not finite.
        verbose: 0 is silent, 1 shows bars and errors, 2 all losses too.
        say: called with a text that the user should not miss.
    """

    gan: object
    train: object
    test: object
    train_step: object
    test_step: object
    strategy: object
    summary: object
    checkpoints: object
    progress: Progress
    epochs: int
    plot_every: int = 10
    checkpoint_every: int = 1
    checkpoint_minutes: float = 10.0
    log_every: int = 100
    max_bad_steps: int = 10
    verbose: int = 1
    say: object = print

    def fit(self):
        """Trains.

        Returns:
            The figures of the last epoch that ran, {"train": dict, "test": dict}; empty when nothing was left to do.

        Raises:
            Stopped: a signal asked for it. A checkpoint was saved first.
            TrainingError: training has diverged again after it had gone back once.
            UserError: a new run's first checkpoint could not be written.
        """
        figures = {}
        if self.progress.epoch >= self.epochs:
            return figures
        if not self.progress.step:
            self.checkpoints.save(self.progress)  # to go back to; and what can't be written is better known now
        self._forget_bad_steps()
        with Signals(self.say) as signals:
            self._saver = Saver(self.checkpoints, signals, self.summary, self.checkpoint_minutes, self.say)
            while self.progress.epoch < self.epochs:
                try:
                    figures = self._epoch()
                except Diverged as event:
                    self._go_back(str(event))
        return figures

    def _epoch(self):
        """Does what is left of an epoch. Returns its figures."""
        progress = self.progress
        if self.verbose:
            print(f"Epoch {progress.epoch + 1:03d}/{self.epochs:03d}", flush=True)
        for split in ("train", "test"):
            self._pass(split)
        figures = {split: self._figures(split) for split in ("train", "test")}
        figures["train"]["learning_rate"] = self.gan.learning_rate
        figures["train"]["epoch_seconds"] = progress.train.seconds + progress.test.seconds
        progress.next_epoch()
        epoch, last = progress.epoch, progress.epoch == self.epochs
        for split in ("train", "test"):
            self.summary.scalars(split, epoch, progress.step, figures[split])
        self._warn_of_silent_failures(figures)
        if epoch % self.plot_every == 0 or last:
            plot(self.gan, self.test, self.summary, epoch)
        if self.verbose:
            _report(figures, self.verbose)
        if last:
            self._saver.save_the_end(progress, self._sound)
        elif epoch % self.checkpoint_every == 0 or self._saver.due():
            self._saver.save_and_obey(progress, self._sound)
        return figures

    def _pass(self, split):
        """Does what is left of one pass over the training or test pairs."""
        progress, pairs = self.progress, getattr(self, split)
        part, step = getattr(progress, split), getattr(self, f"{split}_step")
        if part.pairs >= pairs.pairs:
            return
        batches = pairs.distributed(self.strategy, progress.epoch, part.pairs, progress.draw)
        totals = {key: tf.constant(part.sums.get(key, 0.0)) for key in (*FIGURES[split], SAMPLES)}
        waiting = []  # steps whose outcome the host has not looked at yet
        mark = time.perf_counter()
        with self._bar(split) as bar:
            while part.pairs < pairs.pairs:
                with _short_of_memory_said():
                    totals, good, figures = step(next(batches), totals)
                progress.step += split == "train"
                progress.global_batch = pairs.global_batch_size
                waiting.append((part.pairs, progress.step, good, figures))
                part.pairs = min(part.pairs + pairs.global_batch_size, pairs.pairs)
                logs = split == "train" and math.ceil(part.pairs / pairs.global_batch_size) % self.log_every == 0
                due = logs or self._saver.due() or part.pairs == pairs.pairs
                if due or len(waiting) == AHEAD:
                    self._look_at(split, waiting)
                    waiting.clear()
                now = time.perf_counter()
                part.seconds, mark = part.seconds + now - mark, now
                bar.set_postfix_str(f"{2 * part.pairs / part.seconds:.1f} images/s", refresh=False)
                bar.update()
                if due:
                    part.sums = {key: float(total) for key, total in totals.items()}
                    if logs:
                        self._log_steps()
                    if self._saver.due():
                        self._saver.save_and_obey(progress, self._sound)
                    mark = time.perf_counter()  # saving is no part of the speed

    def _bar(self, split):
        pairs = getattr(self, split)
        left = pairs.steps_from(getattr(self.progress, split).pairs)
        return tqdm.tqdm(
            total=pairs.steps,
            initial=pairs.steps - left,
            desc=LABELS[split],
            disable=not self.verbose,
            # A log file gets a line every half minute.
            mininterval=0.2 if sys.stderr.isatty() else 30,
            bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
        )

    def _look_at(self, split, steps):
        """Counts and writes down the steps that were not finite; nothing was updated in them.

        Raises:
            Diverged: these were too many in a row.
        """
        pairs, progress = getattr(self, split), self.progress
        for pair, step, good, figures in steps:
            self._tested = split == "test" and (good.numpy() or self._tested)
            self._sound = good.numpy() or self._tested
            self._bad_in_row[split] = 0 if good.numpy() else self._bad_in_row[split] + 1
            if good.numpy():
                continue
            getattr(progress, split).skipped += 1
            bad = [name for name, value in figures.items() if not math.isfinite(value)]
            images = pairs.batch_names(progress.epoch, pair, progress.draw)
            self.summary.event(split, progress.epoch + 1, step, "not finite", figures=bad, images=images)
            text = f"epoch {progress.epoch + 1}, step {step} ({split}): {', '.join(bad)} not finite, with {', '.join(images)}"
            self.say(f"{text}; nothing was updated ({self._bad_in_row[split]} in a row)")
            if self._bad_in_row[split] >= self.max_bad_steps:
                raise Diverged(text)

    def _figures(self, split):
        """Exact means over the samples of a finished pass, the seconds it took, and images/s (of both domains)."""
        part = getattr(self.progress, split)
        figures = _means(part.sums)
        figures["seconds"] = part.seconds
        figures["images_per_second"] = 2 * part.pairs / part.seconds
        figures["skipped_steps"] = float(part.skipped)
        return figures

    def _log_steps(self):
        """A line about the steps since the last such line of this epoch."""
        progress = self.progress
        since = {key: value - progress.logged.get(key, 0.0) for key, value in progress.train.sums.items()}
        progress.logged = dict(progress.train.sums)
        values = {**_means(since), "learning_rate": self.gan.learning_rate}
        self.summary.scalars("steps", progress.epoch + 1, progress.step, values)

    def _warn_of_silent_failures(self, figures):
        for name, text in silent_failures(figures["train"], figures["test"]).items():
            if name not in self.progress.warned:
                self.progress.warned.append(name)
                self.say(f"epoch {self.progress.epoch}: {text}")
                self.summary.event("test", self.progress.epoch, self.progress.step, name)

    def _forget_bad_steps(self):
        self._bad_in_row = {"train": 0, "test": 0}
        self._sound = True  # no step was bad since one was good: the weights can be saved
        self._tested = (
            False  # a test step was good since the last training step: the weights are sound, whatever comes now
        )

    def _go_back(self, event):
        """Takes up training from the last checkpoint, with another order of the pictures.

        Raises:
            TrainingError: that was done before.
        """
        if self.progress.draw:
            raise TrainingError(
                f"{event}. Training has diverged again after going back once, so it stops; the last checkpoint is from before."
                " Try a lower --lr, and look at the pictures named"
            )
        learning_rate = self.gan.learning_rate
        with self.strategy.scope():
            progress, path = self.checkpoints.restore()
        self.gan.learning_rate = learning_rate
        self.progress = progress
        progress.draw += 1
        self._forget_bad_steps()
        self._saver.plan()
        self.summary.rewind(progress.log_bytes, progress.epoch, progress.step)
        self.summary.event("train", progress.epoch + 1, progress.step, "went back", reason=event)
        self.say(
            f"{self.max_bad_steps} steps in a row were not finite: training goes back to {path} and on from there with another"
            " order of the pictures"
        )


def plot(gan, test, summary, epoch):
    """Plots the cycles of the first test pictures. Returns the path of the PNG."""
    count = min(SAMPLE_PICTURES, test.pairs)
    x, y = (to_float(np.stack([test.picture(domain, 0, pair) for pair in range(count)])) for domain in (0, 1))
    fake_y, cycle_x, fake_x, cycle_y = (picture.numpy() for picture in gan.cycle(x, y))
    return summary.cycles(epoch, (x.numpy(), fake_y, cycle_x), (y.numpy(), fake_x, cycle_y))


@contextlib.contextmanager
def _short_of_memory_said():
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise TrainingError(
            "the device has not enough memory for a step: try a smaller --batch_size, --image_size or --filters"
        ) from error


def _means(sums):
    """The means over the samples of what was summed over them; empty where there are none."""
    return {key: value / sums[SAMPLES] for key, value in sums.items() if key != SAMPLES} if sums[SAMPLES] else {}


def _report(figures, verbose):
    for pair in (ERRORS[::2], ERRORS[1::2]):
        print("  ".join(f"{key.split('/', 1)[1]}: {figures['test'].get(key, math.nan):.4f}" for key in pair))
    if verbose > 1:
        for split, values in figures.items():
            print(f"{split}: " + "  ".join(f"{key} {values.get(key, math.nan):.4f}" for key in LOSSES))
    print(f"Elapsed: {figures['train']['epoch_seconds']:.2f}s", flush=True)
