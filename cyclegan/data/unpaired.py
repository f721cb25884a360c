"""Batches of two unpaired domains: read, augmented, batched and distributed over the replicas."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from cyclegan.data.loading import available_cores
from cyclegan.data.sampler import Call, UnpairedSampler
from cyclegan.images.image import ImageArray
from cyclegan.lazy_tensorflow import tf

MIN_PARALLEL_CALLS = 4  # on few cores, too, because reading files waits
MAX_PARALLEL_CALLS = 16  # bounds the memory of the images that are read ahead


class UnpairedDataset:
    """Batches of pairs of images, one of each domain, for training or validation.

    `UnpairedSampler` defines the pairs of an epoch. All batches are full: images of weight 0 fill the last one.

    Args:
        x: Images of domain X: uint8 or uint16 [N, h, w, C]. Heights and widths may differ between images. They may have
            attributes `names`, and `masks`, uint8 [N, h, w, 1] of the same sizes.
        y: Images of domain Y.
        global_batch_size: Pairs per step, over all replicas.
        size: (height, width) of the batches in pixels.
        seed: Seed of the order and of the augmentation, at least 0. `None` is for validation: images in the order of
            the files, cropped in the middle.
        steps_per_call: Maximum number of steps in a call of the train function.
        flip: Whether to flip training images at random.
        epoch_size: Pairs in an epoch: "min" or "max" of the numbers of images, or a number.
    """

    def __init__(
        self,
        x: ImageArray,
        y: ImageArray,
        global_batch_size: int,
        size: Sequence[int],
        seed: int | None = None,
        steps_per_call: int = 1,
        flip: bool = True,
        epoch_size: str = "min",
    ) -> None:
        self.domains: Sequence[ImageArray] = (x, y)
        self._later: Sequence[ImageArray] = (x, y)
        self._first_later = 0
        self.global_batch_size = global_batch_size
        self.size = tuple(size)
        self.flip = flip
        self.steps_per_call = steps_per_call
        self.names = [getattr(d, "names", None) or [f"{n}[{i}]" for i in range(len(d))] for n, d in zip("XY", (x, y))]
        self.sampler = UnpairedSampler((len(x), len(y)), global_batch_size, seed, epoch_size)
        self.epoch_size = self.sampler.epoch_size
        self.steps_per_epoch = self.steps_left(0)

    def set_pairs(self, pairs: np.ndarray, share: float) -> None:
        """Use partners together with probability `share`; `pairs` has their indices in X and in Y, int [K, 2]."""
        self.sampler = dataclasses.replace(self.sampler, partners=pairs, share=share)

    def set_later(self, domains: Sequence[ImageArray], epoch: int) -> None:
        """Use the same images in other sizes from an epoch on."""
        self._later, self._first_later = domains, epoch

    @property
    def has_pairs(self) -> bool:
        """Whether batches tell which samples are pairs."""
        return self.sampler.partners is not None

    @property
    def has_masks(self) -> bool:
        """Whether batches end with the masks of x and of y."""
        return any(getattr(domain, "masks", None) is not None for domain in self.domains)

    @property
    def failure(self) -> str | None:
        """Reason why an image could not be read; `None` if all could."""
        images = (*self.domains, *self._later)
        masks = [getattr(each, "masks", None) for each in images]
        return next(filter(None, (getattr(each, "failure", None) for each in (*images, *masks))), None)

    def steps_left(self, position: int) -> int:
        """Return the number of steps that remain in an epoch after `position` pairs."""
        return self.sampler.steps_left(position)

    def call(self, number: int = 0, epoch: int = 0, position: int = 0) -> Call:
        """Return the steps of a call, counted from a position in training; see `UnpairedSampler.call`."""
        return self.sampler.call(number, epoch, position, self.steps_per_call)

    def image(self, domain: str, epoch: int, position: int, reshuffles: int = 0) -> np.ndarray:
        """Return the augmented image of a domain ("X" or "Y") in a pair of an epoch: [height, width, C]."""
        return self._augmented(self._images(domain, epoch), domain, epoch, position, reshuffles)

    def mask(self, domain: str, epoch: int, position: int, reshuffles: int = 0) -> np.ndarray:
        """Return the mask of `image`, with its crop and flip: uint8 [height, width, 1]; all ones without masks."""
        masks = getattr(self._images(domain, epoch), "masks", None)
        if masks is None:
            return np.ones((*self.size, 1), np.uint8)
        return self._augmented(masks, domain, epoch, position, reshuffles)

    def _images(self, domain: str, epoch: int) -> ImageArray:
        return (self._later if epoch >= self._first_later else self.domains)["XY".index(domain)]

    def _augmented(self, images: ImageArray, domain: str, epoch: int, position: int, reshuffles: int) -> np.ndarray:
        image = images[self.sampler.image_index(domain, epoch, position, reshuffles)]
        height, width = self.size
        rows, columns = image.shape[0] - height, image.shape[1] - width  # room for the crop to move
        if self.sampler.seed is None:
            top, left, flip = rows // 2, columns // 2, False
        else:
            down, right, coin = self.sampler.augmentation(domain, epoch, position, reshuffles)
            top, left, flip = int(down * (rows + 1)), int(right * (columns + 1)), self.flip and coin < 0.5
        image = image[top : top + height, left : left + width]
        return _flipped(image) if flip else np.ascontiguousarray(image)

    def batch_names(self, epoch: int, position: int, reshuffles: int = 0) -> list[str]:
        """Return the names of the images of X, then of Y, in the batch that begins at a position of an epoch."""
        batch = np.arange(position, min(position + self.global_batch_size, self.epoch_size))
        return [
            names[i]
            for domain, names in zip("XY", self.names)
            for i in self.sampler.image_index(domain, epoch, batch, reshuffles)
        ]

    def batches(
        self, epoch: int, position: int, steps: int, reshuffles: int = 0, replica: int = 0, replicas: int = 1
    ) -> tuple[np.ndarray, ...]:
        """Return the share of a replica in the batches of consecutive steps.

        Args:
            epoch: Epoch, from 0.
            position: First pair of the first step, counted in the epoch.
            steps: Number of steps, at most `steps_per_call`.
            reshuffles: Times the images were shuffled anew after training went back to a checkpoint.
            replica: Index of the replica.
            replicas: Number of replicas.

        Returns:
            Images of X and of Y, [steps_per_call, N, height, width, C], and their weights, float32 [steps_per_call, N],
            with N pairs per replica. A weight is 1, or 0 for padding. Entries after the first `steps` are zeros. With
            partners, the next array is 1 where the images of a sample are partners, float32 [steps_per_call, N]. With
            masks, the last two arrays are the masks of X and of Y, uint8 [steps_per_call, N, height, width, 1]: 1
            inside, 0 outside.
        """
        share = self.global_batch_size // replicas
        shape = (self.steps_per_call, share, *self.size)
        x, y = (np.zeros((*shape, domain.shape[3]), domain.dtype) for domain in self.domains)
        masks = [np.zeros((*shape, 1), np.uint8) for _ in "XY" * self.has_masks]
        weight, is_pair = (np.zeros((self.steps_per_call, share), np.float32) for _ in range(2))
        for step, sample in np.ndindex(steps, share):
            at = position + step * self.global_batch_size + replica * share + sample
            weight[step, sample] = at < self.epoch_size
            pair = at % self.epoch_size  # padding repeats the first pairs
            x[step, sample] = self.image("X", epoch, pair, reshuffles)
            y[step, sample] = self.image("Y", epoch, pair, reshuffles)
            for domain, mask in zip("XY", masks):
                mask[step, sample] = self.mask(domain, epoch, pair, reshuffles)
            is_pair[step, sample] = self.sampler.is_pair(epoch, pair, reshuffles)
        return (x, y, weight, *([is_pair] if self.has_pairs else []), *masks)

    def tf_dataset(
        self,
        epoch: int = 0,
        position: int = 0,
        reshuffles: int = 0,
        replicas: int = 1,
        local_replicas: range | None = None,
    ) -> tf.data.Dataset:
        """Return an endless dataset of the batches of one call after the other, from a position in training.

        See `batches` for an element and the arguments. Each call has an element per replica of this worker
        (`local_replicas`, by default all).
        """
        local = range(replicas) if local_replicas is None else local_replicas
        example = self.batches(epoch, position, 0, replicas=replicas)
        dtypes, shapes = [tf.as_dtype(part.dtype) for part in example], [part.shape for part in example]

        def read(index: np.int64) -> tuple[np.ndarray, ...]:
            number, replica = divmod(int(index), len(local))
            return self.batches(*self.call(number, epoch, position), reshuffles, local[replica], replicas)

        def element(index: tf.Tensor) -> tuple[tf.Tensor, ...]:
            # With stateful functions, --deterministic would read one call after the other.
            return tuple(map(tf.ensure_shape, tf.numpy_function(read, [index], dtypes, stateful=False), shapes))

        # A counter has no end: otherwise workers ask each other before every call whether data is left.
        elements = tf.data.Dataset.counter().map(element, num_parallel_calls=_parallel_calls(), deterministic=True)
        options = tf.data.Options()
        options.autotune.enabled = False  # its thread makes an iterator take up to a minute to end
        return elements.prefetch(2 * len(local)).with_options(options)

    def distributed(
        self, strategy: tf.distribute.Strategy, epoch: int = 0, position: int = 0, reshuffles: int = 0
    ) -> Iterator[tuple[tf.Tensor, ...]]:
        """Return an iterator of the batches of each call (see `tf_dataset`), with one share per replica of a strategy.

        Shares are copied to the devices of this worker when they are asked for. TensorFlow's own distributed iterators
        start a thread for each device, which makes them take up to a minute to end.
        """
        devices, distribute = strategy.extended.worker_devices, strategy.experimental_distribute_values_from_function
        first = strategy.experimental_local_results(distribute(lambda context: context.replica_id_in_sync_group))[0]
        local = range(first, first + len(devices))
        elements = iter(self.tf_dataset(epoch, position, reshuffles, strategy.num_replicas_in_sync, local))
        while True:
            shares = [_copy(next(elements), device) for device in devices]
            if len(shares) == 1:
                yield shares[0]
            else:
                yield distribute(lambda context, shares=shares: shares[context.replica_id_in_sync_group - first])


def _parallel_calls() -> int:
    """Return the number of calls whose images are read at the same time."""
    return min(max(MIN_PARALLEL_CALLS, available_cores()), MAX_PARALLEL_CALLS)


def _copy(tensors: tuple[tf.Tensor, ...], device: str) -> tuple[tf.Tensor, ...]:
    with tf.device(device):
        return tuple(map(tf.identity, tensors))


def _flipped(image: np.ndarray) -> np.ndarray:
    """Flip an image [height, width, C] from left to right; a copy per channel is three times as fast as one copy."""
    flipped = np.empty(image.shape, image.dtype)
    for channel in range(image.shape[2]):
        flipped[..., channel] = image[:, ::-1, channel]
    return flipped
