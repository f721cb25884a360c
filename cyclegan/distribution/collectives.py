"""Sum tensors over the replicas in one collective operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def reduce_dict(scalars: Mapping[str, tf.Tensor], tensors: Any = ()) -> tuple[dict[str, tf.Tensor], Any]:
    """Sum named scalars and further tensors over the replicas in one all-reduce; every replica gets the sums.

    For functions that `tf.distribute.Strategy.run` calls. A single replica needs no operation.

    Args:
        scalars: Scalars of this replica by name, float32. The mapping is not changed.
        tensors: float32 tensors of this replica in lists, tuples and dicts, as `tf.nest` has them.

    Returns:
        (scalars, tensors): a new dict and a new structure with the sums.
    """
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return dict(scalars), tensors
    flat = [*scalars.values(), *tf.nest.flatten(tensors)]
    packed = tf.concat([tf.reshape(tensor, [-1]) for tensor in flat], axis=0)
    packed = context.all_reduce(tf.distribute.ReduceOp.SUM, packed)
    parts = tf.split(packed, [tensor.shape.num_elements() for tensor in flat])
    summed = [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, flat)]
    return dict(zip(scalars, summed)), tf.nest.pack_sequence_as(tensors, summed[len(scalars) :])
