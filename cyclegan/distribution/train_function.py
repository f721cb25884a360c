"""Compile several steps of all replicas into one TensorFlow function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from cyclegan.distribution import collectives, hardware

Scalars = dict[str, tf.Tensor]


def make_train_function(
    strategy: tf.distribute.Strategy,
    step: Callable[..., tuple[Scalars, Any, Any]],
    global_batch_size: int,
    update: Callable[..., None] | None = None,
    make_noise: Callable[[tf.Tensor], Any] = lambda number: (),
    jit_compile: bool = False,
) -> Callable[..., tuple[Scalars, tf.Tensor, Scalars]]:
    """Compile a function that runs steps on all replicas and adds up their metrics.

    Args:
        strategy: The strategy of the replicas.
        step: Called on each replica with its shard of a batch and, for training, the number of the step and its random numbers.
            Returns (metrics, gradients, carry): named scalars, this replica's share of each mean over the global batch; a structure
            of tensors, its share of the gradients; and tensors for `update`.
        global_batch_size: Number of samples by which `step` divides the metrics.
        update: For training. Called on each replica with the gradients, summed over the replicas in one all-reduce; whether all
            metrics are finite, a bool scalar; `carry`; the number of the step; and its learning rates. If a metric is not finite,
            it must not change the state of the training.
        make_noise: For training. Called on each replica with the number of the step; returns the random numbers for `step`.
        jit_compile: Whether XLA compiles `step` and `update`: into one program, or on several replicas into one before the
            all-reduce and one after it. `make_noise` is never compiled, because XLA's random numbers are others.

    Returns:
        A function with the signature of `_TrainFunction.run`.
    """
    function = _TrainFunction(strategy, step, global_batch_size, update, make_noise, jit_compile)
    return tf.function(function.run, autograph=False)


class _TrainFunction:
    """The loop over the steps of one call. Its results stay on the first device, so that the host need not wait for a step."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        step: Callable[..., tuple[Scalars, Any, Any]],
        global_batch_size: int,
        update: Callable[..., None] | None,
        make_noise: Callable[[tf.Tensor], Any],
        jit_compile: bool,
    ) -> None:
        self.strategy = strategy
        self.step = step
        self.global_batch_size = global_batch_size
        self.update = update
        self.make_noise = make_noise
        self.jit_compile = jit_compile

    def run(
        self,
        batches: tuple[Any, ...],
        totals: Scalars,
        steps: tf.Tensor,
        first: int | tf.Tensor = 0,
        rates: tf.Tensor | None = None,
        requests: Scalars | None = None,
    ) -> tuple[Scalars, tf.Tensor, Scalars]:
        """Run the first `steps` of some batches.

        Args:
            batches: Per-replica tensors of a batch, with one more axis in front: the step.
            totals: Sums so far of the metrics to add up, float64, because an epoch may have 100,000 steps.
            steps: Number of steps to run, int32.
            first: Number of the first step in training.
            rates: Learning rates, one row per step.
            requests: Scalars by which this worker sends the others its requests; they are reduced with the metrics.

        Returns:
            (totals, good, metrics). `totals` with the sums over the samples of the good steps added; good is bool [steps], whether
            all metrics of a step were finite; metrics are those of each step over the global batch, float32 [steps], with the
            requests among them.
        """
        names: list[str] = []

        def body(index: tf.Tensor, sums: tf.Tensor, good: tf.TensorArray, history: tf.TensorArray) -> tuple[Any, ...]:
            chosen = None if rates is None else rates[index]
            number = tf.cast(first, tf.int64) + tf.cast(index, tf.int64)
            per_replica = self.strategy.run(self._replica_step, args=(index, number, chosen, requests or {}, *batches))
            metrics, finite = tf.nest.map_structure(self._of_first_replica, per_replica)
            names[:] = metrics
            values = tf.stack(list(metrics.values()))
            added = tf.gather(values, tf.constant([names.index(name) for name in totals], tf.int64))
            added = tf.cast(tf.where(finite, added, 0.0), tf.float64) * self.global_batch_size
            return index + 1, sums + added, good.write(index, finite), history.write(index, values)

        with self._first_device():
            sums = tf.convert_to_tensor([tf.cast(total, tf.float64) for total in totals.values()], tf.float64)
            arrays = [tf.TensorArray(kind, steps, element_shape=None) for kind in (tf.bool, tf.float32)]
            _, sums, good, history = tf.while_loop(
                lambda index, *_: index < steps, body, (tf.constant(0), sums, *arrays), parallel_iterations=1
            )
            metrics = tf.unstack(history.stack(), num=len(names), axis=1)
            totals = dict(zip(totals, tf.unstack(sums, num=len(totals))))
            return totals, good.stack(), dict(zip(names, metrics))

    def _first_device(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context whose operations are placed on the first device of this worker."""
        if hardware.has_tpu():
            return contextlib.nullcontext()  # the host runs the loop
        return tf.device(self.strategy.extended.worker_devices[0])

    def _of_first_replica(self, per_replica: Any) -> tf.Tensor:
        return self.strategy.experimental_local_results(per_replica)[0]

    def _replica_step(
        self, index: tf.Tensor, number: tf.Tensor, rates: tf.Tensor | None, requests: Scalars, *batches: tf.Tensor
    ) -> tuple[Scalars, tf.Tensor]:
        """Run one step on one replica; return the metrics and requests of all replicas, and whether they are finite."""
        batch = [part[index] for part in batches]
        if not self.update:
            metrics, *_ = self.step(*batch)
            metrics, _ = collectives.reduce_dict({**metrics, **requests})
            return metrics, _all_finite(metrics)
        noise = self.make_noise(number)
        if self.strategy.num_replicas_in_sync == 1:
            return self._compiled(self._train_alone)(batch, number, noise, rates, requests)
        metrics, gradients, carry = self._compiled(self.step)(*batch, number, noise)
        metrics, gradients = collectives.reduce_dict({**metrics, **requests}, gradients)
        return metrics, self._compiled(self._finish)(metrics, gradients, carry, number, rates)

    def _compiled(self, function: Callable) -> Callable:
        return tf.function(function, autograph=False, jit_compile=True) if self.jit_compile else function

    def _train_alone(
        self, batch: list[tf.Tensor], number: tf.Tensor, noise: Any, rates: tf.Tensor | None, requests: Scalars
    ) -> tuple[Scalars, tf.Tensor]:
        metrics, gradients, carry = self.step(*batch, number, noise)
        metrics = {**metrics, **requests}
        return metrics, self._finish(metrics, gradients, carry, number, rates)

    def _finish(
        self, metrics: Scalars, gradients: Any, carry: Any, number: tf.Tensor, rates: tf.Tensor | None
    ) -> tf.Tensor:
        """Update this replica; return whether all metrics are finite."""
        assert self.update is not None
        finite = _all_finite(metrics)
        self.update(gradients, finite, carry, number, rates)
        return finite


def _all_finite(metrics: Scalars) -> tf.Tensor:
    return tf.reduce_all(tf.math.is_finite(tf.stack(list(metrics.values()))))
