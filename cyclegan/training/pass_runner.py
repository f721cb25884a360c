"""Runner of a pass over the training pairs or the held-out pairs."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Sequence

import tensorflow as tf
import tqdm

from cyclegan import terminal
from cyclegan.distribution.workers import Watchdog
from cyclegan.errors import TrainingError
from cyclegan.run.throughput import Throughput
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks.base import Call, Callback
from cyclegan.training.checkpoint_policy import REQUESTS, CheckpointPolicy
from cyclegan.training.clock import CallClock
from cyclegan.training.divergence import DivergencePolicy
from cyclegan.training.in_flight import InFlightCalls, PendingCall
from cyclegan.training.metric_totals import MetricTotals
from cyclegan.training.out_of_memory import explain_out_of_memory
from cyclegan.training.schedule import StepLearningRates
from cyclegan.training.splits import Split


@dataclasses.dataclass(frozen=True)
class PassRunner:
    """Run the remaining steps of a pass.

    Attributes:
        strategy: Strategy that distributes the batches.
        checkpoint_policy: Policy whose requests the workers share in each step.
        divergence: Policy that inspects the outcome of each step.
        callbacks: Objects that react to the calls, in this order.
        learning_rates: Learning rates of the training steps.
        throughput: Counter of the training steps, besides the counters of the passes.
        watchdog: Watchdog, which ends the process if the steps are stuck.
        show_bars: Whether to show progress bars.
    """

    strategy: tf.distribute.Strategy
    checkpoint_policy: CheckpointPolicy
    divergence: DivergencePolicy
    callbacks: Sequence[Callback]
    learning_rates: StepLearningRates
    throughput: Throughput
    watchdog: Watchdog
    show_bars: bool

    def run(self, split: Split, state: TrainState) -> None:
        """Run the calls of a pass from a position to the end of the pass, and move the position.

        Raises:
            DivergenceError: Too many steps in a row were not finite.
            Stopped: A signal asked to stop.
            TrainingError: An image can't be read any more, or the devices have not enough memory.
        """
        progress, dataset = split.progress(state), split.dataset
        if progress.pairs_done >= dataset.epoch_size:
            return
        if split.batches is None:
            split.batches = dataset.distributed(self.strategy, state.epoch, progress.pairs_done, state.reshuffles)
        totals = MetricTotals(split.metric_names, progress.sums)
        in_flight = InFlightCalls(functools.partial(self._inspect, state))
        split.throughput.reset()
        clock = CallClock()
        with _progress_bar(split, state, self.show_bars) as bar:
            while progress.pairs_done < dataset.epoch_size:
                self.watchdog.beat()
                call = Call(split.name, dataset.call(0, state.epoch, progress.pairs_done).steps, state)
                self._begin_call(call, in_flight, clock)
                with clock.waiting():
                    batches = self._next_batches(split, state, totals, in_flight)
                if not split.is_traced:
                    bar.set_postfix_str("first step")
                with terminal.phase("Running the first step", self.show_bars and not split.is_traced, if_slow=True):
                    in_flight.add(self._start_call(split, call, batches, totals))
                pairs = _advance(split, call)
                due = [callback.is_due_after(call) for callback in self.callbacks]
                outcome_needed = any(due) or progress.pairs_done == dataset.epoch_size
                in_flight.inspect_all() if outcome_needed else in_flight.inspect_old()
                self._measure(split, call, pairs, clock)
                bar.set_postfix_str(str(split.throughput), refresh=False)
                bar.update(call.steps)
                if outcome_needed:
                    progress.sums = totals.to_host()
                    self._end_call(call)
                    clock.restart()

    def _begin_call(self, call: Call, in_flight: InFlightCalls, clock: CallClock) -> None:
        due = [callback for callback in self.callbacks if callback.is_due_before(call)]
        if due:
            in_flight.inspect_all()
            with clock.paused():
                for callback in due:
                    callback.on_call_begin(call)

    def _end_call(self, call: Call) -> None:
        for callback in self.callbacks:
            if callback.is_due_after(call):  # inspecting the outcome may have changed the answer
                callback.on_call_end(call)

    def _next_batches(
        self, split: Split, state: TrainState, totals: MetricTotals, in_flight: InFlightCalls
    ) -> tuple[tf.Tensor, ...]:
        """Return the batches of the next call.

        Raises:
            TrainingError: An image can't be read. A checkpoint was saved, unless there are several workers.
        """
        assert split.batches is not None
        try:
            return next(split.batches)
        except tf.errors.OpError:
            failure = split.dataset.failure
            if not failure:
                raise
            if not self.checkpoint_policy.is_shared:  # the other workers are in the step that this one can't join
                in_flight.inspect_all()
                split.progress(state).sums = totals.to_host()
                self.checkpoint_policy.save(state, meanwhile="Training stops")
            raise TrainingError(failure) from None

    def _start_call(
        self, split: Split, call: Call, batches: tuple[tf.Tensor, ...], totals: MetricTotals
    ) -> PendingCall:
        """Start the steps of a call on all replicas, and add their metrics to the totals."""
        state = call.state
        arguments = [batches, totals.tensors, tf.constant(call.steps)]
        requests = {}
        with explain_out_of_memory():
            if split.is_train:
                rates = tf.constant(self.learning_rates.of_next_call(state), tf.float32)
                arguments += [tf.constant(state.step), rates]
            if self.checkpoint_policy.is_shared:
                own = self.checkpoint_policy.requests()
                requests["requests"] = {name: tf.constant(value) for name, value in own.items()}
            totals.tensors, is_finite, metrics = split.function(*arguments, **requests)
        return PendingCall(split.name, split.progress(state).pairs_done, state.step, is_finite, metrics)

    def _inspect(self, state: TrainState, call: PendingCall) -> None:
        """Wait for the outcome of a call, and pass it to the policies."""
        with explain_out_of_memory():
            is_finite = call.is_finite.numpy()
        if self.checkpoint_policy.is_shared:
            self.checkpoint_policy.merge_requests({name: float(call.metrics.pop(name)[-1]) for name in REQUESTS})
        self.divergence.inspect(call, is_finite, state)

    def _measure(self, split: Split, call: Call, pairs: int, clock: CallClock) -> None:
        """Count the steps and the time of a call; the first call of a function does not count, as it traces the graph."""
        seconds = clock.lap()
        split.progress(call.state).seconds += seconds
        if split.is_traced:
            split.throughput.add(2 * pairs, call.steps, seconds, clock.waited)
            if split.is_train:
                self.throughput.add(2 * pairs, call.steps, seconds, clock.waited)
        split.is_traced = True


def _advance(split: Split, call: Call) -> int:
    """Move the position past a call; return the pairs of the call."""
    state, progress, batch = call.state, split.progress(call.state), split.dataset.global_batch_size
    pairs = min(call.steps * batch, split.dataset.epoch_size - progress.pairs_done)
    progress.pairs_done += pairs
    state.step += call.steps if split.is_train else 0
    state.global_batch_size = batch
    return pairs


def _progress_bar(split: Split, state: TrainState, visible: bool) -> tqdm.tqdm:
    steps = split.dataset.steps_per_epoch
    return tqdm.tqdm(
        total=steps,
        initial=steps - split.dataset.steps_left(split.progress(state).pairs_done),
        desc=split.name.title(),
        disable=not visible,
        mininterval=0.2 if sys.stderr.isatty() else 30,  # a log file gets a line every half minute
        bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
    )
