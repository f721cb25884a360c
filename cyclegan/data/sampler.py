"""Order of the images and their random augmentation: pure functions of a seed and a position in training."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple, TypeVar

import numpy as np

ORDER, AUGMENTATION = 0, 1  # purposes of random streams; part of their seeds
IntOrArray = TypeVar("IntOrArray", int, np.ndarray)


def sample_at(position: IntOrArray, epoch_size: int) -> tuple[IntOrArray, Any]:
    """Map a position in an epoch to (sample index, weight); padding has weight 0.

    Positions from `epoch_size` on fill the last batch: they repeat the first samples.

    Args:
        position: An int or an array of ints, from 0.
        epoch_size: Number of samples in an epoch.

    Returns:
        The index, and its weight as float32: 1 for a sample, 0 for padding. Arrays for an array.
    """
    return position % epoch_size, np.float32(position < epoch_size)


class Call(NamedTuple):
    """Steps that one call of the train function runs.

    Attributes:
        epoch: Epoch of the steps.
        position: First pair of the first step, counted in the epoch.
        steps: Number of steps.
    """

    epoch: int
    position: int
    steps: int


@dataclasses.dataclass(frozen=True)
class UnpairedSampler:
    """Choose the images, crops and flips of every pair.

    An epoch has min(|X|, |Y|) pairs and uses each image at most once. A domain is shuffled anew when all its images have been
    used, which takes ceil(|domain| / pairs) epochs.

    Attributes:
        counts: Numbers of images of domain X and of domain Y.
        global_batch_size: Pairs per step, over all replicas.
        seed: Seed of the order and of the augmentation, at least 0; `None` keeps the order of the files.
    """

    counts: tuple[int, int]
    global_batch_size: int
    seed: int | None = None

    @property
    def epoch_size(self) -> int:
        """Number of pairs in an epoch."""
        return min(self.counts)

    def steps_left(self, position: int) -> int:
        """Return the number of steps that remain in an epoch after `position` pairs."""
        return math.ceil((self.epoch_size - position) / self.global_batch_size)

    def image_index(self, domain: int, epoch: int, position: IntOrArray, reshuffles: int = 0) -> IntOrArray:
        """Return the index of the image that a domain contributes to a pair.

        Args:
            domain: 0 for X, 1 for Y.
            epoch: Epoch, from 0.
            position: Pair, counted in the epoch, or an array of pairs.
            reshuffles: Times the images were shuffled anew after training went back to a checkpoint.
        """
        if self.seed is None:
            return position
        count = self.counts[domain]
        epochs = math.ceil(count / self.epoch_size)  # epochs that share a permutation; the last one wraps around
        permutation = _permutation(self._stream(domain, ORDER, epoch // epochs, reshuffles), count)
        return permutation[(epoch % epochs * self.epoch_size + position) % count]

    def augmentation(self, domain: int, epoch: int, position: int, reshuffles: int = 0) -> np.ndarray:
        """Return the random numbers that augment an image: top and left of the crop, and flip.

        The crop is given in fractions of its room in the image, so that the numbers do not depend on the image's size.

        Returns:
            float64 [3], in [0, 1).
        """
        return _uniform(self._stream(domain, AUGMENTATION, epoch, reshuffles), self.epoch_size)[position]

    def call(self, number: int = 0, epoch: int = 0, position: int = 0, steps_per_call: int = 1) -> Call:
        """Return the steps of a call, counted from a position in training.

        Calls end at multiples of `steps_per_call` steps of the epoch, and at its end. They are therefore the same in a resumed run.

        Args:
            number: Index of the call, from 0: the first one begins at the position.
            epoch: Epoch of the position.
            position: Pair, counted in the epoch.
            steps_per_call: Maximum number of steps in a call.
        """
        done = math.ceil(position / self.global_batch_size)  # steps of this epoch
        calls_left = math.ceil((done + self.steps_left(position)) / steps_per_call) - done // steps_per_call
        if number >= calls_left:
            epochs, number = divmod(number - calls_left, math.ceil(self.steps_left(0) / steps_per_call))
            epoch, position, done = epoch + 1 + epochs, 0, 0
        block = done // steps_per_call + number
        start = max(block * steps_per_call, done)
        end = min((block + 1) * steps_per_call, done + self.steps_left(position))
        return Call(epoch, position + (start - done) * self.global_batch_size, end - start)

    def _stream(self, domain: int, purpose: int, number: int, reshuffles: int) -> tuple[Any, ...]:
        return (self.seed, domain, purpose, number, *([reshuffles] if reshuffles else []))


@functools.lru_cache(maxsize=4)  # both domains, in this epoch and in the next one, which is prefetched
def _permutation(stream: tuple[int, ...], count: int) -> np.ndarray:
    return np.random.default_rng(stream).permutation(count)


@functools.lru_cache(maxsize=4)
def _uniform(stream: tuple[int, ...], count: int) -> np.ndarray:
    return np.random.default_rng(stream).random((count, 3))
