"""The image pool: earlier translations that discriminators learn from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cyclegan.errors import UserError
from cyclegan.run.checkpoints import ShardedState


class PoolUpdate(NamedTuple):
    """Change of a replica's slots of an image pool."""

    rows: tf.Tensor  # of `ImagePool.images` that change, one for each slot, int64 [N]
    images: tf.Tensor  # new images of these rows, float32 [N, H, W, C]
    counts: tf.Tensor  # new number of images in each slot, int64 [N]


class ImagePool(ShardedState):
    """Earlier translations to a domain; in half of the cases, a discriminator sees one of them instead of a new one.

    Shrivastava et al. 2017, section 2.3, as in pytorch-CycleGAN-and-pix2pix: until the pool is full, a new image is
    stored and shown. After that, with probability 1/2, it replaces a stored image, which is shown instead; otherwise it
    is shown itself.

    The pool is divided into slots, one for each sample of the global batch, which work like pools of their own. A
    replica holds the slots of its samples, so replicas need not communicate, and show the same images however many
    replicas share the batch.

    Create it in the scope of the strategy.

    Attributes:
        slots: Slots of all replicas: samples of the global batch.
        capacity: Number of images that a slot can hold.
        images: Images of this replica's slots, one slot after the other, float32 [N * capacity, H, W, C].
        counts: Number of images in each of this replica's slots so far, int64 [N].
    """

    def __init__(self, size: int, global_batch_size: int, shape: tuple[int, int, int]) -> None:
        """Create an empty pool of `size` images, rounded up to a multiple of the global batch.

        Raises:
            UserError: The device has not enough memory.
        """
        super().__init__()
        self._strategy = tf.distribute.get_strategy()
        self.slots, self.capacity = global_batch_size, -(-size // global_batch_size)
        slots_here = global_batch_size // self._strategy.num_replicas_in_sync
        images = [slots_here * self.capacity, *shape]
        try:
            self.images = tf.Variable(tf.zeros(images), trainable=False, name="images")
        except tf.errors.ResourceExhaustedError:
            gigabytes = 4e-9 * math.prod(images)
            raise UserError(
                f"--pool_size {size}: its images of {shape[1]} x {shape[0]} pixels take"
                f" {gigabytes:,.{1 if gigabytes < 10 else 0}f} GB for each domain and device; expected a smaller"
                " --image_size or --pool_size"
            ) from None
        self.counts = tf.Variable(tf.zeros([slots_here], tf.int64), trainable=False, name="counts")
        self._gather = tf.function(self._gather_slots, autograph=False)
        self._assign = tf.function(self._assign_slots, autograph=False)

    def query(self, fakes: tf.Tensor, is_sample: tf.Tensor, random: tf.Tensor) -> tuple[tf.Tensor, PoolUpdate]:
        """Return the images to show in place of new translations, without changing the pool.

        Args:
            fakes: Translations of this replica, float32 [N, H, W, C].
            is_sample: bool [N]; an image whose value is false is padding: it is shown, and not stored.
            random: float32 [N, 2], uniform in [0, 1).

        Returns:
            (shown, update): float32 [N, H, W, C], and the change that `store` applies.
        """
        # Integers have 64 bits: TensorFlow computes with 32 bits on the host, which would wait for the device.
        counts = tf.convert_to_tensor(self.counts)
        fills = is_sample & (counts < self.capacity)
        swaps = is_sample & ~fills & (random[:, 0] < 0.5)
        chosen = tf.minimum(tf.cast(random[:, 1] * self.capacity, tf.int64), self.capacity - 1)
        rows = tf.range(counts.shape[0], dtype=tf.int64) * self.capacity + tf.where(fills, counts, chosen)
        stored = self._read(rows)
        shown = tf.where(swaps[:, None, None, None], stored, fakes)
        images = tf.where((fills | swaps)[:, None, None, None], fakes, stored)
        return shown, PoolUpdate(rows, images, counts + tf.cast(fills, tf.int64))

    def store(self, update: PoolUpdate, applies: tf.Tensor) -> None:
        """Apply a change from `query` on this replica, if the bool scalar `applies` is true."""
        images = tf.where(applies, update.images, self._read(update.rows))
        tf.raw_ops.ResourceScatterUpdate(resource=self.images.handle, indices=update.rows, updates=images)
        counts = tf.where(applies, update.counts, tf.convert_to_tensor(self.counts))
        tf.raw_ops.AssignVariableOp(resource=self.counts.handle, value=counts)

    def read(self) -> Mapping[str, np.ndarray]:
        """Return "images" [slots, capacity, H, W, C] and "counts" [slots] of all replicas; collective."""
        images, counts = (part.numpy() for part in self._gather())
        return {"images": images.reshape(self.slots, self.capacity, *images.shape[1:]), "counts": counts}

    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give each replica its slots of the arrays from `read`; arrays of another global batch or size empty the pool.

        Raises:
            ValueError: Images have another shape.
        """
        images, counts = arrays["images"], arrays["counts"]
        if images.shape[2:] != self.images.shape[1:]:
            raise ValueError(f"images of the pool are {images.shape[2:]}, not {tuple(self.images.shape[1:])}")
        if images.shape[:2] != (self.slots, self.capacity):
            images = np.zeros((self.slots, self.capacity, *images.shape[2:]), np.float32)
            counts = np.zeros(self.slots, np.int64)
        images = images.reshape(-1, *images.shape[2:])

        def part_of_replica(array: np.ndarray) -> tf.distribute.DistributedValues:
            parts = np.split(array, self._strategy.num_replicas_in_sync)
            return self._strategy.experimental_distribute_values_from_function(
                lambda context: tf.constant(parts[context.replica_id_in_sync_group])
            )

        self._assign(part_of_replica(images), part_of_replica(counts))

    def _gather_slots(self) -> list[tf.Tensor]:
        def own() -> tuple[tf.Tensor, tf.Tensor]:
            return tf.convert_to_tensor(self.images), tf.convert_to_tensor(self.counts)

        return [self._strategy.gather(part, axis=0) for part in self._strategy.run(own)]

    def _assign_slots(self, images: tf.distribute.DistributedValues, counts: tf.distribute.DistributedValues) -> None:
        def assign(images: tf.Tensor, counts: tf.Tensor) -> None:
            tf.raw_ops.AssignVariableOp(resource=self.images.handle, value=images)
            tf.raw_ops.AssignVariableOp(resource=self.counts.handle, value=counts)

        self._strategy.run(assign, args=(images, counts))

    def _read(self, rows: tf.Tensor) -> tf.Tensor:
        """Return images of the pool; reading the variable would copy all of it, because it is written in parts."""
        return tf.raw_ops.ResourceGather(resource=self.images.handle, indices=rows, dtype=self.images.dtype)
