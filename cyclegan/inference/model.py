"""The generators of a run, restored from its folder; `cyclegan.load` adds scores and exports."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import tensorflow as tf
from PIL import Image

from cyclegan.config import serialization
from cyclegan.config.sections import DIRECTIONS
from cyclegan.data import folder_source
from cyclegan.distribution.strategy import allow_memory_growth, device_names
from cyclegan.errors import UserError, check_path, counted, describe_missing, printable
from cyclegan.images import reader
from cyclegan.images.image import ImageError
from cyclegan.images.value_range import to_float
from cyclegan.inference import conversions, tiles
from cyclegan.inference.conversions import PRECISIONS, TILE, Path, Size
from cyclegan.networks import compat, generators, normalization
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.run_directory import refuse_other_stack, saved_checkpoints, split_checkpoint

logger = logging.getLogger(__name__)


class Model:
    """Translate files, Pillow images and arrays with the generators of a run, restored from its folder alone.

    Nothing is written. If TensorFlow has not started yet, it allocates the memory of GPUs as needed from then on, so
    that other programs may use them.

    Args:
        run: Folder of the run, or RUN/checkpoints/NAME.
        checkpoint: Name of a checkpoint, such as "epoch_0010" or "best-x2y"; by default the newest that can be read.
        precision: "float32", "bfloat16" or "float16", in which the generators compute, whatever the training did.
        tile: Side in pixels of the largest square that is translated at once.
        device: TensorFlow's name of the device to compute on; by default the first GPU, or the CPU.

    Attributes:
        path: Folder of the run.
        config: Configuration of the run.
        generators: Keras model of each direction, "x2y" and, if the objective has it, "y2x", with EMA weights if the
            run has them (--ema). Images are float32 [N, H, W, C] in [-1, 1]; H and W are multiples of
            `config.networks.multiple`.
        checkpoint: Folder of the checkpoint.
        train_state: Position in training.
        tile: See above.

    Raises:
        UserError: The folder holds no run, or one of another stack; or the checkpoint does not exist or cannot be read.
    """

    def __init__(
        self,
        run: Path,
        checkpoint: str | None = None,
        precision: str = "float32",
        tile: int = TILE,
        device: str | None = None,
    ) -> None:
        check_path(run)
        conversions.check_tile(tile)
        if precision not in PRECISIONS:
            raise UserError(f"precision {precision!r}: expected one of {', '.join(PRECISIONS)}")
        self.path, name = split_checkpoint(run)
        if not self.path.is_dir():
            raise UserError(f"{run}: {describe_missing(self.path)}; expected the folder of a run, see --output_dir")
        saved = serialization.load(self.path / "config.json")
        refuse_other_stack(self.path, saved.stack, compat.stack())
        self.config, self.tile, self._device = saved.config, tile, device
        suffix = "_ema" if self.config.optimization.ema else ""
        allow_memory_growth()
        known = [each.name.rpartition("device:")[2] for each in tf.config.list_logical_devices()]
        if device is not None and str(device).upper().rpartition("DEVICE:")[2].lstrip("/") not in known:
            raise UserError(f"device {device!r}: expected one of {', '.join(known)}")
        with tf.device(device), compat.precision_policy(precision):
            self.generators = {
                direction: generators.make_generator(
                    self.config.networks, *self.channels(direction), name=pair.generator + suffix
                )
                for direction, pair in zip(self.config.objective.directions, self.config.objective.adversaries)
            }
        self._functions: dict[tuple[str, np.dtype], tiles.Network] = {}
        networks = {network.name: network for network in self.generators.values()}
        self._checkpoints = CheckpointManager(self.path / "checkpoints", networks)
        self.restore(checkpoint or name)
        state = self.train_state
        if not (saved.imported or self.config.run.init_from) and not (state.epoch and state.step):
            steps = counted(state.step, "step")
            logger.warning(
                f"{self.checkpoint} is from the first epoch, after {steps} of training, so its networks are hardly"
                " trained; expected a later one"
            )

    def restore(self, checkpoint: str | None = None) -> None:
        """Restore a checkpoint into the generators, by name; by default the newest that can be read.

        Raises:
            UserError: The checkpoint does not exist or cannot be read.
        """
        found = self._checkpoints.restore("" if checkpoint is None else str(checkpoint), strict=False)
        if not found:
            raise UserError(f"{self.path}: no checkpoint yet; expected a run that has begun to train: train it first")
        self.train_state, self.checkpoint = found

    @overload
    def x2y(self, image: np.ndarray, size: Size | int | None = None) -> np.ndarray: ...

    @overload
    def x2y(self, image: Image.Image | Path, size: Size | int | None = None) -> Image.Image: ...

    @overload
    def x2y(self, image: list[Any], size: Size | int | None = None) -> list[Any]: ...

    def x2y(self, image: Any, size: Size | int | None = None) -> Any:
        """Translate one or several images from X to Y.

        Args:
            image: A path; or a Pillow image; or an array, uint8 [0, 255], uint16 [0, 65535] or float32 [-1, 1], of
                shape [h, w, C], [N, h, w, C], or [h, w] if C is 1; or a list of these; or a folder.
            size: (width, height) in pixels to resize to first, or a number for both; by default as the image.

        Returns:
            A Pillow image for a path or a Pillow image, with the opacity of the original; an array of the same type for
            an array; a list for a list; for a folder, a dict of the translations of its images by name, such as
            "sub/1.png". With value ranges, Pillow images hold values; the lowest and highest numbers of arrays stand
            for LO and HI. Where Pillow has no images of the result, such as 3 channels of 16 bits, it is an array of
            values [h, w, C], with the opacity as the last channel if there is one; a warning names the file.

        Raises:
            UserError: The file cannot be read; or the folder has no images; or the array or Pillow image does not fit;
                or `image` is none of these.
        """
        return self._translate("x2y", image, size)

    @overload
    def y2x(self, image: np.ndarray, size: Size | int | None = None) -> np.ndarray: ...

    @overload
    def y2x(self, image: Image.Image | Path, size: Size | int | None = None) -> Image.Image: ...

    @overload
    def y2x(self, image: list[Any], size: Size | int | None = None) -> list[Any]: ...

    def y2x(self, image: Any, size: Size | int | None = None) -> Any:
        """Translate one or several images from Y to X; see `x2y`. One-way objectives have no generator for this."""
        return self._translate("y2x", image, size)

    def _translate(self, direction: str, image: Any, size: Size | int | None) -> Any:
        if isinstance(image, (list, tuple)):
            return [self._translate(direction, each, size) for each in image]
        if isinstance(image, (str, os.PathLike)):
            check_path(image)
        if isinstance(image, (str, os.PathLike)) and os.path.isdir(image):
            names = folder_source.find_images(image)
            if not names:
                known = " ".join(folder_source.EXTENSIONS)
                raise UserError(f"{printable(image)}: no images; expected at least one of {known}")
            return self._translate_folder(direction, image, names, size)
        channels = self.channels(direction)[0]
        if size is not None:
            size = conversions.check_size(size)
        if isinstance(image, np.ndarray):
            return conversions.like_array(image, self.translate(direction, conversions.as_batch(image, channels, size)))
        ranges = self.value_ranges(direction)
        decoded = conversions.decode(image, channels, bool(ranges[0]), self.config.data.nodata)
        with contextlib.suppress(ImageError):  # later images may be damaged
            number = 1 if isinstance(image, Image.Image) else reader.count(image, channels)
            if number > 1:
                logger.warning(f"{printable(image)}: the first of {number} images; cyclegan.translate translates all")
        original = conversions.to_network(decoded, ranges, size)
        made = conversions.to_pillow(original, self.translate(direction, original.pixels[None])[0], ranges)
        if isinstance(made, np.ndarray):
            what = f"{made.shape[2]} channels of {made.dtype}"
            logger.warning(f"{printable(image)}: its translation is an array, because Pillow has no images of {what}")
        return made

    def _translate_folder(self, direction: str, folder: Any, names: Sequence[str], size: Any) -> dict[str, Any]:
        """Translate a folder; warn of images that can't be read, and raise the error of the last one if none can."""
        made = {}
        for name in names:
            try:
                made[name] = self._translate(direction, os.path.join(folder, name), size)
            except UserError as error:
                if not made and name == names[-1]:
                    raise
                logger.warning(f"left out: {error}")
        return made

    def translate(self, direction: str, images: np.ndarray, progress: tiles.Progress = lambda _: None) -> np.ndarray:
        """Translate a batch: uint8, uint16, or float32 in [-1, 1], [N, h, w, C]; see `tiles.translate`."""
        return tiles.translate(images, self.network(direction, images.dtype), self.tile, progress)

    def translate_rows(
        self, direction: str, read: Callable[[slice], np.ndarray], size: tuple[int, int], progress: tiles.Progress
    ) -> Iterator[np.ndarray]:
        """Translate an image of any size that is read row by row; see `tiles.TiledImage`."""
        network = self.network(direction, np.dtype(np.float32))
        return tiles.TiledImage(read, size, network, self.tile, progress).translate()

    def network(self, direction: str, dtype: np.dtype) -> tiles.Network:
        """Return the generator for images of a type, compiled once for all numbers and sizes."""
        generator, (channels, translated) = self.generator(direction), self.channels(direction)
        if (direction, dtype) not in self._functions:
            widths = normalization.widths(generator)

            def call(images: tf.Tensor) -> tf.Tensor:
                with tf.device(self._device):
                    return generator(images if dtype == np.float32 else to_float(images), training=False)

            def measure(*arguments: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
                with tf.device(self._device):
                    return normalization.call_with_moments(generator, *arguments)

            shape, moments = [None, None, None, channels], [tf.TensorSpec([2, width]) for width in widths]
            others = [moments, tf.TensorSpec([4], tf.int32), tf.TensorSpec([], tf.bool)]
            self._functions[direction, dtype] = tiles.Network(
                tf.function(call, [tf.TensorSpec(shape, dtype)]),
                tf.function(measure, [tf.TensorSpec(shape), *others]),
                widths,
                translated,
                self.config.networks.multiple,
                self.config.networks.reach,
            )
        return self._functions[direction, dtype]

    def generator(self, direction: str) -> tf.keras.Model:
        """Return the generator of a direction, "x2y" or "y2x"; raise `UserError` if the run has none."""
        conversions.check_direction(self.config, direction)
        return self.generators[direction]

    def channels(self, direction: str) -> tuple[int, int]:
        """Return the numbers of channels of the originals and of the translations of a direction."""
        x, y = self.config.data.channels_x, self.config.data.channels_y
        return (x, y) if direction == "x2y" else (y, x)

    def value_ranges(self, direction: str) -> conversions.Ranges:
        """Return the value ranges of the originals and of the translations of a direction."""
        source, target = DIRECTIONS[direction]
        return self.config.data.value_range(source), self.config.data.value_range(target)


def checkpoint_names(run: pathlib.Path) -> list[str]:
    """Return the names of all checkpoints of a run, the oldest first."""
    return [path.name for path in saved_checkpoints(run / "checkpoints", "*")]


def load_on_devices(
    run: Path,
    checkpoint: str | None = None,
    tile: int = TILE,
    devices: int | None = None,
    precision: str = "float32",
) -> list[Model]:
    """Load the same checkpoint of a run on several devices: GPUs, by default all, or logical CPU devices."""
    models: list[Model] = []
    for device in device_names(devices):
        models.append(Model(run, checkpoint, precision, tile, device))
        checkpoint = models[0].checkpoint.name  # training may save a newer one meanwhile
    return models
