"""The trainer: epochs of a pass over the training pairs and a pass over the held-out pairs."""

from __future__ import annotations

import collections
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf
import tqdm

from cyclegan import terminal
from cyclegan.config import Config
from cyclegan.config.command_line import PRESETS
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution import hardware
from cyclegan.distribution.train_function import explain_out_of_memory
from cyclegan.distribution.workers import Watchdog, Workers
from cyclegan.errors import Stopped, TrainingError, UserError, counted, first_line
from cyclegan.methods.objective import SAMPLES
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.run_directory import RunDirectory
from cyclegan.run.throughput import FAST_FLOPS, Profiler, Throughput, duration
from cyclegan.run.train_state import PassState, TrainState
from cyclegan.training.callbacks import (
    UNTRAINED,
    WON_EPOCHS,
    Callback,
    Epoch,
    PlotCallback,
    Summary,
    check_profile,
    find_silent_failures,
    report_best,
    report_epoch,
    warn_once,
)
from cyclegan.training.checkpoint_policy import REQUESTS, CheckpointPolicy
from cyclegan.training.divergence import DivergenceError, DivergencePolicy, PendingCall
from cyclegan.training.schedule import rates_of_last_step, rates_of_next_call

logger = logging.getLogger(__name__)

ASSUMED_SHARE = 0.5  # share of the peak speed that a step reaches, to estimate its time
VALIDATION = 1 / 3  # time of a validation step, as a share of a training step
ESTIMATE_STEPS = 20  # after which the rest of the training is estimated
PAGE_SECONDS = 20.0  # between two writes of the page within an epoch
LONG_SECONDS = 6 * 3600.0  # of a training on a CPU, above which a warning proposes smaller networks
AHEAD = 2  # calls that the host may be ahead of the devices
# A compiled function that runs steps, see `distribution.train_function.make_train_function`.
StepFunction = Callable[..., tuple[dict[str, tf.Tensor], tf.Tensor, dict[str, tf.Tensor]]]


class Split:
    """The training pairs or the held-out pairs, which each epoch passes over once, with their steps.

    Attributes:
        name: "train" or "test".
        function: Compiled function that runs steps of the dataset.
        throughput: Counter of the steps of a pass.
        since_start: Counter of the steps of all passes.
        batches: Iterator over the batches of all epochs, so that the images of the next one are prefetched.
        is_traced: Whether the first call is done, which traces the function.
        pending: Calls that the devices may still be computing, the oldest first.
        totals: Sums of all metrics over the samples of the pass, float64 scalars on the device.
    """

    def __init__(
        self,
        name: str,
        dataset: UnpairedDataset,
        function: StepFunction,
        metric_names: Sequence[str],
        throughput: Throughput,
    ) -> None:
        self.name, self.is_train = name, name == "train"
        self.dataset = dataset
        self.function = function
        self.metric_names = metric_names
        self.throughput = throughput
        self.since_start = Throughput()
        self.batches: Iterator[tuple[tf.Tensor, ...]] | None = None
        self.is_traced = False
        self.pending: collections.deque[PendingCall] = collections.deque()
        self.totals: dict[str, tf.Tensor] = {}
        self._kept: Sequence[str] = ()

    def progress(self, state: TrainState) -> PassState:
        """Return the part of a state that counts the present pass."""
        return state.train if self.is_train else state.test

    def begin_pass(self, state: TrainState) -> None:
        """Start the sums of a pass, or continue them where it was interrupted.

        Only metrics that have been summed from the beginning of the pass are kept, so that every mean covers all
        samples. The others are summed, too, because otherwise the function would be traced again in the next epoch.
        """
        names, sums = (*self.metric_names, SAMPLES), self.progress(state).sums
        self._kept = [name for name in names if name in sums] if sums else names
        self.totals = {name: tf.constant(sums.get(name, 0.0), tf.float64) for name in names}
        self.pending.clear()
        self.throughput.reset()

    def fetch_sums(self, state: TrainState) -> None:
        """Wait for the device, and write the sums that are kept into a state."""
        self.progress(state).sums = {name: float(self.totals[name]) for name in self._kept}


