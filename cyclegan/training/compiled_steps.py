"""Compiled training and test steps of a `GAN` on all replicas."""

from __future__ import annotations

import functools
from typing import Any, Callable

import tensorflow as tf

from cyclegan.distribution.train_function import make_train_function
from cyclegan.training.gan import GAN
from cyclegan.training.step import Carry, Gradients, Metrics, make_noise, test_step, train_step
from cyclegan.training.update import update


def compile_train_step(strategy: tf.distribute.Strategy, gan: GAN, xla: bool = False) -> Callable:
    """Return the train function: steps on all replicas, with an update after each; see `make_train_function`.

    Args:
        strategy: The strategy of the replicas.
        gan: The networks and all other state.
        xla: Whether XLA compiles the steps.
    """
    apply = functools.partial(update, gan)
    shard_size = gan.global_batch_size // strategy.num_replicas_in_sync

    def step(x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor, *others: Any) -> tuple[Metrics, Gradients, Carry]:
        *is_pair, number, noise = others  # `is_pair` only in batches with partners
        return train_step(gan, x, y, weight, number, noise, *is_pair)

    noise = functools.partial(make_noise, gan, shard_size=shard_size)
    return make_train_function(strategy, step, gan.global_batch_size, apply, noise, xla)


def compile_test_step(strategy: tf.distribute.Strategy, gan: GAN) -> Callable:
    """Return the function of test steps on all replicas; see `make_train_function`."""
    return make_train_function(strategy, functools.partial(test_step, gan), gan.global_batch_size)
