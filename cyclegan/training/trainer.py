"""Epochs, progress bars, when to log, plot, save, go back and stop."""

import contextlib
import dataclasses
import math
import sys
import time

import numpy as np
import tensorflow as tf
import tqdm

from cyclegan.checkpointing.train_state import TrainState
from cyclegan.config.directions import DIRECTIONS
from cyclegan.errors import TrainingError, UserError
from cyclegan.images.value_range import to_float
from cyclegan.reporting.profiler import Profiler
from cyclegan.reporting.throughput import Throughput
from cyclegan.training.checkpoint_policy import WISHES, CheckpointPolicy
from cyclegan.training.divergence import find_silent_failures
from cyclegan.training.metric_names import CHANGES, ERRORS, GRADIENTS, LOSS_SCALE, SAMPLES
from cyclegan.training.optimizers import SMALLEST_SCALE
from cyclegan.training.signals import Signals

SAMPLE_PICTURES = 5  # test pictures to plot
LABELS = {"train": "Train", "test": "Test"}
LISTED = 4  # at most so many losses and pictures are named on the terminal; metrics.jsonl has all
AHEAD = 2  # calls that the host may be ahead of the device


class Diverged(Exception):
    """Too many steps in a row were not finite."""


@dataclasses.dataclass
class Trainer:
    """Trains from a place until `epochs` epochs are done, whatever happens on the way.

    Args:
        gan: the `CycleGAN`, restored or new.
        train, test: `data.UnpairedDataset`.
        train_step, test_step: compiled functions, see `distribute.make_train_function`.
        rates: function from the epochs done, a float, to the learning rates of the generators and the discriminators.
        strategy: what the batches are distributed with.
        summary: the `SummaryWriter` to write to.
        checkpoints: the `CheckpointManager` to save to.
        progress: where the run is; kept up to date at every checkpoint and at the end.
        plot_every, checkpoint_every: in epochs; both also happen at the end.
        checkpoint_minutes: between checkpoints inside of an epoch; 0 is after every step.
        log_every: steps between lines about steps.
        max_bad_steps: how many steps in a row may be not finite.
        verbose: 0 is silent, 1 shows bars and errors, 2 all losses too.
        say: called with a text that the user should not miss.
        check: called before a checkpoint is written; raises if the run's folder has been taken away.
        peak: FLOP/s of all devices, see `devices.peak`; 0 if not measured.
        evaluation: scores the generators, see `evaluate.Evaluator`.
        evaluate_every: in epochs; it also happens at the end. 0 is never.
        workers: the `workers.Workers` that train together, if there are several. Only the chief plots and scores.
        profile: (START, END), the steps of which TensorFlow writes a profile; or `None`.
    """

    gan: object
    train: object
    test: object
    train_step: object
    test_step: object
    rates: object
    strategy: object
    summary: object
    checkpoints: object
    progress: TrainState
    epochs: int
    plot_every: int = 10
    checkpoint_every: int = 1
    checkpoint_minutes: float = 10.0
    log_every: int = 100
    max_bad_steps: int = 10
    verbose: int = 1
    say: object = print
    check: object = lambda: None
    peak: float = 0.0
    profile: object = None
    evaluation: object = None
    evaluate_every: int = 0
    workers: object = None

    def __post_init__(self):
        for split in ("train", "test"):
            part, pairs = getattr(self.progress, split), getattr(self, split)
            if part.pairs_done > pairs.epoch_size:
                raise UserError(
                    f"the checkpoint is of {part.pairs_done} {split} pairs; expected at most {pairs.epoch_size}: it is not one"
                    " of this run; use another --output_dir"
                )
        self._take_up(self.progress)

    def _take_up(self, progress):
        """Goes on from a place that was saved, perhaps with other losses."""
        self.progress = progress
        for split in ("train", "test"):
            # This epoch has the means of those losses only that it has had from its beginning.
            part = getattr(progress, split)
            part.sums = {
                key: value for key, value in part.sums.items() if key in (*self.gan.metric_names[split], SAMPLES)
            }

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
        if not self.progress.step and not self.checkpoints.restored:
            self.checkpoints.save(self.progress)  # to go back to; and what can't be written is better known now
        # One iterator for all epochs of a split, so that the next epoch is prefetched and nothing is traced again.
        self._batches = {}
        # Whether no step was bad since one was good, so that the weights are worth saving; and whether one was good with the
        # weights of the last checkpoint, so that this is worth going back to.
        self._sound, self._confirmed = True, self.progress.validated
        flops = self.gan.flops(*self.train.size) * self.train.global_batch_size
        self._speed = {
            "train": Throughput(flops, self.peak),
            "test": Throughput(),
            "steps": Throughput(flops, self.peak),
        }
        self._traced = set()  # splits whose first call is done
        self._warn_of_no_profile()
        profile = Profiler(self.profile, self.summary.folder)
        with Signals(self.say) as signals, profile as self._profile:
            self._saver = CheckpointPolicy(
                *(self.checkpoints, signals, self.summary, self.checkpoint_minutes),
                *(self.say, self.check, self.workers),
            )
            while self.progress.epoch < self.epochs:
                try:
                    figures = self._epoch()
                except Diverged:
                    self._go_back()
        return figures

    def _warn_of_no_profile(self):
        first = self.progress.step + 1
        epochs = self.epochs - self.progress.epoch - 1
        last = (
            self.progress.step
            + self.train.steps_left(self.progress.train.pairs_done)
            + epochs * self.train.steps_per_epoch
        )
        if self.profile and not (self.profile[0] < last and first <= self.profile[1]):
            wanted = "--profile {}:{}".format(*self.profile)
            self.say(f"{wanted} profiles nothing: the steps to come are {first} to {last}, counted over the whole run")

    @property
    def _is_chief(self):
        return self.workers is None or self.workers.is_chief

    def _epoch(self):
        """Does what is left of an epoch. Returns its figures."""
        progress = self.progress
        if self.verbose:
            print(f"Epoch {progress.epoch + 1:03d}/{self.epochs:03d}", flush=True)
        for split in ("train", "test"):
            self._pass(split)
        figures = {split: self._figures(split) for split in ("train", "test")}
        figures["train"].update(self._learning_rates())
        figures["train"]["epoch_seconds"] = progress.train.seconds + progress.test.seconds
        progress.next_epoch()
        epoch, last = progress.epoch, progress.epoch == self.epochs
        best, better = {}, False
        if self.evaluate_every and (epoch % self.evaluate_every == 0 or last):
            if self._is_chief:
                scores, best = self._scores()
                figures["test"].update(scores)
            better = self.workers.broadcast_from_chief(bool(best)) if self.workers else bool(best)
        for split in ("train", "test"):
            self.summary.write_scalars(split, epoch, progress.step, figures[split])
        self._warn_of_silent_failures(figures)
        if self._is_chief and (epoch % self.plot_every == 0 or last):
            plot(self.gan, self.test, self.summary, epoch)
        if self.verbose:
            _report(figures, self.gan.metric_names, self.verbose)
        if last:
            self._saver.save_the_end(progress, self._sound, best)
        elif better or epoch % self.checkpoint_every == 0 or self._saver.due():
            self._save(best)
        return figures

    def _pass(self, split):
        """Does what is left of one pass over the training or test pairs.

        Raises:
            TrainingError: a picture can't be read any more. A checkpoint was saved first, unless there are several workers.
        """
        progress, pairs = self.progress, getattr(self, split)
        part, step = getattr(progress, split), getattr(self, f"{split}_step")
        if part.pairs_done >= pairs.epoch_size:
            return
        if split not in self._batches:
            self._batches[split] = pairs.distributed(
                self.strategy, progress.epoch, part.pairs_done, progress.reshuffles
            )
        names = (*self.gan.metric_names[split], SAMPLES)
        summed = part.sums or dict.fromkeys(names, 0.0)
        # All are added up, so that nothing is traced again in the next epoch, where all are wanted.
        totals = {key: tf.constant(summed.get(key, 0.0), tf.float64) for key in names}
        waiting = []  # calls whose outcome the host has not looked at yet
        speed = self._speed[split]
        speed.reset()
        mark = time.perf_counter()
        with self._bar(split) as bar:
            while part.pairs_done < pairs.epoch_size:
                steps = pairs.call(0, progress.epoch, part.pairs_done)[2]
                if split == "train" and self._profile.should_start(progress.step, steps):
                    while waiting:
                        self._look_at(split, *waiting.pop(0))
                    began = time.perf_counter()
                    self._profile.start(progress.step)
                    mark += time.perf_counter() - began  # no step takes that
                began = time.perf_counter()
                try:
                    batches = next(self._batches[split])
                except tf.errors.OpError:
                    if not pairs.failure:
                        raise
                    if not self._saver.together:  # the others are in the step that this one can't take part in
                        while waiting:
                            self._look_at(split, *waiting.pop(0))
                        part.sums = {key: float(totals[key]) for key in summed}
                        self._saver.save(progress, self._sound, "Training stops")
                    raise TrainingError(pairs.failure) from None
                waited = time.perf_counter() - began
                with _short_of_memory_said():
                    given = (tf.constant(progress.step), self._rates_of_call()) if split == "train" else ()
                    told = {}
                    if self._saver.together:
                        told["requests"] = {name: tf.constant(wish) for name, wish in self._saver.wishes().items()}
                    totals, good, figures = step(batches, totals, tf.constant(steps), *given, **told)
                waiting.append((part.pairs_done, progress.step, good, figures))
                done = min(steps * pairs.global_batch_size, pairs.epoch_size - part.pairs_done)
                part.pairs_done += done
                progress.step += steps if split == "train" else 0
                progress.global_batch_size = pairs.global_batch_size
                logs = split == "train" and math.ceil(part.pairs_done / pairs.global_batch_size) % self.log_every == 0
                profiled = split == "train" and self._profile.should_stop(progress.step)
                due = logs or profiled or self._saver.due() or part.pairs_done == pairs.epoch_size
                while len(waiting) > (0 if due else AHEAD):
                    self._look_at(split, *waiting.pop(0))
                now = time.perf_counter()
                seconds, mark = now - mark, now
                part.seconds += seconds
                if split in self._traced:  # the first call traces the graph
                    for counter in (speed, self._speed["steps"]) if split == "train" else (speed,):
                        counter.add(2 * done, steps, seconds, waited)
                self._traced.add(split)
                bar.set_postfix_str(str(speed), refresh=False)
                bar.update(steps)
                if due:
                    part.sums = {key: float(totals[key]) for key in summed}
                    if profiled:
                        self._profile.stop()
                    if logs:
                        self._log_steps()
                    if self._saver.due():
                        self._save()
                    mark = time.perf_counter()  # saving is no part of the speed

    def _bar(self, split):
        pairs = getattr(self, split)
        left = pairs.steps_left(getattr(self.progress, split).pairs_done)
        return tqdm.tqdm(
            total=pairs.steps_per_epoch,
            initial=pairs.steps_per_epoch - left,
            desc=LABELS[split],
            disable=not self.verbose,
            # A log file gets a line every half minute.
            mininterval=0.2 if sys.stderr.isatty() else 30,
            bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
        )

    def _look_at(self, split, pair, step, good, figures):
        """Waits for a call; each of its steps that was not finite, so that nothing was updated in it, is counted and written down.

        Args:
            pair, step: where the call began.
            good, figures: what it returned.

        Raises:
            Diverged: these were too many in a row.
        """
        pairs, progress = getattr(self, split), self.progress
        with _short_of_memory_said():
            good = good.numpy()
        if self._saver.together:
            self._saver.hear({name: float(figures.pop(name)[-1]) for name in WISHES})
        for i, was_good in enumerate(good):
            if was_good:
                progress.validated = split == "test"
                self._sound = self._confirmed = True
                getattr(progress, f"nonfinite_{split}").clear()
                continue
            values = {name: float(value[i]) for name, value in figures.items()}
            number = step + (i + 1 if split == "train" else 0)
            self._bad_step(split, pair + i * pairs.global_batch_size, number, values)

    def _bad_step(self, split, pair, step, figures):
        pairs, progress = getattr(self, split), self.progress
        bad = [name for name, value in figures.items() if not math.isfinite(value)]
        getattr(progress, split).skipped_steps += 1
        # Scales are powers of 2; this one is the rounded sum of the replicas' shares.
        if figures.get(LOSS_SCALE, 0.0) > 1.5 * SMALLEST_SCALE and set(bad) <= {*GRADIENTS}:
            return  # how the loss scale of float16 is found
        progress.validated = split == "test" and progress.validated
        self._sound = progress.validated
        images = pairs.batch_names(progress.epoch, pair, progress.reshuffles)
        self.summary.write_event(split, progress.epoch + 1, step, "not finite", figures=bad, images=images)
        row = getattr(progress, f"nonfinite_{split}")
        row.append(
            f"epoch {progress.epoch + 1}, step {step} ({split}): {_listed(bad)} not finite, with {_listed(images)}"
        )
        self.say(f"{row[-1]}; nothing was updated ({len(row)} in a row)")
        if len(row) >= self.max_bad_steps:
            raise Diverged

    def _figures(self, split):
        """Exact means over the samples of a finished pass, the seconds it took, and its speed since the program was started."""
        part = getattr(self.progress, split)
        figures = _means(part.sums)
        figures["seconds"] = part.seconds
        figures.update(self._speed[split].metrics())
        figures["skipped_steps"] = float(part.skipped_steps)
        return figures

    def _rates_of_call(self):
        """The learning rates of the steps of the next call, float32 [steps_per_call, 2]."""
        place, pairs = self.progress.train.pairs_done, self.train
        done = [place + step * pairs.global_batch_size for step in range(pairs.steps_per_call)]
        return tf.constant([self.rates(self.progress.epoch + pair / pairs.epoch_size) for pair in done], tf.float32)

    def _learning_rates(self):
        """Those of the last step, by name; one where both are the same."""
        pairs = self.progress.train.pairs_done - 1  # of the last batch, whatever its size
        first = pairs - pairs % self.train.global_batch_size
        rates = self.rates(self.progress.epoch + max(first, 0) / self.train.epoch_size)
        names = ("learning_rate", "learning_rate_discriminators") if rates[0] != rates[1] else ("learning_rate",)
        return dict(zip(names, rates))

    def _log_steps(self):
        """A line about the steps since the last such line of this epoch."""
        progress = self.progress
        since = {key: value - progress.logged_sums.get(key, 0.0) for key, value in progress.train.sums.items()}
        progress.logged_sums = dict(progress.train.sums)
        values = {**_means(since), **self._learning_rates(), **self._speed["steps"].metrics()}
        self._speed["steps"].reset()
        self.summary.write_scalars("steps", progress.epoch + 1, progress.step, values)

    def _warn_of_silent_failures(self, figures):
        adversarial = self.gan.config.objective.adversarial
        for name, text in find_silent_failures(figures["train"], figures["test"], adversarial).items():
            if name not in self.progress.warned:
                self.progress.warned.append(name)
                self.say(f"epoch {self.progress.epoch}: {text}")
                self.summary.write_event("test", self.progress.epoch, self.progress.step, name)

    def _scores(self):
        """(figures, best): the scores of the generators as they are now, and the KID of each direction where it is the best so far.

        Both are empty where there are no scores.
        """
        progress, name = self.progress, self.evaluation.extractor.name
        if not self._sound:
            return {}, {}
        if progress.best_kid_features != name:
            if progress.best_kid:
                self.say(
                    f"scores are by other features from here on ({progress.best_kid_features} -> {name}): the best begin anew"
                )
            progress.best_kid, progress.best_kid_features = {}, name
        try:
            with _short_of_memory_said():
                scores = {direction: self.evaluation.scores(direction, errors=False) for direction in DIRECTIONS}
        except TrainingError as error:
            self.say(f"epoch {progress.epoch} has no scores: {error}")
            return {}, {}
        found = {f"score/{direction}/{key}": value for direction in scores for key, value in scores[direction].items()}
        best = {d: s["KID"] for d, s in scores.items() if s["KID"] < progress.best_kid.get(d, math.inf)}
        return {key: value for key, value in found.items() if math.isfinite(value)}, best

    def _save(self, best=None):
        """Saves where training is if it is worth saving, and leaves if that was asked for. `best`: see `CheckpointPolicy.save`."""
        if self._saver.save_and_obey(self.progress, self._sound, best):
            self._confirmed = self.progress.validated

    def _go_back(self):
        """Takes up training from the last good checkpoint, with another order of the pictures.

        Raises:
            TrainingError: that was done before, or there is no checkpoint.
        """
        left = self.progress
        steps = max(left.nonfinite_train, left.nonfinite_test, key=len)
        if left.reshuffles:
            raise TrainingError(
                f"{steps[0]}: so it began. Training has diverged again after going back once, and stops; the"
                " last checkpoint is from before. Try a lower --lr, and look at the pictures named"
            )
        checkpoints = self.checkpoints.all()
        if len(checkpoints) > 1 and not self._confirmed:  # its own weights may be what is broken
            self.checkpoints.drop(checkpoints[-1])
        with self.strategy.scope():
            found = self.checkpoints.restore()
        if not found:
            raise TrainingError(
                f"{steps[0]}. Training has diverged, and there is no checkpoint to go back to. Try a lower --lr"
            )
        progress, path = found
        self._take_up(progress)
        self.progress.reshuffles += 1
        self.progress.warned = left.warned
        self.progress.nonfinite_train, self.progress.nonfinite_test = [], []
        self._sound, self._confirmed, self._batches = True, self.progress.validated, {}
        self._saver.plan()
        place = self.progress
        self.summary.rewind(place.log_bytes, place.epoch, place.step)
        self.summary.write_event("train", place.epoch + 1, place.step, "went back", bad_steps=steps)
        self.say(
            f"{len(steps)} steps in a row were not finite: training goes back to {path} and on from there with another order of the"
            " pictures"
        )


