"""Compile several steps of all replicas into one TensorFlow function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional, Union

import tensorflow as tf

from cyclegan.distribution import collectives

Scalars = dict[str, tf.Tensor]


def make_train_function(
    strategy: tf.distribute.Strategy,
    step: Callable[..., tuple[Scalars, Any, Any]],
    global_batch_size: int,
    update: Optional[Callable[..., None]] = None,
) -> Callable[..., tuple[Scalars, tf.Tensor, Scalars]]:
    """Compile a function that runs steps on all replicas and adds up their metrics.

    Args:
        strategy: The strategy of the replicas.
        step: Called on each replica with its shard of a batch and, for training, the number of the step. Returns (metrics,
            gradients, kept): named scalars, this replica's share of each mean over the global batch; a structure of tensors, its
            share of the gradients; and tensors for `update`.
        global_batch_size: Number of samples by which `step` divides the metrics.
        update: For training. Called on each replica with the gradients, summed over the replicas in one all-reduce; whether all
            metrics are finite, a bool scalar; `kept`; the number of the step; and its learning rates. If a metric is not finite,
            it must not change the state of the training.

    Returns:
        A function with the signature of `_StepLoop.run`.
    """
    return tf.function(_StepLoop(strategy, step, global_batch_size, update).run, autograph=False)


class _StepLoop:
    """The loop over the steps of one call. Its results stay on the device, so that the host need not wait for a step."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        step: Callable[..., tuple[Scalars, Any, Any]],
        global_batch_size: int,
        update: Optional[Callable[..., None]],
    ) -> None:
        self.strategy = strategy
        self.step = step
        self.global_batch_size = global_batch_size
        self.update = update

    def run(
        self,
        batches: tuple[Any, ...],
        totals: Scalars,
        steps: tf.Tensor,
        first: Union[int, tf.Tensor] = 0,
        rates: Optional[tf.Tensor] = None,
        requests: Optional[Scalars] = None,
    ) -> tuple[Scalars, tf.Tensor, Scalars]:
        """Run the first `steps` of some batches.

        Args:
            batches: Per-replica tensors of a batch, with one more axis in front: the step.
            totals: Sums so far of the metrics to add up, float64, because an epoch may have 100,000 steps.
            steps: Number of steps to run, int32.
            first: Number of the first step in training.
            rates: Learning rates, one row per step.
            requests: Requests of this worker to all workers, named scalars; they are reduced with the metrics.

        Returns:
            (totals, good, metrics). `totals` with the sums over the samples of the good steps added; good is bool [steps], whether
            all metrics of a step were finite; metrics are the means of each step over the global batch, float32 [steps], and the
            requests.
        """
        names: list[str] = []

        def body(number: tf.Tensor, totals: Scalars, good: tf.TensorArray, history: tf.TensorArray) -> tuple[Any, ...]:
            index = tf.cast(first, tf.int64) + tf.cast(number, tf.int64)
            args = (number, index, requests or {}, *batches)
            metrics, gradients, kept = self.strategy.run(self._replica_step, args=args)
            metrics = collectives.reduce_dict(self.strategy, metrics)
            names[:] = metrics
            values = tf.stack(list(metrics.values()))
            finite = tf.reduce_all(tf.math.is_finite(values))
            if self.update:
                chosen = None if rates is None else rates[number]
                self.strategy.run(self.update, args=(gradients, finite, kept, index, chosen))
            totals = self._add(totals, metrics, finite)
            return number + 1, totals, good.write(number, finite), history.write(number, values)

        arrays = [tf.TensorArray(kind, steps, element_shape=None) for kind in (tf.bool, tf.float32)]
        _, totals, good, history = tf.while_loop(
            lambda number, *_: number < steps, body, (tf.constant(0), totals, *arrays), parallel_iterations=1
        )
        metrics = tf.unstack(history.stack(), num=len(names), axis=1)
        return totals, good.stack(), dict(zip(names, metrics))

    def _add(self, totals: Scalars, metrics: Scalars, finite: tf.Tensor) -> Scalars:
        """Return the totals plus the sums over the samples of a step, if the step is finite."""
        scale = self.global_batch_size
        sums = {name: total + tf.cast(metrics[name], tf.float64) * scale for name, total in totals.items()}
        return {name: tf.where(finite, sums[name], total) for name, total in totals.items()}

    def _replica_step(
        self, number: tf.Tensor, index: tf.Tensor, requests: Scalars, *batches: tf.Tensor
    ) -> tuple[Scalars, Any, Any]:
        """Run one step on one replica; return its metrics and requests, the gradients of all replicas, and `kept`."""
        batch = [part[number] for part in batches]
        metrics, gradients, kept = self.step(*batch, index) if self.update else self.step(*batch)
        metrics = {**metrics, **requests}
        if self.update and self.strategy.num_replicas_in_sync > 1:
            gradients = collectives.sum_over_replicas(gradients)
        return metrics, gradients, kept
