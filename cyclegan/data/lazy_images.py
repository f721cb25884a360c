"""Images that are decoded when they are used, and kept from then on."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import numpy as np

from cyclegan.data.cache import Store
from cyclegan.errors import TrainingError
from cyclegan.images.image_array import ShapeOfImages

MAX_DECODING = 64  # images that are decoded at the same time


class LazyImages:
    """Images that are indexed like an array [N, h, w, C], from any thread.

    Args:
        decode: Function from an index to an image. The texts of its errors name the image and the reason.
        shape: (N, h, w, C); h and w are `None` if they differ between the images.
        sizes: Height and width of each image in pixels, int [N, 2].
        dtype: Type of the pixels.
        store: Store of the decoded images; `None` decodes them at every use.

    Attributes:
        shape: (N, h, w, C).
        dtype: Type of the pixels.
        failure: Text of the first error; `None` if there was none.
    """

    def __init__(
        self,
        decode: Callable[[int], np.ndarray],
        shape: ShapeOfImages,
        sizes: np.ndarray,
        dtype: np.dtype | type,
        store: Store | None = None,
    ) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.failure: str | None = None
        self._decode = decode
        self._sizes = sizes
        self._store = store
        self._keys = np.full(len(self) if store else 0, -1, np.int64)  # keys in the store; -1 if not stored
        self._locks = [threading.Lock() for _ in range(MAX_DECODING)]

    def __len__(self) -> int:
        """Return the number of images."""
        return self.shape[0]

    def __getitem__(self, index: int) -> np.ndarray:
        """Return an image: [h, w, C].

        Raises:
            TrainingError: The image cannot be decoded.
        """
        index = range(len(self))[index]
        if self._store is None:
            return self._decode_or_fail(index)
        image = self._stored(self._store, index)
        if image is None:
            with self._locks[index % MAX_DECODING]:
                image = self._stored(self._store, index)  # another thread may have been faster
                if image is None:
                    image = self._decode_or_fail(index)
                    self._keys[index] = self._store.write(image)
        return image

    def _stored(self, store: Store, index: int) -> np.ndarray | None:
        key = self._keys[index]
        if key < 0:
            return None
        shape = (*map(int, self._sizes[index]), self.shape[3])
        content = store.read(key, math.prod(shape) * self.dtype.itemsize)
        return None if content is None else np.frombuffer(content, self.dtype).reshape(shape)

    def _decode_or_fail(self, index: int) -> np.ndarray:
        try:
            return self._decode(index)
        except Exception as error:  # every error ends training, and has to name the image
            text = f"an image cannot be decoded: {error}; repair it or put it back, then the same command resumes"
            self.failure = self.failure or text
            raise TrainingError(text) from error
