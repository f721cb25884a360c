"""Reduce and gather tensors over the replicas, each in one collective operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf

Structure = TypeVar("Structure")  # tensors in lists, tuples and dicts, as `tf.nest` has them


def reduce_dict(strategy: tf.distribute.Strategy, per_replica: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """Sum named scalars over the replicas in one reduction; return them as a new dict.

    Args:
        strategy: The strategy of the replicas.
        per_replica: Per-replica scalars by name, all of one type. The mapping is not changed.
    """
    packed = strategy.run(lambda values: tf.stack(list(values.values())), args=(dict(per_replica),))
    summed = strategy.reduce(tf.distribute.ReduceOp.SUM, packed, axis=None)
    return dict(zip(per_replica, tf.unstack(summed)))


def sum_over_replicas(tensors: Structure) -> Structure:
    """Sum each tensor of a structure over the replicas in one all-reduce; every replica gets the float32 sums.

    For functions that `tf.distribute.Strategy.run` calls.
    """
    flat = tf.nest.flatten(tensors)
    packed = tf.concat([tf.reshape(tensor, [-1]) for tensor in flat], axis=0)
    packed = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, packed)
    parts = tf.split(packed, [tensor.shape.num_elements() for tensor in flat])
    summed = [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, flat)]
    return tf.nest.pack_sequence_as(tensors, summed)


def all_gather(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the rows of all replicas, in the order of the replicas; this takes one all-reduce.

    For functions that `tf.distribute.Strategy.run` calls. Each replica pads its rows with zeros, so that the sum has all rows.
    TensorFlow's own all-gather first gathers the numbers of rows, and makes the host wait for them.

    Args:
        tensors: float32 tensors [N, ...], with the same N on all replicas.

    Returns:
        Tensors [replicas * N, ...].
    """
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if replicas == 1:
        return list(tensors)
    count = tensors[0].shape[0]
    packed = tf.concat([tf.reshape(tensor, [count, -1]) for tensor in tensors], axis=1)
    own = tf.one_hot(context.replica_id_in_sync_group, replicas, on_value=True, off_value=False)
    packed = tf.where(own[:, tf.newaxis, tf.newaxis], packed, 0.0)  # [replicas, N, length of a row]
    packed = context.all_reduce(tf.distribute.ReduceOp.SUM, packed)
    packed = tf.reshape(packed, [replicas * count, -1])
    parts = tf.split(packed, [tensor.shape.num_elements() // count for tensor in tensors], axis=1)
    return [tf.reshape(part, [replicas * count, *tensor.shape[1:]]) for part, tensor in zip(parts, tensors)]
