"""Optimizations of training that `benchmark.py` can switch off."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import tensorflow as tf

from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution import collectives
from cyclegan.networks import compat
from cyclegan.networks import convolution as convolution_module
from cyclegan.networks.instance_normalization import InstanceNormalization
from cyclegan.networks.network_set import NetworkSet
from cyclegan.training import gan, in_flight
from cyclegan.training.optimizers import unpack

_normalize = InstanceNormalization.call


class KerasAdam(tf.Module):
    """Keras's Adam, with the interface of `optimizers.Adam`."""

    def __init__(self, variables: Sequence[tf.Variable], beta_1: float, beta_2: float, epsilon: float) -> None:
        super().__init__()
        self.adam = tf.keras.optimizers.Adam(2e-4, beta_1, beta_2, epsilon)
        self.adam.build(variables)

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        variables: Sequence[tf.Variable],
        learning_rate: tf.Tensor,
        finite: tf.Tensor,
    ) -> None:
        """Update the variables, even if the step was not finite, and with a constant learning rate."""
        # The gradients are summed over the replicas already.
        summed = {} if compat.KERAS_MAJOR > 2 else {"skip_gradients_aggregation": True}
        self.adam.apply_gradients(zip(unpack(gradients, variables), variables), **summed)


def _apply_one_by_one(
    self: NetworkSet, network: tf.keras.Model, a: tf.Tensor, b: tf.Tensor, training: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    return self.apply(network, a, training), self.apply(network, b, training)


def _reduce_one_by_one(scalars: Mapping[str, tf.Tensor], tensors: Any = ()) -> tuple[dict[str, tf.Tensor], Any]:
    context = tf.distribute.get_replica_context()
    return tf.nest.map_structure(
        lambda tensor: context.all_reduce(tf.distribute.ReduceOp.SUM, tensor), (dict(scalars), tensors)
    )


def _normalize_as_in_inference(self: InstanceNormalization, x: tf.Tensor, training: bool = False) -> tf.Tensor:
    return _normalize(self, x)


def _read_when_due(
    self: UnpairedDataset, strategy: tf.distribute.Strategy, epoch: int = 0, position: int = 0, reshuffles: int = 0
) -> Iterator[tuple[tf.Tensor, ...]]:
    for number in itertools.count():
        yield tuple(map(tf.constant, self.batches(*self.call(number, epoch, position), reshuffles)))


STEP: dict[str, Callable[[], contextlib.AbstractContextManager]] = {
    "few": lambda: mock.patch.object(convolution_module, "FEW_CHANNELS", 0),
    "norm": lambda: mock.patch.object(InstanceNormalization, "call", _normalize_as_in_inference),
    "both": lambda: mock.patch.object(NetworkSet, "apply_to_two", _apply_one_by_one),
    "adam": lambda: mock.patch.object(gan, "Adam", KerasAdam),
    "packed": lambda: mock.patch.object(collectives, "reduce_dict", _reduce_one_by_one),
}
FEEDING: dict[str, Callable[[], contextlib.AbstractContextManager]] = {
    "ahead": lambda: mock.patch.object(in_flight, "AHEAD", 0),
    "prefetch": lambda: mock.patch.object(UnpairedDataset, "distributed", _read_when_due),
}


def without(name: str) -> contextlib.AbstractContextManager:
    """Return a context in which the package trains without an optimization; an empty name leaves all on.

    Optimizations of the step, which have to be off while the step is made:

    - few: convolutions to few channels in blocks, see `convolution.FEW_CHANNELS`
    - norm: one operation for the normalization of a sample; without it, training normalizes like the layer of TensorFlow Addons
    - both: two inputs of a network as one batch
    - adam: one operation per variable for Adam
    - packed: one reduction for all gradients, which matters with several replicas

    Optimizations of feeding the step:

    - ahead: the host reads the metrics of a call two calls later
    - prefetch: images are read before they are due; without it, there can be only one replica
    """
    return {**STEP, **FEEDING}[name]() if name else contextlib.nullcontext()
