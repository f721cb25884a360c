"""Reduce tensors over the replicas, each in one collective operation."""

from __future__ import annotations

from collections.abc import Mapping
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
