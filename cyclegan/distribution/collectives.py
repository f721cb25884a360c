"""Chooses the strategy; sums what the replicas return."""

import tensorflow as tf


def reduce_dict(strategy, per_replica):
    """The sum over the replicas of each value, in one reduction. A new dict of scalars; the argument is not changed.

    All values are of one type.
    """
    packed = strategy.run(lambda values: tf.stack(list(values.values())), args=(dict(per_replica),))
    summed = strategy.reduce(tf.distribute.ReduceOp.SUM, packed, axis=None)
    return dict(zip(per_replica, tf.unstack(summed)))


def make_train_function(strategy, step, global_batch_size, update=None):
    """The compiled function that runs steps on all replicas, several in one call, and adds up what they return.

    Args:
        step: called on each replica with its share of a batch and, for training, the number of the step; returns (figures,
            gradients, kept): a dict of scalars, its share of each mean over the global batch; a structure of tensors, its share
            of the gradients; and what it wants `update` to have as it is.
        global_batch_size: what the figures have been divided by.
        update: for training. Called on each replica with the gradients, summed over the replicas in one reduction; with a bool
            scalar, whether every figure is finite: if not, it must change nothing that is trained; with what was kept; and with
            the number of the step and its learning rates.

    Returns:
        f(batches, totals, steps, first=0, rates=None, wishes=None) -> (totals, good, figures): does the first `steps` of the
        batches, which have one more axis in front than a batch, as have the learning rates. `first` is the number of the first
        step. `totals` is a dict of those figures that are wanted, float64 (an epoch may have 100,000 steps), with the sums over the
        samples of the good steps added; good is bool [steps], whether each was; figures are those of each step, reduced: a dict of
        float32 [steps]. All stay on the device, so that the host need not wait for a step. `wishes`, a dict of scalars, are what
        this worker gives for the other workers to see: they are reduced with the figures, and come back among them.
    """

    def share(number, index, wishes, *batches):
        batch = [part[number] for part in batches]
        figures, gradients, kept = step(*batch, index) if update else step(*batch)
        figures = {**figures, **wishes}
        if update and strategy.num_replicas_in_sync > 1:
            gradients = _sum_over_replicas(gradients)
        return figures, gradients, kept

    @tf.function(autograph=False)
    def run(batches, totals, steps, first=0, rates=None, wishes=None):
        names = []

        def one(number, totals, good, history):
            index = tf.cast(first, tf.int64) + tf.cast(number, tf.int64)
            figures, gradients, kept = strategy.run(share, args=(number, index, wishes or {}, *batches))
            figures = reduce_dict(strategy, figures)
            sums = {key: total + tf.cast(figures[key], tf.float64) * global_batch_size for key, total in totals.items()}
            finite = tf.reduce_all(tf.math.is_finite(tf.stack(list(figures.values()))))
            if update:
                chosen = None if rates is None else rates[number]
                strategy.run(update, args=(gradients, finite, kept, index, chosen))
            names[:] = figures
            return (
                number + 1,
                {key: tf.where(finite, sums[key], total) for key, total in totals.items()},
                good.write(number, finite),
                history.write(number, tf.stack(list(figures.values()))),
            )

        arrays = [tf.TensorArray(kind, steps, element_shape=None) for kind in (tf.bool, tf.float32)]
        _, totals, good, history = tf.while_loop(
            lambda number, *_: number < steps, one, (tf.constant(0), totals, *arrays), parallel_iterations=1
        )
        figures = tf.unstack(history.stack(), num=len(names), axis=1)
        return totals, good.stack(), dict(zip(names, figures))

    return run


def gather(tensors):
    """The rows of all replicas, in their order, of each of some float32 tensors [N, ...], on every replica, in one reduction.

    For `tf.distribute.Strategy.run`; all replicas have as many rows. Each puts its rows among zeros in their place, and these are
    summed: `all_gather` first gathers how many rows there are, and the host waits for that before it goes on.
    """
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if replicas == 1:
        return list(tensors)
    count = tensors[0].shape[0]
    packed = tf.concat([tf.reshape(tensor, [count, -1]) for tensor in tensors], axis=1)
    own = tf.one_hot(context.replica_id_in_sync_group, replicas, on_value=True, off_value=False)
    packed = tf.where(own[:, tf.newaxis, tf.newaxis], packed, 0.0)  # [replicas, N, numbers of a row]
    packed = context.all_reduce(tf.distribute.ReduceOp.SUM, packed)
    packed = tf.reshape(packed, [replicas * count, -1])
    parts = tf.split(packed, [tensor.shape.num_elements() // count for tensor in tensors], axis=1)
    return [tf.reshape(part, [replicas * count, *tensor.shape[1:]]) for part, tensor in zip(parts, tensors)]


def _sum_over_replicas(tensors):
    """The sum over the replicas of each of a structure's float32 tensors, on every replica, in one reduction."""
    flat = tf.nest.flatten(tensors)
    packed = tf.concat([tf.reshape(tensor, [-1]) for tensor in flat], axis=0)
    packed = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, packed)
    parts = tf.split(packed, [tensor.shape.num_elements() for tensor in flat])
    summed = [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, flat)]
    return tf.nest.pack_sequence_as(tensors, summed)
