"""A generator on one device, for images of any size."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from cyclegan.config.data import MIN_SIDE
from cyclegan.errors import UserError
from cyclegan.images.value_range import from_float, to_float
from cyclegan.inference.tiles import MIN_TILE, TILE, translate_strips


class Translator:
    """Translate images of any size with a generator.

    Images are mirrored at their edges to a size that the network accepts, and the result is cropped back. Images of more than
    tile x tile pixels are translated in overlapping tiles, in bounded memory. Each instance normalization then sees one tile only,
    so colors may drift between distant tiles.

    Args:
        network: Keras model of float32 [N, H, W, C] in [-1, 1].
        multiple: Pixels by which the sides of the network's input must be divisible.
        device: TensorFlow's name of the device that has the variables of the network; by default TensorFlow chooses.
        tile: Side in pixels of the largest square that is translated at once; at least `MIN_TILE`.

    Attributes:
        channels_in: Number of channels of the images to translate.
        channels_out: Number of channels of the translations.
        multiple: See above.
        tile: See above.
    """

    def __init__(self, network: tf.keras.Model, multiple: int, device: str | None = None, tile: int = TILE) -> None:
        if tile < MIN_TILE:
            raise UserError(f"--tile {tile}: expected at least {MIN_TILE} pixels")
        self.multiple, self.tile = multiple, tile
        self.channels_in: int = network.input_shape[-1]
        self.channels_out: int = network.output_shape[-1]
        self._network, self._device = network, device
        self._functions: dict[np.dtype, tf.types.experimental.ConcreteFunction] = {}

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """Translate images.

        Args:
            images: uint8, uint16, or float32 in [-1, 1]: [N, h, w, channels_in].

        Returns:
            The same type, [N, h, w, channels_out].
        """
        height, width = images.shape[1:3]
        if height * width > self.tile**2:
            return np.stack([self._translate_in_tiles(image) for image in images])
        return _to_dtype(self._translate_to_float(images), images.dtype)

    def _translate_to_float(self, images: np.ndarray) -> np.ndarray:
        """Return the output of the network, float32 [N, h, w, channels_out]."""
        before, after = zip(*(_padding(side, self.multiple) for side in images.shape[1:3]))
        padded = np.pad(images, ((0, 0), *zip(before, after), (0, 0)), mode="reflect")
        translated = self._function(images.dtype)(tf.constant(padded)).numpy()
        (top, left), (height, width) = before, images.shape[1:3]
        return translated[:, top : top + height, left : left + width]

    def _translate_in_tiles(self, image: np.ndarray) -> np.ndarray:
        result = np.empty((*image.shape[:2], self.channels_out), image.dtype)
        for top, strip in translate_strips(image, self._translate_to_float, self.tile, self.channels_out):
            result[top : top + len(strip)] = _to_dtype(strip, image.dtype)
        return result

    def _function(self, dtype: np.dtype) -> tf.types.experimental.ConcreteFunction:
        """Return the compiled network for images of a type, traced once for all numbers and sizes."""
        if dtype not in self._functions:

            def call(images: tf.Tensor) -> tf.Tensor:
                with tf.device(self._device):
                    images = images if dtype == np.float32 else to_float(images)
                    return self._network(images, training=False)

            signature = tf.TensorSpec([None, None, None, self.channels_in], dtype)
            self._functions[dtype] = tf.function(call).get_concrete_function(signature)
        return self._functions[dtype]


def _to_dtype(images: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return images if dtype == np.float32 else from_float(images, dtype)


def _padding(side: int, multiple: int) -> tuple[int, int]:
    """Return the numbers of pixels (before, after) that make a side acceptable to the network."""
    missing = max(math.ceil(side / multiple), math.ceil(MIN_SIDE / multiple)) * multiple - side
    return missing // 2, missing - missing // 2
