"""Pairs of pictures for every step: two unpaired domains, zipped, augmented, batched and distributed.

Everything here is a function of the seed and the place in training, so a run can go on from any pair of any epoch.
"""

import functools
import math
import sys

import numpy as np
import tensorflow as tf


class Pairs:
    """The order of two domains' pictures in training or testing, and the pictures themselves.

    An epoch has min(|X|, |Y|) pairs. In each, pictures are drawn without replacement from each domain; within
    ceil(|domain| / pairs) epochs of one draw every picture of a domain is used at least once. All batches are full: the
    last one of an epoch is filled up with pictures of weight 0.

    Args:
        x, y: uint8 [N, S, S, C], the pictures of the domains (see `pictures.Pictures.images`).
        global_batch_size: pairs per step, over all replicas.
        size: side of the pictures that come out, in pixels.
        seed: of the order and the augmentation, at least 0; `None` means testing: the order of the files, no augmentation.
        names: two lists of texts, what the pictures of x and y are called.
    """

    def __init__(self, x, y, global_batch_size, size, seed=None, names=None):
        self.domains = (x, y)
        self.global_batch_size = global_batch_size
        self.size = size
        self.seed = seed
        self.names = names or tuple([f"{name}[{i}]" for i in range(len(d))] for name, d in zip("xy", self.domains))
        self.pairs = min(len(x), len(y))
        self.steps = self.steps_from(0)  # per epoch
        # For each of two domains: this epoch and the next one, which is prefetched.
        self.order = functools.lru_cache(maxsize=4)(self.order)
        self.augmentation = functools.lru_cache(maxsize=4)(self.augmentation)

    def steps_from(self, pair):
        """How many steps an epoch has left when `pair` pairs of it are done."""
        return math.ceil((self.pairs - pair) / self.global_batch_size)

    def order(self, domain, epoch, draw=0):
        """Which pictures of a domain (0 or 1) an epoch uses: int [pairs]. Another `draw` gives another order."""
        count = len(self.domains[domain])
        if self.seed is None:
            return np.arange(self.pairs)
        # A permutation serves as many epochs as it takes to use all of it; the last of them wraps round to its beginning.
        serves = math.ceil(count / self.pairs)
        permutation = self._rng(domain, 0, epoch // serves, draw).permutation(count)
        return permutation[(epoch % serves * self.pairs + np.arange(self.pairs)) % count]

    def augmentation(self, domain, epoch, draw=0):
        """The top and left of the crop, in pixels, and whether to flip, for each pair of an epoch: int [pairs, 3]."""
        room = self.domains[domain].shape[1] - self.size
        if self.seed is None:
            return np.tile([room // 2, room // 2, 0], (self.pairs, 1))
        return self._rng(domain, 1, epoch, draw).integers(0, [room + 1, room + 1, 2], size=(self.pairs, 3))

    def picture(self, domain, epoch, pair, draw=0):
        """The picture of a domain (0 or 1) in a pair of an epoch: uint8 [size, size, C]."""
        image = self.domains[domain][self.order(domain, epoch, draw)[pair]]
        top, left, flip = self.augmentation(domain, epoch, draw)[pair]
        image = image[top : top + self.size, left : left + self.size]
        return np.ascontiguousarray(image[:, ::-1] if flip else image)

    def batch_names(self, epoch, pair, draw=0):
        """What the pictures of the batch that begins with a pair of an epoch are called: a list of texts."""
        pairs = slice(pair, min(pair + self.global_batch_size, self.pairs))
        return [self.names[domain][i] for domain in (0, 1) for i in self.order(domain, epoch, draw)[pairs]]

    def place(self, index, epoch=0, pair=0):
        """Where the sample `index` of the batches that begin with a pair of an epoch comes from.

        Returns:
            (epoch, pair, weight); the weight is 1, or 0 for a sample that fills up the last batch of an epoch.
        """
        first = self.steps_from(pair) * self.global_batch_size  # samples of the first epoch
        if index < first:
            pair += index
        else:
            more, pair = divmod(index - first, self.steps * self.global_batch_size)
            epoch += 1 + more
        return epoch, pair % self.pairs, float(pair < self.pairs)

    def dataset(self, epoch=0, pair=0, draw=0):
        """The batches of an epoch (from 0) from a pair on, then those of the next epochs, without an end.

        Returns:
            A `tf.data.Dataset` of (x, y, weight): uint8 [global batch, size, size, C] twice, float32 [global batch].
        """
        samples = tf.data.Dataset.range(sys.maxsize)

        def pictures(domain):
            channels = self.domains[domain].shape[3]

            def read(index):
                at, i, _ = self.place(int(index), epoch, pair)
                return self.picture(domain, at, i, draw)

            def sample(index):
                image = tf.numpy_function(read, [index], tf.uint8)
                return tf.ensure_shape(image, [self.size, self.size, channels])

            return samples.map(sample)

        def weight(index):
            value = tf.numpy_function(lambda i: np.float32(self.place(int(i), epoch, pair)[2]), [index], tf.float32)
            return tf.ensure_shape(value, [])

        zipped = tf.data.Dataset.zip((pictures(0), pictures(1), samples.map(weight)))
        options = tf.data.Options()
        # Getting rid of an iterator, also when the program ends, would wait up to a minute for the autotuner's thread.
        options.autotune.enabled = False
        return zipped.batch(self.global_batch_size, drop_remainder=True).prefetch(2).with_options(options)

    def distributed(self, strategy, epoch=0, pair=0, draw=0):
        """An iterator of what `dataset` gives, each batch split over the replicas of a strategy."""
        return iter(strategy.experimental_distribute_dataset(self.dataset(epoch, pair, draw)))

    def _rng(self, domain, purpose, epoch, draw):
        return np.random.default_rng([self.seed, domain, purpose, epoch, *([draw] if draw else [])])
