"""Random numbers of a training step."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

from cyclegan.lazy_tensorflow import tf

# Purposes of random numbers, each with the first of its numbers: two image pools, the augmentation of two real and two
# fake images, the interpolation between them for two penalties, dropout, the patches of up to five feature maps, flips.
POOL, AUGMENTATION, INTERPOLATION, DROPOUT, PATCHES, FLIP = 0, 2, 6, 8, 9, 14
SEEDS_PER_STEP = 9  # purposes 0 to 8 share a random stream, as do 9 to 17
STREAM = 2**32  # larger than any seed

Noise = Mapping[int, "tf.Tensor"]  # random numbers of a step on one replica, one row per sample, by purpose


@dataclasses.dataclass(frozen=True)
class StepRandomness:
    """Random numbers of one step on one replica.

    The numbers of a sample are a function of the seed, the step and the sample's position in the global batch. So they
    are the same on any number of replicas and in a resumed run.

    Attributes:
        seed: Seed of the run.
        step: Number of the step, an int64 scalar.
        global_batch_size: Samples on all replicas.
        shard_size: Samples on this replica.
    """

    seed: int
    step: tf.Tensor
    global_batch_size: int
    shard_size: int

    def seed_of(self, purpose: int) -> tf.Tensor:
        """Return the seed of this step for a purpose, int64 [2]."""
        stream, number = divmod(purpose, SEEDS_PER_STEP)
        return tf.stack([tf.constant(self.seed + stream * STREAM, tf.int64), SEEDS_PER_STEP * self.step + number])

    def uniform(self, purpose: int, columns: int) -> tf.Tensor:
        """Return float32 [global batch, columns], uniform in [0, 1) and the same on all replicas."""
        return tf.random.stateless_uniform([self.global_batch_size, columns], self.seed_of(purpose), alg="philox")

    def subsets(self, purpose: int, size: int, count: int) -> tf.Tensor:
        """Return distinct random numbers below `size` for each sample of this replica: int64 [N, min(count, size)]."""
        numbers = self.shard(self.uniform(purpose, size))
        return tf.cast(tf.math.top_k(numbers, min(count, size), sorted=False)[1], tf.int64)

    def shard(self, rows: tf.Tensor) -> tf.Tensor:
        """Return the rows of this replica out of the rows of the global batch."""
        start = self._start()
        return rows[start : start + self.shard_size]

    def dropout(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which `Dropout` layers use the random stream of this step."""
        from cyclegan.networks.layers import random_stream  # which imports TensorFlow

        return random_stream(self.seed_of(DROPOUT), self.global_batch_size, self._start(), self.shard_size)

    def _start(self) -> tf.Tensor:
        """Return the position of this replica's first sample in the global batch."""
        return tf.distribute.get_replica_context().replica_id_in_sync_group * self.shard_size
