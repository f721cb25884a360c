"""Images of different sizes in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from cyclegan.images.image_array import ShapeOfImages


class RaggedArray:
    """Images in memory, each with its own height and width.

    Attributes:
        shape: (N, None, None, C).
        dtype: Type of the pixels.
    """

    def __init__(self, shape: ShapeOfImages, dtype: np.dtype | type) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self._images: list[Any] = [None] * shape[0]

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self._images)

    def __getitem__(self, index: int) -> np.ndarray:
        """Return an image: [h, w, C]."""
        return self._images[index]

    def __setitem__(self, index: int, image: np.ndarray) -> None:
        """Set an image: [h, w, C]."""
        self._images[index] = image
