"""Order of the images when some of them have partners in the other domain."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from cyclegan.data.sampler import IntOrArray, UnpairedSampler

PAIRING = 2  # purpose of a random stream, beside those of `sampler`


@dataclasses.dataclass(frozen=True)
class PairedSampler(UnpairedSampler):
    """Choose the images, crops and flips of every pair; some images come together with their partners.

    The larger domain keeps the order of `UnpairedSampler`. Each time that it contributes an image with a partner, the partner comes
    with it with a certain probability. The other images of the smaller domain fill the remaining positions in their order. Each
    image is therefore used as often as without partners.

    Attributes:
        pairs: Indices of partners in X and in Y, int [K, 2]; no index occurs twice in a column.
        share: Probability that partners come together.
    """

    pairs: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 2), int), compare=False)
    share: float = 1.0

    def is_pair(self, epoch: int, position: IntOrArray, reshuffles: int = 0) -> Any:
        """Return whether the images at a position of an epoch come together as partners; an array for an array."""
        return self._arranged(epoch, reshuffles)[1][position]

    def image_index(self, domain: int, epoch: int, position: IntOrArray, reshuffles: int = 0) -> IntOrArray:
        """Return the index of the image that a domain contributes to a pair; see `UnpairedSampler.image_index`."""
        if domain == self._larger:
            return super().image_index(domain, epoch, position, reshuffles)
        return self._arranged(epoch, reshuffles)[0][position]

    def augmentation(self, domain: int, epoch: int, position: int, reshuffles: int = 0) -> np.ndarray:
        """Return the random numbers that augment an image, equal for partners; see `UnpairedSampler.augmentation`."""
        domain = 0 if self.is_pair(epoch, position, reshuffles) else domain
        return super().augmentation(domain, epoch, position, reshuffles)

    @property
    def _larger(self) -> int:
        return int(self.counts[1] > self.counts[0])

    @functools.cached_property
    def _arranged(self) -> Any:
        return functools.lru_cache(maxsize=2)(self._arrange)  # this epoch and the next one, which is prefetched

    def _arrange(self, epoch: int, reshuffles: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (image of the smaller domain, whether it comes with its partner) for each position of an epoch."""
        larger, smaller, positions = self._larger, 1 - self._larger, np.arange(self.epoch_size)
        partners = np.full(self.counts[larger], -1)
        partners[self.pairs[:, larger]] = self.pairs[:, smaller]
        wanted = partners[super().image_index(larger, epoch, positions, reshuffles)]
        random = np.random.default_rng(self._stream(smaller, PAIRING, epoch, reshuffles))
        together = (wanted >= 0) & (random.random(self.epoch_size) < self.share)
        images = super().image_index(smaller, epoch, positions, reshuffles)
        arranged = np.empty_like(images)
        arranged[together] = wanted[together]
        arranged[~together] = images[~np.isin(images, wanted[together])]
        return arranged, together
