"""Compile several steps of all replicas into one TensorFlow function, and sum over the replicas in one operation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.errors import TrainingError

Scalars = dict[str, tf.Tensor]
Outcome = tuple[Scalars, tf.Tensor]  # metrics of a step over all replicas, and whether all are finite


def make_train_function(
    strategy: tf.distribute.Strategy, on_replica: Callable[..., Outcome], global_batch_size: int
) -> Callable[..., tuple[Scalars, tf.Tensor, Scalars]]:
    """Compile `run` below, which runs steps on all replicas and adds up their metrics.

    Its results stay on the first device, so that the host need not wait for a step. Requests ask all workers to save
    or to stop, see `CheckpointPolicy.requests`; they reach the other workers in the all-reduce of the metrics.

    Args:
        strategy: The strategy of the replicas.
        on_replica: Called on each replica with its shard of a batch, the number of the step, its row of `rates` and the
            requests; returns the metrics and requests, summed over the replicas, and whether all are finite.
        global_batch_size: Number of samples by which `on_replica` divides the metrics.
    """

    def replica_step(
        index: tf.Tensor, number: tf.Tensor, rates: tf.Tensor | None, requests: Scalars, *batches: tf.Tensor
    ) -> Outcome:
        return on_replica([part[index] for part in batches], number, rates, requests)

    def of_first_replica(per_replica: Any) -> tf.Tensor:
        return strategy.experimental_local_results(per_replica)[0]

    def run(
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
            rates: Learning rates and share of the training that is done, one row per step.
            requests: Scalars by which this worker sends the others its requests; they are reduced with the metrics.

        Returns:
            (totals, good, metrics): `totals` with the sums over the samples of the good steps added; whether all
            metrics of a step were finite, bool [steps]; the requests and metrics of each step over the global batch,
            float32 [steps].
        """
        names: list[str] = []

        def body(index: tf.Tensor, sums: tf.Tensor, good: tf.TensorArray, history: tf.TensorArray) -> tuple[Any, ...]:
            chosen = None if rates is None else rates[index]
            number = tf.cast(first, tf.int64) + tf.cast(index, tf.int64)
            per_replica = strategy.run(replica_step, args=(index, number, chosen, requests or {}, *batches))
            metrics, finite = tf.nest.map_structure(of_first_replica, per_replica)
            names[:] = metrics
            values = tf.stack(list(metrics.values()))
            added = tf.gather(values, tf.constant([names.index(name) for name in totals], tf.int64))
            added = tf.cast(tf.where(finite, added, 0.0), tf.float64) * global_batch_size
            return index + 1, sums + added, good.write(index, finite), history.write(index, values)

        with _on_first_device(strategy):
            sums = tf.convert_to_tensor([tf.cast(total, tf.float64) for total in totals.values()], tf.float64)
            arrays = [tf.TensorArray(kind, steps, element_shape=None) for kind in (tf.bool, tf.float32)]
            _, sums, good, history = tf.while_loop(
                lambda index, *_: index < steps, body, (tf.constant(0), sums, *arrays), parallel_iterations=1
            )
            metrics = tf.unstack(history.stack(), num=len(names), axis=1)
            totals = dict(zip(totals, tf.unstack(sums, num=len(totals))))
            return totals, good.stack(), dict(zip(names, metrics))

    return tf.function(run, autograph=False)


@contextlib.contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Turn TensorFlow's error about exhausted memory into a `TrainingError` that names the flags to change."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise TrainingError(
            "the device has not enough memory for a step: try a smaller --batch_size, --image_size or --filters"
        ) from error


def all_finite(scalars: Scalars) -> tf.Tensor:
    """Return whether all scalars are finite, a bool scalar."""
    return tf.reduce_all(tf.math.is_finite(tf.stack(list(scalars.values()))))


def _on_first_device(strategy: tf.distribute.Strategy) -> contextlib.AbstractContextManager[Any]:
    """Return a context whose operations are placed on the first device of this worker."""
    if hardware.has_tpu():
        return contextlib.nullcontext()  # the host runs the loop
    return tf.device(strategy.extended.worker_devices[0])


def reduce_dict(scalars: Mapping[str, tf.Tensor], tensors: Any = ()) -> tuple[dict[str, tf.Tensor], Any]:
    """Return the sums over the replicas of float32 scalars and of a `tf.nest` structure of float32 tensors.

    Call it on every replica. All sums take one all-reduce, a single replica takes none. They have no gradients.
    """
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return dict(scalars), tensors
    flat = [*scalars.values(), *tf.nest.flatten(tensors)]
    packed = tf.concat([tf.reshape(tensor, [-1]) for tensor in flat], axis=0)
    # `context.all_reduce` gives the sum a gradient, and for that searches the graphs of all replicas for variables,
    # once for each replica: with 3 CPU replicas a fifth of the time to trace a step, with more replicas more.
    (packed,) = context.merge_call(_sum, args=(packed,))
    parts = tf.split(packed, [tensor.shape.num_elements() for tensor in flat])
    summed = [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, flat)]
    return dict(zip(scalars, summed)), tf.nest.pack_sequence_as(tensors, summed[len(scalars) :])


def _sum(strategy: tf.distribute.Strategy, tensor: tf.Tensor) -> list[tf.Tensor]:
    return strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, [(tensor, tensor)])
