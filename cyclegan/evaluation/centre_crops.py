"""Held-out images, cropped in the middle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from cyclegan.images.geometry import centre_crop


class ImageArray(Protocol):
    """Images that are indexed like an array [N, h, w, C]; h and w may differ between images."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """(N, h, w, C)."""

    @property
    def dtype(self) -> np.dtype:
        """Type of the pixels."""

    def __len__(self) -> int:
        """Return the number of images."""

    def __getitem__(self, index: int, /) -> np.ndarray:
        """Return an image [h, w, C]."""


class CentreCrops:
    """The centres of the images of a domain, as validation sees them.

    Args:
        images: uint8 or uint16 images.
        size: (height, width) of the crops in pixels.

    Attributes:
        size: (height, width) of the crops in pixels.
        dtype: Type of the pixels.
    """

    def __init__(self, images: ImageArray, size: tuple[int, int]) -> None:
        self.size = size
        self.dtype = np.dtype(images.dtype)
        self._images = images

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self._images)

    def batch(self, indices: Sequence[int], count: int) -> np.ndarray:
        """Return the crops of some images, filled up to `count` with the last one: [count, H, W, C]."""
        padded = [*indices] + [indices[-1]] * (count - len(indices))
        return np.stack([centre_crop(self._images[i], self.size) for i in padded])
