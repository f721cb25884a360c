"""The image pool: earlier translations that discriminators learn from."""

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf

from cyclegan.errors import UserError


class PoolUpdate(NamedTuple):
    """Change of an image pool.

    Attributes:
        indices: Indices of the images that change, int64 [G].
        images: New images at these indices, float32 [G, H, W, C].
        count: New number of images in the pool, int64 scalar.
    """

    indices: tf.Tensor
    images: tf.Tensor
    count: tf.Tensor


class ImagePool(tf.Module):
    """Earlier translations to a domain, which a discriminator sees instead of about half of the new ones.

    Shrivastava et al. 2017, section 2.3, as in pytorch-CycleGAN-and-pix2pix, image by image: until the pool is full, a new image
    is stored and shown. After that, with probability 1/2, it replaces a stored image, which is shown instead; otherwise it is
    shown itself.

    The pool is one logical pool for all replicas, and each has a copy. The images to show depend on the translations of all
    replicas, in the order of the global batch, so they are the same on any number of replicas.

    Create it in the scope of the strategy.

    Attributes:
        size: Number of images that the pool can hold.
        images: The images, float32 [size, H, W, C].
        count: Number of images in the pool so far.
    """

    def __init__(self, size: int, shape: tuple[int, int, int]) -> None:
        """Create an empty pool.

        Args:
            size: Number of images that the pool can hold.
            shape: (height, width, channels) of an image.

        Raises:
            UserError: The device has not enough memory.
        """
        super().__init__(name="pool")
        self.size = size
        try:
            self.images = tf.Variable(tf.zeros([size, *shape]), trainable=False, name="images")
        except tf.errors.ResourceExhaustedError:
            needed = 4e-9 * size * math.prod(shape)
            raise UserError(
                f"--pool_size {size}: its images take {needed:.3g} GB for each domain and device; expected a smaller one"
            ) from None
        self.count = tf.Variable(0, trainable=False, dtype=tf.int64, name="count")

    def query(self, fakes: tf.Tensor, is_sample: tf.Tensor, random: tf.Tensor) -> tuple[tf.Tensor, PoolUpdate]:
        """Return the images to show in place of new translations, without changing the pool.

        Args:
            fakes: Translations of the global batch, float32 [G, H, W, C].
            is_sample: bool [G]; where it is false, the image is padding: it is shown, and not stored.
            random: float32 [G, 2], uniform in [0, 1).

        Returns:
            (shown, update): float32 [G, H, W, C], and the change that `store` applies.
        """
        # Integers have 64 bits: TensorFlow computes 32-bit integers on the host, which would wait for the device.
        count, batch = tf.convert_to_tensor(self.count), fakes.shape[0]
        # Images have numbers: first the images of the pool from 0 on, then the images of the batch.
        numbers = tf.range(self.size, dtype=tf.int64)
        content, shown, indices = numbers, [], []
        for i in range(batch):
            fills = is_sample[i] & (count < self.size)
            swaps = is_sample[i] & ~fills & (random[i, 0] < 0.5)
            chosen = tf.minimum(tf.cast(random[i, 1] * self.size, tf.int64), self.size - 1)
            index = tf.where(fills, count, chosen)
            stored, new = tf.gather(content, index), tf.constant(self.size + i, tf.int64)
            shown.append(tf.where(swaps, stored, new))
            content = tf.where(numbers == index, tf.where(fills | swaps, new, stored), content)
            indices.append(index)
            count += tf.cast(fills, tf.int64)
        # An index that occurs twice gets the last image twice, so that the order of writing does not matter.
        index = tf.stack(indices)
        images = self._images_of(tf.gather(content, index), fakes)
        return self._images_of(tf.stack(shown), fakes), PoolUpdate(index, images, count)

    def store(self, update: PoolUpdate, finite: tf.Tensor) -> None:
        """Apply a change on this replica; call it on every replica with the same change.

        Args:
            update: The change, from `query`.
            finite: Bool scalar. If it is false, nothing changes.
        """
        images = tf.where(finite, update.images, self._read(update.indices))
        tf.raw_ops.ResourceScatterUpdate(resource=self.images.handle, indices=update.indices, updates=images)
        count = tf.where(finite, update.count, tf.convert_to_tensor(self.count))
        tf.raw_ops.AssignVariableOp(resource=self.count.handle, value=count)

    def _images_of(self, numbers: tf.Tensor, fakes: tf.Tensor) -> tf.Tensor:
        """Return images by number: first the images of the pool from 0 on, then the fakes."""
        stored = self._read(tf.minimum(numbers, self.size - 1))
        new = tf.gather(fakes, tf.maximum(numbers - self.size, 0))
        return tf.where((numbers < self.size)[:, None, None, None], stored, new)

    def _read(self, indices: tf.Tensor) -> tf.Tensor:
        """Return images of the pool; reading the variable instead would copy all of it, because it is written in parts."""
        return tf.raw_ops.ResourceGather(resource=self.images.handle, indices=indices, dtype=self.images.dtype)
