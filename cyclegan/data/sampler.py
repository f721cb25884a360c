"""Order of the images and their random augmentation: pure functions of a seed and a position in training."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

ORDER, AUGMENTATION, PAIRING = 0, 1, 2  # purposes of random streams; part of their seeds
IntOrArray = TypeVar("IntOrArray", int, np.ndarray)


class Call(NamedTuple):
    """Steps that one call of the train function runs."""

    epoch: int
    position: int  # first pair of the first step, counted in the epoch
    steps: int


@dataclasses.dataclass(frozen=True)
class UnpairedSampler:
    """Choose the images, crops and flips of every pair.

    A pass uses each image of a domain once, and each pass has its own permutation. A pass may span epochs, so the
    numbers of uses of two images of a domain differ by at most 1. One case is different: if an epoch has min(|X|,
    |Y|) pairs, each pass over the larger domain ends with an epoch, and the first images of the pass fill the rest
    of this epoch. No epoch then uses an image twice.

    Partners do not change the order of the larger domain. If the larger domain contributes an image with a partner, the
    sampler pairs both with probability `share`, unless the pass over the smaller domain has already used the
    partner. The other images of this pass fill the remaining positions in their order, so each image is used as
    often as without partners.
    """

    counts: tuple[int, int]  # of the images of domain X and of domain Y
    global_batch_size: int  # pairs per step, over all replicas
    seed: int | None = None  # of the order and of the augmentation, at least 0; `None` keeps the order of the files
    size: str = "min"  # pairs in an epoch: "min" or "max" of the numbers of images, or the number itself
    # Indices of partners in X and in Y, int [K, 2]; no index occurs twice in a column.
    partners: np.ndarray | None = dataclasses.field(default=None, compare=False)
    share: float = 1.0  # probability that the sampler pairs an image with its partner

    @functools.cached_property
    def epoch_size(self) -> int:
        """Number of pairs in an epoch."""
        return {"min": min(self.counts), "max": max(self.counts)}.get(self.size) or int(self.size)

    def steps_left(self, position: int) -> int:
        """Return the number of steps that remain in an epoch after `position` pairs."""
        return math.ceil((self.epoch_size - position) / self.global_batch_size)

    def image_index(self, domain: str, epoch: int, position: IntOrArray, reshuffles: int = 0) -> IntOrArray:
        """Return the index of the image that a domain, "X" or "Y", contributes to a pair; `position` may be an array.

        `reshuffles` is how many times the images were shuffled anew after training went back to a checkpoint.
        """
        if self.partners is None or domain == self._larger:
            return self._shuffled(domain, epoch, position, reshuffles)
        return self._arranged_at(epoch, position, reshuffles)[0]

    def is_pair(self, epoch: int, position: IntOrArray, reshuffles: int = 0) -> Any:
        """Return whether the images at a position are paired as partners; an array if `position` is an array."""
        if self.partners is None:
            return np.zeros(np.shape(position), bool)
        return self._arranged_at(epoch, position, reshuffles)[1] != 0

    def augmentation(self, domain: str, epoch: int, position: int, reshuffles: int = 0) -> np.ndarray:
        """Return random numbers in [0, 1) for the top and left of a crop, as fractions of its room, and for the flip.

        Partners have the same numbers.
        """
        domain = "X" if self.is_pair(epoch, position, reshuffles) else domain
        return _uniform(self._stream(domain, AUGMENTATION, epoch, reshuffles), self.epoch_size)[position]

    def call(self, number: int = 0, epoch: int = 0, position: int = 0, steps_per_call: int = 1) -> Call:
        """Return the steps of a call, counted from a position in training.

        The call of number 0 begins at the position, a pair of the epoch. Calls end at multiples of `steps_per_call`
        steps of the epoch, and at its end, also in a resumed run.
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

    def _shuffled(self, domain: str, epoch: Any, position: Any, reshuffles: int) -> Any:
        """Return the index of the image at a position, ignoring partners; `epoch` and `position` may be arrays."""
        count = self.counts["XY".index(domain)]
        if self.seed is None:
            return position % count
        place = epoch * self.epoch_size + position  # in all passes, one after the other
        if self.epoch_size == min(self.counts):
            epochs = math.ceil(count / self.epoch_size)  # of a pass
            place = epoch // epochs * count + (epoch % epochs * self.epoch_size + position) % count
        return _in_passes(
            place, count, lambda number: _permutation(self._stream(domain, ORDER, number, reshuffles), count)
        )

    @property
    def _larger(self) -> str:
        return "Y" if self.counts[1] > self.counts[0] else "X"

    def _arranged_at(self, epoch: int, position: Any, reshuffles: int) -> Any:
        """Return the image of the smaller domain at a position, and whether it comes with its partner: [2, ...]."""
        place = epoch * self.epoch_size + position
        return _in_passes(place, min(self.counts), lambda number: self._arranged(number, reshuffles))

    @functools.cached_property
    def _arranged(self) -> Any:
        return functools.lru_cache(maxsize=8)(self._arrange)

    def _arrange(self, number: int, reshuffles: int) -> np.ndarray:
        """Return the image and whether its partner comes with it, by position in a pass over the smaller domain."""
        assert self.partners is not None
        larger, smaller = ("X", "Y") if self._larger == "X" else ("Y", "X")
        count = min(self.counts)
        at = np.divmod(number * count + np.arange(count), self.epoch_size)  # epochs and positions in them
        partners = np.full(max(self.counts), -1)
        partners[self.partners[:, "XY".index(larger)]] = self.partners[:, "XY".index(smaller)]
        wanted = partners[self._shuffled(larger, *at, reshuffles)]
        random = np.random.default_rng(self._stream(smaller, PAIRING, number, reshuffles))
        together = (wanted >= 0) & (random.random(count) < self.share)
        chosen = np.flatnonzero(together)
        again = np.setdiff1d(chosen, chosen[np.unique(wanted[chosen], return_index=True)[1]])
        together[again] = False  # the larger domain was shuffled anew in this pass
        images = self._shuffled(smaller, *at, reshuffles)
        arranged = np.empty_like(images)
        arranged[together] = wanted[together]
        arranged[~together] = images[~np.isin(images, wanted[together])]
        return np.stack([arranged, together])

    def _stream(self, domain: str, purpose: int, number: int, reshuffles: int) -> tuple[Any, ...]:
        return (self.seed, "XY".index(domain), purpose, number, *([reshuffles] if reshuffles else []))


def _in_passes(place: Any, count: int, make_pass: Callable[[int], np.ndarray]) -> Any:
    """Return the values at a place, or at an array of places, in passes of `count` values, made by their number."""
    first, last = int(np.min(place)) // count, int(np.max(place)) // count
    passes = [make_pass(number) for number in range(first, last + 1)]
    return (passes[0] if first == last else np.concatenate(passes, axis=-1))[..., place - first * count]


@functools.lru_cache(maxsize=8)  # both domains, in this epoch and in the next one, which is prefetched
def _permutation(stream: tuple[int, ...], count: int) -> np.ndarray:
    return np.random.default_rng(stream).permutation(count)


@functools.lru_cache(maxsize=4)
def _uniform(stream: tuple[int, ...], count: int) -> np.ndarray:
    return np.random.default_rng(stream).random((count, 3))