class Trainer:
    """Train from `state`, a position in training, until all epochs are done; an epoch passes over each split once.

    Attributes:
        callbacks: Those of every run, called before the checkpoint of an epoch is saved.
        observers: Callbacks of other programs, called afterwards, so that their errors don't cost the epoch.

    Raises:
        UserError: The position does not fit the datasets.
    """

    def __init__(
        self,
        config: Config,
        workers: Workers,
        splits: tuple[Split, Split],
        state: TrainState,
        checkpoints: CheckpointManager,
        summary: Summary,
        callbacks: Sequence[Callback] = (),
        run: RunDirectory | None = None,
    ) -> None:
        self._config = config
        self._workers = workers
        self._checkpoints = checkpoints
        self._summary = summary
        self.callbacks, self.observers = [*callbacks], list[Callback]()
        self._epochs, self._patience = config.optimization.epochs, config.evaluation.patience
        self._is_complete = False
        self.splits, self.state = splits, state
        for split in splits:
            done, size = split.progress(state).pairs_done, split.dataset.epoch_size
            if done > size:
                raise UserError(
                    f"the checkpoint has done {done} {split.name} pairs; expected at most {size}: it belongs to another"
                    " run; use another --output_dir"
                )
        self._watchdog = make_watchdog(config, workers, checkpoints)
        datasets = {split.name: split.dataset for split in splits}
        self.divergence = DivergencePolicy(
            config.optimization.max_bad_steps, datasets, checkpoints, summary, workers.strategy
        )
        self.policy = CheckpointPolicy(
            checkpoints, summary, self.divergence, workers, self._watchdog, config.run.checkpoint_minutes, run
        )
        whole_pass = splits[0].throughput
        self._throughput = Throughput(whole_pass.flops, whole_pass.peak)  # since the last log line
        self._profiler = Profiler(config.performance.profile_steps, summary.folder)
        self._plots = next((each for each in callbacks if isinstance(each, PlotCallback)), None)
        self._has_estimated = False

    @property
    def _is_done(self) -> bool:
        return self.state.is_done(self._epochs, self._patience)

    @tf.autograph.experimental.do_not_convert  # Keras 2 would convert every layer, which takes a second
    def fit(self) -> dict[str, dict[str, float]]:
        """Train; return the metrics of the last epoch by split ("train", "test") and name; none if training was done.

        Raises:
            Stopped: A signal asked to stop. A checkpoint was saved first.
            TrainingError: Training has diverged again after it went back once.
            UserError: The first checkpoint of a new run could not be written.
        """
        metrics: dict[str, dict[str, float]] = {}
        if self._is_done:
            if self.state.is_stalled(self._patience):
                logger.info(f"Training ended by --patience {self._patience}: raise or drop it to train longer")
            report_best(self.state)
            return metrics
        end = "stopped"
        with self.policy.signals, self._watchdog:
            try:
                self._begin()
                while not self._is_done:
                    try:
                        metrics = self._run_epoch()
                    except DivergenceError:
                        self._go_back()
                end = "finished"
            except Exception as error:  # the page says why training ended
                end = end if isinstance(error, Stopped) else f"failed: {first_line(error)}"
                raise
            finally:
                self._profiler.stop()
                self._write_page(end)
                self._summary.close(self._is_complete)
        return metrics

    def _begin(self) -> None:
        check_profile(self._config.performance.profile_steps, self.state, self.splits[0].dataset, self._epochs)
        if not self.state.step and not self._checkpoints.newest:
            with terminal.phase("Saving the first checkpoint", if_slow=True):
                self._checkpoints.save(self.state)  # to go back to; and a folder that can't be written to fails now
            self._watchdog.beat()
        self.policy.restart_timer()
        train = self.splits[0].throughput
        if train.peak and not hardware.has_accelerator():
            seconds, text = self._estimate(train.flops / (ASSUMED_SHARE * train.peak))
            if seconds > LONG_SECONDS:
                logger.warning(f"{text}, by a count of operations. Networks of this size are meant for a GPU")
        self._write_page("training")

    def _estimate(self, seconds_per_step: float) -> tuple[float, str]:
        """Return the seconds of the rest of the run, given the seconds of a training step, and a description.

        On a CPU, the description of a run with the objective cyclegan also proposes --preset fast, if it takes less
        than a third of the time by a count of operations.
        """
        train, test = (split.dataset for split in self.splits)
        epochs, is_on_cpu = self._epochs - self.state.epoch, not hardware.has_accelerator()
        steps = train.steps_left(self.state.train.pairs_done) + (epochs - 1) * train.steps_per_epoch
        seconds = seconds_per_step * (steps + VALIDATION * epochs * test.steps_per_epoch)
        text = f"{counted(epochs, 'epoch')} of {counted(train.epoch_size, 'pair')} ({counted(steps, 'step')} left)"
        left = f"about {duration(seconds)}" if seconds >= 60 else "less than a minute"
        text += f": {left} on {'this CPU' if is_on_cpu else 'these devices'}"
        flops, config = self.splits[0].throughput.flops, self._config
        if is_on_cpu and flops and config.objective.objective == "cyclegan" and not config.data.is_embedded:
            share = FAST_FLOPS * train.global_batch_size / flops
            if (fast := seconds * share * PRESETS["fast"]["epochs"] / epochs) < seconds / 3:
                text += f" (a new run with --preset fast: about {duration(fast)})"
        return seconds, text

    def _log_estimate(self) -> None:
        """Log how long the rest of the run takes, by the steps so far, and the size of its checkpoints, once.

        The steps are the first `ESTIMATE_STEPS`, or those of the first epoch if it is shorter and others follow.
        """
        counter, saved, pairs = self.splits[0].since_start, self._checkpoints.newest, self.splits[0].dataset.epoch_size
        is_short = self.state.train.pairs_done == pairs and self.state.epoch + 1 < self._epochs and counter.steps > 0
        is_due = counter.steps >= ESTIMATE_STEPS or is_short
        if self._has_estimated or not is_due or not self._workers.is_chief:
            return
        self._has_estimated = True
        size = sum(path.stat().st_size for path in saved.rglob("*") if path.is_file()) if saved else 0
        count = self._config.run.keep + (2 if self._config.evaluation.evaluate_every else 0)
        text = self._estimate(counter.seconds_per_step)[1]
        logger.info(f"{text}; checkpoints take up to {count * size / 1e9:.2g} GB")

    def _write_page(self, state: str) -> None:
        """Write the page of the run with the position in training."""
        train, counter = self.splits[0], self.splits[0].since_start
        is_going = counter.steps and self.state.epoch < self._epochs
        seconds = self._estimate(counter.seconds_per_step)[0] if is_going else 0.0
        progress = {
            "state": state,
            "epoch": round(self.state.epoch + self.state.train.pairs_done / train.dataset.epoch_size, 3),
            "epochs": self._epochs,
            "step": str(self.state.step),
            "left": f"about {duration(seconds)}" if seconds and state == "training" else "",
            "speed": str(counter),
        }
        self._summary.write_page(progress)
        self._next_page = time.monotonic() + PAGE_SECONDS

    def _run_epoch(self) -> dict[str, dict[str, float]]:
        """Run the remaining steps of an epoch; log and return its metrics."""
        state = self.state
        logger.info(f"Epoch {state.epoch + 1:03d}/{self._epochs:03d}")
        for split in self.splits:
            self._run_pass(split)
        metrics = {split.name: self._metrics(split) for split in self.splits}
        metrics["train"].update(rates_of_last_step(self._config.optimization, self.splits[0].dataset, state))
        metrics["train"]["epoch_seconds"] = state.train.seconds + state.test.seconds
        state.next_epoch()
        epoch = Epoch(state, state.epoch == self._epochs, metrics, self.divergence.is_sound)
        adversarial, has_cycle = self._config.objective.adversarial, hasattr(self._config.objective, "lambda_cycle")
        failures = find_silent_failures(metrics["train"], metrics["test"], adversarial, has_cycle)
        state.failing = {name: state.failing.get(name, 0) + 1 for name in failures}
        waiting = {name for name in failures if name.endswith("has won") and state.failing[name] < WON_EPOCHS}
        if state.step < UNTRAINED:
            waiting |= {name for name in failures if name.endswith("inverts")}
        warn_once(self._summary, epoch, {name: text for name, text in failures.items() if name not in waiting})
        for callback in self.callbacks:
            self._watchdog.beat()
            callback.on_epoch_end(epoch)  # the evaluation adds scores to the metrics, and may decide that training ends
        self._is_complete = epoch.is_last
        for name, values in metrics.items():
            self._summary.write_scalars(name, state.epoch, state.step, values)
        self._write_page("training")
        report_epoch(epoch, {split.name: split.metric_names for split in self.splits}, self._config.run.verbose > 1)
        self._watchdog.beat()
        run = self._config.run
        is_due = not state.epoch % run.checkpoint_every or (run.keep_every and not state.epoch % run.keep_every)
        if epoch.is_last:
            self.policy.save_final(state, epoch.best_kid)
            report_best(state, metrics["test"])
        elif epoch.is_best or is_due or self.policy.is_due():
            self.policy.save_and_obey(state, epoch.best_kid)
        for observer in self.observers:
            self._watchdog.beat()
            observer.on_epoch_end(epoch)
        return metrics

    def _run_pass(self, split: Split) -> None:
        """Run the rest of a pass; the host is at most `AHEAD` calls ahead of the devices."""
        state, dataset, progress = self.state, split.dataset, split.progress(self.state)
        if progress.pairs_done >= dataset.epoch_size:
            return
        if split.batches is None:
            split.batches = dataset.distributed(
                self._workers.strategy, state.epoch, progress.pairs_done, state.reshuffles
            )
        split.begin_pass(state)
        start = time.perf_counter()  # the time from here on counts for the next call
        with _progress_bar(split, state, self._config.run.verbose > 0) as bar:
            while progress.pairs_done < dataset.epoch_size:
                self._watchdog.beat()
                steps = dataset.call(0, state.epoch, progress.pairs_done).steps
                if split.is_train and self._profiler.should_start(state.step, steps):
                    self._inspect(split, 0)
                    began = time.perf_counter()
                    self._profiler.start(state.step)
                    start += time.perf_counter() - began
                began = time.perf_counter()
                batches = self._next_batches(split)
                waited = time.perf_counter() - began
                if not split.is_traced:
                    bar.set_postfix_str("first step")
                first = f"Running the first {'' if split.is_train else 'validation '}step"
                with terminal.phase(first, not bar.disable and not split.is_traced, if_slow=True):
                    split.pending.append(self._start_call(split, steps, batches))
                pairs = min(steps * dataset.global_batch_size, dataset.epoch_size - progress.pairs_done)
                progress.pairs_done += pairs
                state.step += steps if split.is_train else 0
                state.global_batch_size = dataset.global_batch_size
                due, ends = self._due(split), progress.pairs_done == dataset.epoch_size
                self._inspect(split, 0 if due or ends else AHEAD)
                now = time.perf_counter()
                progress.seconds += now - start
                if split.is_traced:  # else the call has no speed, because it traced the graph
                    for counter in (split.throughput, split.since_start, *[self._throughput] * split.is_train):
                        counter.add(2 * pairs, steps, now - start, waited)
                self._log_estimate()
                split.is_traced, start = True, now
                bar.set_postfix_str(str(split.throughput), refresh=False)
                bar.update(steps)
                if due or ends:
                    split.fetch_sums(state)
                    self._write_due(split, due)
                if time.monotonic() >= self._next_page:
                    self._write_page("training")
                start = time.perf_counter()

    def _next_batches(self, split: Split) -> tuple[tf.Tensor, ...]:
        """Return the batches of the next call; save a checkpoint and raise an error if an image can't be read."""
        assert split.batches is not None
        try:
            return next(split.batches)
        except tf.errors.OpError:
            failure = split.dataset.failure
            if not failure:
                raise
            if not self.policy.is_shared:  # the other workers are in the step that this one can't join
                self._inspect(split, 0)
                split.fetch_sums(self.state)
                self.policy.save(self.state, meanwhile="")
            raise TrainingError(failure) from None

    def _start_call(self, split: Split, steps: int, batches: tuple[tf.Tensor, ...]) -> PendingCall:
        """Start the steps of a call on all replicas, and add their metrics to the totals."""
        state = self.state
        arguments, requests = [batches, split.totals, tf.constant(steps)], {}
        with explain_out_of_memory():
            if split.is_train:
                rates = tf.constant(rates_of_next_call(self._config.optimization, split.dataset, state), tf.float32)
                arguments += [tf.constant(state.step), rates]
            if self.policy.is_shared:
                own = self.policy.requests()
                requests["requests"] = {name: tf.constant(value) for name, value in own.items()}
            split.totals, is_finite, metrics = split.function(*arguments, **requests)
        return PendingCall(split.name, split.progress(state).pairs_done, state.step, is_finite, metrics)

    def _inspect(self, split: Split, left: int) -> None:
        """Wait for the oldest calls until `left` are pending, and pass their outcomes to the policies."""
        while len(split.pending) > left:
            call = split.pending.popleft()
            with explain_out_of_memory():
                is_finite = call.is_finite.numpy()
            if self.policy.is_shared:
                self.policy.merge_requests({name: float(call.metrics.pop(name)[-1]) for name in REQUESTS})
            self.divergence.inspect(call, is_finite, self.state)

    def _due(self, split: Split) -> set[str]:
        """Return what is due after the last call: "checkpoint" and, in training, "profile", "log" and "preview"."""
        pairs, due = split.progress(self.state).pairs_done, {"checkpoint"} if self.policy.is_due() else set()
        if split.is_train:
            if self._profiler.should_stop(self.state.step):
                due.add("profile")
            if math.ceil(pairs / self.state.global_batch_size) % self._config.run.log_every == 0:
                due.add("log")
            if self._plots and pairs < split.dataset.epoch_size and time.monotonic() >= self._plots.next_preview:
                due.add("preview")
        return due

    def _write_due(self, split: Split, due: set[str]) -> None:
        """Write what is due after the last call, whose outcome is known; obey signals."""
        if "profile" in due:
            self._profiler.stop()
        if "log" in due:
            self._log_steps()
        if self._plots and "preview" in due:
            self._plots.preview(self.state.epoch + self.state.train.pairs_done / split.dataset.epoch_size)
            self._write_page("training")
        if self.policy.is_due():  # inspecting the outcome may have changed the answer
            self.policy.save_and_obey(self.state)

    def _log_steps(self) -> None:
        state = self.state
        sums = {name: value - state.logged_sums.get(name, 0.0) for name, value in state.train.sums.items()}
        state.logged_sums = dict(state.train.sums)
        values = {
            **means(sums),
            **rates_of_last_step(self._config.optimization, self.splits[0].dataset, state),
            **self._throughput.metrics(),
        }
        self._throughput.reset()
        epochs = state.epoch + state.train.pairs_done / self.splits[0].dataset.epoch_size
        self._summary.write_scalars("steps", round(epochs, 5), state.step, values)

    def _metrics(self, split: Split) -> dict[str, float]:
        """Return the exact means over the samples of a finished pass, with its duration and speed."""
        progress = split.progress(self.state)
        return {
            **means(progress.sums),
            "seconds": progress.seconds,
            **split.throughput.metrics(),
            "skipped_steps": float(progress.skipped_steps),
        }

    def _go_back(self) -> None:
        """Continue from the last good checkpoint."""
        self.state = self.divergence.go_back(self.state)
        for split in self.splits:
            split.batches = None
        self.policy.restart_timer()


def means(sums: Mapping[str, float]) -> dict[str, float]:
    """Return the means over the samples, given sums that include the number of samples; empty without samples."""
    samples = sums.get(SAMPLES)
    return {name: value / samples for name, value in sums.items() if name != SAMPLES} if samples else {}


def make_watchdog(config: Config, workers: Workers, checkpoints: CheckpointManager) -> Watchdog:
    """Return a new watchdog for the steps of a run, see --step_timeout."""
    prefix = f"worker {workers.index}: " if workers.count > 1 else ""
    return Watchdog(config.distribution.step_timeout, lambda: checkpoints.newest, prefix)


def _progress_bar(split: Split, state: TrainState, visible: bool) -> tqdm.tqdm:
    steps = split.dataset.steps_per_epoch
    return terminal.progress_bar(
        visible,
        total=steps,
        initial=steps - split.dataset.steps_left(split.progress(state).pairs_done),
        desc=split.name.title(),
        mininterval=0.2,
        bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
    )
