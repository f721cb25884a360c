"""What makes the training step fast, to be left out one at a time: for `benchmark.py`."""

import contextlib
from unittest import mock

import tensorflow as tf

from cyclegan import distribute, gan, layers


class KerasAdam(tf.Module):
    """Keras's Adam, as `optimizers.Adam` is called."""

    def __init__(self, variables, beta_1, beta_2):
        super().__init__()
        self.adam = tf.keras.optimizers.Adam(2e-4, beta_1, beta_2)
        self.adam.build(variables)

    def apply(self, gradients, variables, rate, good):
        self.adam.apply_gradients(zip(gradients, variables))


def _one_by_one(self, network, a, b, training=True):
    return network(a, training=training), network(b, training=training)


def _reduced_one_by_one(tensors):
    context = tf.distribute.get_replica_context()
    return tf.nest.map_structure(lambda tensor: context.all_reduce(tf.distribute.ReduceOp.SUM, tensor), tensors)


PATCHES = {
    "few": lambda: mock.patch.object(layers, "FEW", 0),
    "both": lambda: mock.patch.object(gan.CycleGAN, "_both", _one_by_one),
    "adam": lambda: mock.patch.object(gan, "Adam", KerasAdam),
    "packed": lambda: mock.patch.object(distribute, "_sum_over_replicas", _reduced_one_by_one),
}


def without(name):
    """Within it the package makes steps without a lever; `None` leaves all in.

    few: convolutions to few channels by blocks, see `layers.convolve_to_few`. both: two inputs of a network as one batch. adam:
    Adam as one operation per variable. packed: one reduction for all gradients, which matters with several replicas.
    """
    return PATCHES[name]() if name else contextlib.nullcontext()
