"""What makes training fast, to be left out one at a time: for `benchmark.py`."""

import contextlib
import itertools
from unittest import mock

import tensorflow as tf

from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution import collectives
from cyclegan.networks import compat, instance_normalization
from cyclegan.networks import convolution as convolution_module
from cyclegan.training import gan, in_flight
from cyclegan.training.network_set import NetworkSet


class KerasAdam(tf.Module):
    """Keras's Adam, as `optimizers.Adam` is called."""

    def __init__(self, variables, beta_1, beta_2):
        super().__init__()
        self.adam = tf.keras.optimizers.Adam(2e-4, beta_1, beta_2)
        self.adam.build(variables)

    def apply(self, gradients, variables, rate, good):
        summed = {} if compat.KERAS_MAJOR > 2 else {"skip_gradients_aggregation": True}  # over the replicas, already
        self.adam.apply_gradients(zip(gradients, variables), **summed)


def _one_by_one(self, network, a, b, training):
    return network(a, training=training), network(b, training=training)


def _reduced_one_by_one(tensors):
    context = tf.distribute.get_replica_context()
    return tf.nest.map_structure(lambda tensor: context.all_reduce(tf.distribute.ReduceOp.SUM, tensor), tensors)


def _read_when_due(self, strategy, epoch=0, position=0, reshuffles=0):
    for number in itertools.count():
        yield tuple(map(tf.constant, self.batches(*self.call(number, epoch, position), reshuffles)))


STEP = {
    "few": lambda: mock.patch.object(convolution_module, "FEW_CHANNELS", 0),
    "norm": lambda: mock.patch.object(instance_normalization, "LARGE_SAMPLE", float("inf")),
    "both": lambda: mock.patch.object(NetworkSet, "apply_to_two", _one_by_one),
    "adam": lambda: mock.patch.object(gan, "Adam", KerasAdam),
    "packed": lambda: mock.patch.object(collectives, "sum_over_replicas", _reduced_one_by_one),
}
FEEDING = {
    "ahead": lambda: mock.patch.object(in_flight, "AHEAD", 0),
    "prefetch": lambda: mock.patch.object(UnpairedDataset, "distributed", _read_when_due),
}


def without(name):
    """Within it the package trains without a lever; an empty name leaves all in.

    Of the step, while it is made: few: convolutions to few channels by blocks, see `convolution.FEW_CHANNELS`. norm:
    large samples normalized by one operation each, see `instance_normalization.LARGE_SAMPLE`. both: two inputs of a
    network as one batch. adam: Adam as one operation per variable. packed: one reduction for all gradients, which
    matters with several replicas. Of feeding it: ahead: the host looks at the figures of a call two calls later.
    prefetch: pictures are read before they are due; without it there can be one replica only.
    """
    return {**STEP, **FEEDING}[name]() if name else contextlib.nullcontext()
