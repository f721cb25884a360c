"""The generators of a run, for use from Python: `model = cyclegan.load("runs/horse2zebra")`."""

from __future__ import annotations

import dataclasses
from typing import Any, overload

import numpy as np
from PIL import Image

from cyclegan.distribution.strategy import device_names
from cyclegan.images.value_range import image_to_values, to_depth
from cyclegan.inference import conversions
from cyclegan.inference.conversions import Path, Size
from cyclegan.inference.restore import refuse_missing, restore
from cyclegan.inference.tiles import TILE
from cyclegan.inference.translator import Translator


class Model:
    """Translate files, Pillow images and arrays with the generators of a run.

    Args:
        run: Folder of the run.
        checkpoint: Name of a checkpoint, such as "epoch_0010"; by default the newest that can be read.
        precision: "float32", "bfloat16" or "float16"; by default the precision of the training.
        tile: Side in pixels of the largest square that is translated at once.
        device: TensorFlow's name of the device to compute on; by default the first GPU, or the CPU.

    Attributes:
        config: Configuration of the run.
        checkpoint: Folder of the checkpoint.
        train_state: Position in training.
        tile: See above.

    Raises:
        UserError: The folder holds no run, or one of another stack; or the checkpoint does not exist.
    """

    def __init__(
        self,
        run: Path,
        checkpoint: str | None = None,
        precision: str | None = None,
        tile: int = TILE,
        device: str | None = None,
    ) -> None:
        self._restored = restore(run, checkpoint, precision, device)
        self.config, self.checkpoint = self._restored.config, self._restored.checkpoint
        self.train_state = self._restored.train_state
        self.tile = tile
        self._translators = {
            direction: Translator(self._restored.generator(direction), self.config.networks.multiple, device, tile)
            for direction in self.config.objective.directions
        }

    @overload
    def x2y(self, image: np.ndarray, size: Size | None = None) -> np.ndarray: ...

    @overload
    def x2y(self, image: Image.Image | Path, size: Size | None = None) -> Image.Image: ...

    def x2y(self, image: Any, size: Size | None = None) -> Any:
        """Translate one or several images from X to Y.

        Args:
            image: A path; or a Pillow image; or an array, uint8 [0, 255], uint16 [0, 65535] or float32 [-1, 1], of shape
                [h, w, C], [N, h, w, C], or [h, w] if C is 1.
            size: (width, height) in pixels to resize to first; by default the image keeps its size.

        Returns:
            A Pillow image for a path or a Pillow image, with the opacity of the original; an array of the same type for an array.
            With value ranges, Pillow images hold values; the lowest and highest numbers of arrays stand for LO and HI.

        Raises:
            UserError: The file cannot be read, or Pillow does not support the channels of the result.
            ValueError: The array or Pillow image does not fit.
            TypeError: `image` is none of these.
        """
        return self._translate("x2y", image, size)

    @overload
    def y2x(self, image: np.ndarray, size: Size | None = None) -> np.ndarray: ...

    @overload
    def y2x(self, image: Image.Image | Path, size: Size | None = None) -> Image.Image: ...

    def y2x(self, image: Any, size: Size | None = None) -> Any:
        """Translate one or several images from Y to X; see `x2y`. An objective of one direction has no such generator."""
        return self._translate("y2x", image, size)

    def translator(self, direction: str) -> Translator:
        """Return the translator of a direction, "x2y" or "y2x".

        Raises:
            UserError: The run has no generator of this direction.
        """
        refuse_missing(self._restored.path, self.config.objective, direction)
        return self._translators[direction]

    def value_ranges(self, direction: str) -> conversions.Ranges:
        """Return the value ranges of the originals and of the translations of a direction."""
        source, target = direction.split("2")
        return self.config.data.value_range(source), self.config.data.value_range(target)

    def _translate(self, direction: str, image: Any, size: Size | None) -> Any:
        translator = self.translator(direction)
        if isinstance(image, np.ndarray):
            images = conversions.resize_batch(conversions.as_batch(image, translator.channels_in), size)
            return conversions.like_batch(image, translator(images))
        ranges = self.value_ranges(direction)
        decoded = conversions.resize(conversions.decode(image, translator.channels_in, ranges), size)
        translated = conversions.with_pixels(decoded, translator(decoded.pixels[None])[0])
        if ranges[1]:  # Pillow has no floats of several channels
            fractional = translated.fractional and translated.pixels.shape[2] == 1
            translated = image_to_values(translated, ranges[1], fractional)
        elif ranges[0] and (translated.pixels.shape[2] > 1 or translated.opacity is not None):  # nor 16 bits of these
            opacity = None if translated.opacity is None else to_depth(translated.opacity, np.uint8)
            translated = dataclasses.replace(translated, pixels=to_depth(translated.pixels, np.uint8), opacity=opacity)
        return conversions.to_pillow(translated)


load = Model  # `cyclegan.load`


def load_on_devices(
    run: Path, checkpoint: str | None = None, tile: int = TILE, devices: int | None = None
) -> list[Model]:
    """Load the same checkpoint of a run on several devices.

    Args:
        run: Folder of the run.
        checkpoint: Name of a checkpoint; by default the newest that can be read.
        tile: Side in pixels of the largest square that is translated at once.
        devices: Number of GPUs, or of logical CPU devices; by default all GPUs.
    """
    models: list[Model] = []
    for device in device_names(devices):
        models.append(Model(run, checkpoint, tile=tile, device=device))
        checkpoint = models[0].checkpoint.name  # training may save a newer one meanwhile
    return models
