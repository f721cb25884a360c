"""Sequences of images that are indexed like an array [N, h, w, C]."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

ShapeOfImages = tuple[int, Any, Any, int]  # (N, h, w, C); h and w are `None` if they differ between the images


class ImageArray(Protocol):
    """Images that are read one at a time; arrays [N, h, w, C] are such sequences, too.

    A sequence that reads files may have an attribute `failure`: the text of its first error, or `None`.
    """

    @property
    def shape(self) -> tuple[Any, ...]:  # an array has any number of axes
        """(N, h, w, C); h and w are `None` if they differ between the images."""

    @property
    def dtype(self) -> np.dtype:
        """Type of the pixels."""

    def __len__(self) -> int:
        """Return the number of images."""

    def __getitem__(self, index: int, /) -> np.ndarray:
        """Return an image: [h, w, C]."""
