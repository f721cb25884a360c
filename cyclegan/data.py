"""Pairs of pictures for every step: two unpaired domains, zipped, augmented, batched and distributed.

Everything here is a function of the seed and the place in training, so a run can go on from any step.
"""

import functools
import math

import numpy as np
import tensorflow as tf


class Pairs:
    """The order of two domains' pictures in training or testing, and the pictures themselves.

    An epoch has min(|X|, |Y|) pairs. In each, pictures are drawn without replacement from each domain; within
    ceil(|domain| / pairs) epochs every picture of a domain is used at least once. A *slot* is a place in that order,
    counted over all epochs; an epoch has steps x global batch slots, and those beyond its pairs are filled up with pictures
    of weight 0, so that all batches are full.

    Args:
        x, y: uint8 [N, S, S, C], the pictures of the domains (see `pictures.Pictures.images`).
        global_batch_size: pairs per step, over all replicas.
        size: side of the pictures that come out, in pixels.
        seed: of the order and the augmentation, at least 0; `None` means testing: the order of the files, no augmentation.
    """

    def __init__(self, x, y, global_batch_size, size, seed=None):
        self.domains = (x, y)
        self.global_batch_size = global_batch_size
        self.size = size
        self.seed = seed
        self.pairs = min(len(x), len(y))
        self.steps = math.ceil(self.pairs / global_batch_size)  # per epoch
        # For each of two domains: this epoch and the next one, which is prefetched.
        self.order = functools.lru_cache(maxsize=4)(self.order)
        self.augmentation = functools.lru_cache(maxsize=4)(self.augmentation)

    def order(self, domain, epoch):
        """Which pictures of a domain (0 or 1) an epoch uses: int [pairs]."""
        count = len(self.domains[domain])
        if self.seed is None:
            return np.arange(self.pairs)
        # A permutation serves as many epochs as it takes to use all of it; the last of them wraps round to its beginning.
        serves = math.ceil(count / self.pairs)
        permutation = np.random.default_rng([self.seed, domain, 0, epoch // serves]).permutation(count)
        return permutation[(epoch % serves * self.pairs + np.arange(self.pairs)) % count]

    def augmentation(self, domain, epoch):
        """The top and left of the crop, in pixels, and whether to flip, for each pair of an epoch: int [pairs, 3]."""
        room = self.domains[domain].shape[1] - self.size
        if self.seed is None:
            return np.tile([room // 2, room // 2, 0], (self.pairs, 1))
        rng = np.random.default_rng([self.seed, domain, 1, epoch])
        return rng.integers(0, [room + 1, room + 1, 2], size=(self.pairs, 3))

    def place(self, slot):
        """(epoch, pair of the epoch, weight) of a slot."""
        epoch, i = divmod(int(slot), self.steps * self.global_batch_size)
        return epoch, i % self.pairs, float(i < self.pairs)

    def picture(self, domain, slot):
        """The picture of a domain (0 or 1) in a slot: uint8 [size, size, C]."""
        epoch, i, _ = self.place(slot)
        image = self.domains[domain][self.order(domain, epoch)[i]]
        top, left, flip = self.augmentation(domain, epoch)[i]
        image = image[top : top + self.size, left : left + self.size]
        return np.ascontiguousarray(image[:, ::-1] if flip else image)

    def dataset(self, first_step, steps):
        """The batches of `steps` steps, beginning with a step counted over all epochs.

        Returns:
            A `tf.data.Dataset` of (x, y, weight): uint8 [global batch, size, size, C] twice, float32 [global batch].
        """
        first = first_step * self.global_batch_size
        slots = tf.data.Dataset.range(first, first + steps * self.global_batch_size)

        def pictures(domain):
            channels = self.domains[domain].shape[3]

            def read(slot):
                image = tf.numpy_function(functools.partial(self.picture, domain), [slot], tf.uint8)
                return tf.ensure_shape(image, [self.size, self.size, channels])

            return slots.map(read)

        def weight(slot):
            value = tf.numpy_function(lambda slot: np.float32(self.place(slot)[2]), [slot], tf.float32)
            return tf.ensure_shape(value, [])

        zipped = tf.data.Dataset.zip((pictures(0), pictures(1), slots.map(weight)))
        return zipped.batch(self.global_batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    def distributed(self, strategy, first_step, steps):
        """An iterator of what `dataset` gives, each batch split over the replicas of a strategy."""
        return iter(strategy.experimental_distribute_dataset(self.dataset(first_step, steps)))