def plot(gan, test, summary, epoch):
    """Plots the cycles of the first test pictures. Returns the path of the PNG."""
    count = min(SAMPLE_PICTURES, test.epoch_size)
    x, y = (to_float(np.stack([test.image(domain, 0, pair) for pair in range(count)])) for domain in (0, 1))
    fake_y, cycle_x, fake_x, cycle_y = (picture.numpy() for picture in gan.cycle(x, y))
    names = [part[:count] for part in test.names]
    return summary.write_cycles(epoch, (x, fake_y, cycle_x), (y, fake_x, cycle_y), names)


@contextlib.contextmanager
def _short_of_memory_said():
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise TrainingError(
            "the device has not enough memory for a step: try a smaller --batch_size, --image_size or --filters"
        ) from error


def _listed(names):
    """The first few of some names, as a text."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _means(sums):
    """The means over the samples of what was summed over them; empty where there are none."""
    return {key: value / sums[SAMPLES] for key, value in sums.items() if key != SAMPLES} if sums.get(SAMPLES) else {}


def _report(figures, names, verbose):
    for pair in (ERRORS[::2], ERRORS[1::2]):
        shown = [key for key in pair if key in names["test"]]
        print("  ".join(f"{key.split('/', 1)[1]}: {figures['test'].get(key, math.nan):.4f}" for key in shown))
    if scores := {key: value for key, value in figures["test"].items() if key.startswith("score/")}:
        print("  ".join(f"{key.split('/', 1)[1]}: {value:.4g}" for key, value in scores.items()))
    if verbose > 1:
        for split, values in figures.items():
            losses = [key for key in names[split] if key not in (*ERRORS, *CHANGES)]
            print(f"{split}: " + "  ".join(f"{key} {values.get(key, math.nan):.4f}" for key in losses))
    print(f"Elapsed: {figures['train']['epoch_seconds']:.2f}s", flush=True)
