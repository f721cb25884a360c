"""The image pool: earlier translations that discriminators are trained on."""

import math

import tensorflow as tf

from cyclegan.errors import UserError


class ImagePool(tf.Module):
    """Keeps translations of a domain, and shows a discriminator old ones in place of half of the new ones.

    Shrivastava et al. 2017, section 2.3, as pytorch-CycleGAN-and-pix2pix has it, picture by picture: until the pool is full,
    a picture is stored and shown; then, with probability 1/2, it is stored in the place of a stored one, which is shown instead;
    else it is shown itself.

    It is one logical pool for all replicas, of which each has a copy: what a replica shows its discriminator depends on the
    translations of all, in the order of the global batch, so it is the same on any number of replicas. Make it under the
    strategy's scope.

    Args:
        size: how many pictures are kept.
        shape: (height, width, channels) of a picture.

    Raises:
        UserError: there is no memory for it.
    """

    def __init__(self, size, shape):
        super().__init__(name="pool")
        self.size = size
        try:
            self.images = tf.Variable(tf.zeros([size, *shape]), trainable=False, name="images")
        except tf.errors.ResourceExhaustedError:
            needed = 4e-9 * size * math.prod(shape)
            raise UserError(
                f"--pool_size {size}: its pictures take {needed:.3g} GB for each domain and device; expected a smaller one"
            ) from None
        self.count = tf.Variable(0, trainable=False, dtype=tf.int64, name="count")

    def query(self, fakes, is_sample, draws):
        """What is shown in place of new translations. Changes nothing; `store` does.

        Args:
            fakes: float32 [G, H, W, C], the translations of a global batch.
            is_sample: bool [G]; where it is false the picture only fills the batch up: it is shown, and not stored.
            draws: float32 [G, 2], uniform in [0, 1).

        Returns:
            (shown, kept): float32 [G, H, W, C]; and what `store` wants.
        """
        # Whole numbers are of 64 bits: TensorFlow computes with those of 32 bits on the host, which would wait for the device.
        count, batch = tf.convert_to_tensor(self.count), fakes.shape[0]
        # Pictures by number: those of the pool from 0 on, then those of the batch.
        numbers = tf.range(self.size, dtype=tf.int64)
        content, shown, places = numbers, [], []
        for i in range(batch):
            filling = is_sample[i] & (count < self.size)
            swaps = is_sample[i] & ~filling & (draws[i, 0] < 0.5)
            drawn = tf.minimum(tf.cast(draws[i, 1] * self.size, tf.int64), self.size - 1)
            place = tf.where(filling, count, drawn)
            held, new = tf.gather(content, place), tf.constant(self.size + i, tf.int64)
            shown.append(tf.where(swaps, held, new))
            new = tf.where(filling | swaps, new, held)
            content = tf.where(numbers == place, new, content)
            places.append(place)
            count += tf.cast(filling, tf.int64)

        def pictures(wanted):
            old = self._stored(tf.minimum(wanted, self.size - 1))
            new = tf.gather(fakes, tf.maximum(wanted - self.size, 0))
            return tf.where((wanted < self.size)[:, None, None, None], old, new)

        # A place that was taken twice gets the last picture twice, so that the order of writing does not matter.
        places = tf.stack(places)
        return pictures(tf.stack(shown)), (places, pictures(tf.gather(content, places)), count)

    def _stored(self, places):
        """The pictures at some places. Reading the variable would copy all of it, since only a part of it is ever written."""
        return tf.raw_ops.ResourceGather(resource=self.images.handle, indices=places, dtype=self.images.dtype)

    def store(self, kept, good):
        """Takes over what `query` gave, on this replica; call it on every replica with the same. Nothing where `good` is false."""
        places, pictures, count = kept
        pictures = tf.where(good, pictures, self._stored(places))
        tf.raw_ops.ResourceScatterUpdate(resource=self.images.handle, indices=places, updates=pictures)
        count = tf.where(good, count, tf.convert_to_tensor(self.count))
        tf.raw_ops.AssignVariableOp(resource=self.count.handle, value=count)
