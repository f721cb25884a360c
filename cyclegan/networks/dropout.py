"""Dropout whose random numbers do not depend on the number of replicas or on interruptions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import tensorflow as tf

_active = threading.local()  # each replica is traced in a thread of its own


@contextlib.contextmanager
def random_stream(seed: tf.Tensor, global_batch_size: int, start: tf.Tensor | int, count: int) -> Iterator[None]:
    """Make `Dropout` layers use this random stream while this context is active in this thread.

    The random numbers of a sample are a function of the seed, the position of the sample in the global batch, and the
    number of earlier calls of dropout layers in this context. So they differ between layers and between calls of a
    network, and are the same on any number of replicas and in a resumed run.

    Args:
        seed: int32 or int64 tensor [2], different in each step.
        global_batch_size: Samples in the global batch.
        start: Position of the first sample of this replica in the global batch.
        count: Samples on this replica.
    """
    before = getattr(_active, "stream", None)
    _active.stream = _RandomStream(seed, global_batch_size, start, count)
    try:
        yield
    finally:
        _active.stream = before


class _RandomStream:
    """Generator of the random numbers of one step on one replica."""

    def __init__(self, seed: tf.Tensor, global_batch_size: int, start: tf.Tensor | int, count: int) -> None:
        self._seed = tf.convert_to_tensor(seed)
        self._global_batch_size, self._start, self._count = global_batch_size, start, count
        self._calls = 0

    def uniform(self, shape: tf.TensorShape) -> tf.Tensor:
        """Return float32 [N, ...] in [0, 1): the share of this replica in numbers for the global batch.

        N is the number of samples of this replica, or a multiple of it if several inputs of a network form one batch.
        """
        if shape[0] is None or shape[0] % self._count:
            raise ValueError(f"a batch of {shape[0]} for dropout; expected {self._count} samples or a multiple of it")
        inputs, rest = shape[0] // self._count, shape[1:]
        # int64, because TensorFlow computes int32 on the host, and the device would wait for the host.
        seed = tf.random.fold_in(self._seed, tf.constant(self._calls, tf.int64), alg="philox")
        self._calls += 1
        rows = tf.random.stateless_uniform([inputs, self._global_batch_size, *rest], seed, alg="philox")
        own = tf.slice(rows, [0, self._start, *(0 for _ in rest)], [inputs, self._count, *rest])
        return tf.reshape(own, shape)


class Dropout(tf.keras.layers.Layer):
    """Set each value to 0 with probability `rate` and divide the others by 1 - rate (Srivastava et al. 2014).

    Training needs an active `random_stream` and inputs of known shape; without `training` the layer is the identity.

    Attributes:
        rate: Share of the values to drop.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Drop values of a tensor [N, ...] in training.

        Raises:
            RuntimeError: `training` is true and no `random_stream` is active.
        """
        if not training:
            return x
        stream = getattr(_active, "stream", None)
        if stream is None:
            raise RuntimeError("Dropout with training=True outside of random_stream; call it inside of this context")
        kept = stream.uniform(x.shape) >= self.rate
        return tf.where(kept, x / tf.cast(1.0 - self.rate, x.dtype), tf.zeros_like(x))
