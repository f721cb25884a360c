"""Held-out images, cropped in the middle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cyclegan.images.geometry import centre_crop
from cyclegan.images.image_array import ImageArray


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
