"""Pairs of pictures for every step: two unpaired domains, zipped, augmented, batched and distributed.

Everything here is a function of the seed and the place in training, so a run can go on from any pair of any epoch.
"""

import functools
import math

import numpy as np
import tensorflow as tf

WORKERS = 4  # calls whose pictures are read at the same time


def place(at, count):
    """What is at a place of an epoch of `count` samples, whose batches are all full: (its number, its weight).

    Where there are no samples left, the first ones fill the last batch up, with weight 0 instead of 1.

    Args:
        at: from 0, an int or an array of them.
    """
    return at % count, np.float32(at < count)


class UnpairedDataset:
    """The order of two domains' pictures in training or testing, and the pictures themselves.

    An epoch has min(|X|, |Y|) pairs. In each, pictures are drawn without replacement from each domain; within
    ceil(|domain| / pairs) epochs of one draw every picture of a domain is used at least once. All batches are full: the
    last one of an epoch is filled up with pictures of weight 0.

    Args:
        x, y: the pictures of the domains: uint8 or uint16 [N, h, w, C], arrays or what looks like them to those who take one
            picture at a time (see `pictures.ImageSet.images`). Heights and widths may differ from picture to picture.
        global_batch_size: pairs per step, over all replicas.
        size: (height, width) of the pictures that come out, in pixels.
        seed: of the order and the augmentation, at least 0; `None` means testing: the order of the files, no augmentation.
        names: two lists of texts, what the pictures of x and y are called.
        steps_per_call: steps whose batches are handed over together, at most.
        flip: flip training pictures at random.
    """

    def __init__(self, x, y, global_batch_size, size, seed=None, names=None, steps_per_call=1, flip=True):
        self.domains = (x, y)
        self.global_batch_size = global_batch_size
        self.size = tuple(size)
        self.seed = seed
        self.flip = flip
        self.steps_per_call = steps_per_call
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
        """Where to crop, down and across, and whether to flip, for each pair of an epoch: float [pairs, 3] in [0, 1).

        A crop begins at this share of the places there are, so that the draw does not depend on the pictures' sizes.
        """
        return self._rng(domain, 1, epoch, draw).random((self.pairs, 3))

    def picture(self, domain, epoch, pair, draw=0):
        """The picture of a domain (0 or 1) in a pair of an epoch: [height, width, C]."""
        image = self.domains[domain][self.order(domain, epoch, draw)[pair]]
        room = [have - wanted for have, wanted in zip(image.shape, self.size)]
        if self.seed is None:
            (top, left), flip = (space // 2 for space in room), False
        else:
            *places, coin = self.augmentation(domain, epoch, draw)[pair]
            top, left = (int(place * (space + 1)) for place, space in zip(places, room))
            flip = self.flip and coin < 0.5
        image = image[top : top + self.size[0], left : left + self.size[1]]
        return _flipped(image) if flip else np.ascontiguousarray(image)

    def batch_names(self, epoch, pair, draw=0):
        """What the pictures of the batch that begins with a pair of an epoch are called: a list of texts."""
        pairs = slice(pair, min(pair + self.global_batch_size, self.pairs))
        return [self.names[domain][i] for domain in (0, 1) for i in self.order(domain, epoch, draw)[pairs]]

    @property
    def failure(self):
        """Why a picture could not be read, a text; `None` while all could."""
        return next((d.failure for d in self.domains if getattr(d, "failure", None)), None)

    def call(self, number=0, epoch=0, pair=0):
        """What the call `number` does of those that begin with a pair of an epoch.

        Calls end where the steps that an epoch has behind it are a multiple of `steps_per_call`, and with the epoch; so they are
        the same wherever training was interrupted.

        Returns:
            (epoch, pair, steps): its first pair, and how many steps it has.
        """
        done = math.ceil(pair / self.global_batch_size)  # steps of the epoch
        together = self.steps_per_call
        left = math.ceil((done + self.steps_from(pair)) / together) - done // together  # calls of it
        if number >= left:
            more, number = divmod(number - left, math.ceil(self.steps / together))
            epoch, pair, done = epoch + 1 + more, 0, 0
        block = done // together + number
        start = max(block * together, done)
        end = min((block + 1) * together, done + self.steps_from(pair))
        return epoch, pair + (start - done) * self.global_batch_size, end - start

    def batches(self, epoch, pair, steps, draw=0, replica=0, replicas=1):
        """A replica's share of some batches of an epoch, the first of which begins with a pair.

        Returns:
            (x, y, weight): [steps_per_call, N, height, width, C] twice, uint8 or uint16 as the pictures are, and float32
            [steps_per_call, N], with N the samples of a replica. The weight is 1, or 0 for a sample that fills up the last batch
            of an epoch. Only the first `steps` mean something.
        """
        share = self.global_batch_size // replicas
        shape = (self.steps_per_call, share, *self.size)
        images = [np.zeros((*shape, domain.shape[3]), domain.dtype) for domain in self.domains]
        weight = np.zeros((self.steps_per_call, share), np.float32)
        for step, sample in np.ndindex(steps, share):
            at = pair + step * self.global_batch_size + replica * share + sample
            number, weight[step, sample] = place(at, self.pairs)
            for domain in (0, 1):
                images[domain][step, sample] = self.picture(domain, epoch, number, draw)
        return (*images, weight)

    def dataset(self, epoch=0, pair=0, draw=0, replicas=1, here=None):
        """The batches of each call (see `call`) from a pair of an epoch (from 0) on, without an end.

        Args:
            replicas: how many there are in all.
            here: a range of those whose shares are wanted; `None` for all.

        Returns:
            A `tf.data.Dataset` of what `batches` returns: for each call, the shares of these replicas one after the other.
        """
        here = here or range(replicas)

        types = (*(tf.as_dtype(domain.dtype) for domain in self.domains), tf.float32)

        def read(index):
            number, replica = divmod(int(index), len(here))
            at, first, steps = self.call(number, epoch, pair)
            return self.batches(at, first, steps, draw, here[replica], replicas)

        def element(index):
            x, y, weight = tf.numpy_function(read, [index], types)
            shape = (self.steps_per_call, self.global_batch_size // replicas)
            pictures = (
                tf.ensure_shape(part, [*shape, *self.size, domain.shape[3]])
                for part, domain in zip((x, y), self.domains)
            )
            return (*pictures, tf.ensure_shape(weight, shape))

        options = tf.data.Options()
        # Getting rid of an iterator, also when the program ends, would wait up to a minute for the autotuner's thread.
        options.autotune.enabled = False
        # Without an end for TensorFlow too, or workers would ask each other before every call whether there is more.
        elements = tf.data.Dataset.counter().map(element, num_parallel_calls=WORKERS, deterministic=True)
        return elements.prefetch(2 * len(here)).with_options(options)

    def distributed(self, strategy, epoch=0, pair=0, draw=0):
        """An iterator of the batches of each call, see `dataset`, each replica of a strategy with its share."""

        def dataset(context):
            replicas = context.num_replicas_in_sync
            local = replicas // context.num_input_pipelines  # of this worker
            first = context.input_pipeline_id * local
            return self.dataset(epoch, pair, draw, replicas, range(first, first + local))

        return iter(strategy.distribute_datasets_from_function(dataset))

    def _rng(self, domain, purpose, epoch, draw):
        return np.random.default_rng([self.seed, domain, purpose, epoch, *([draw] if draw else [])])


def _flipped(image):
    """A copy of [height, width, C] with left and right exchanged; one of a channel after the other is three times as fast."""
    flipped = np.empty(image.shape, image.dtype)
    for channel in range(image.shape[2]):
        flipped[..., channel] = image[:, ::-1, channel]
    return flipped
