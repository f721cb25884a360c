"""Trained generators for pictures of any size, and for what pictures come as: files, Pillow images, arrays."""

import math
import os
from typing import Optional, Union, overload

import numpy as np
import tensorflow as tf
from PIL import Image

from cyclegan.config.data import MIN_SIDE
from cyclegan.config.directions import DIRECTIONS
from cyclegan.errors import UserError
from cyclegan.images import geometry, pillow_reader, reader
from cyclegan.images.image import DecodedImage
from cyclegan.images.value_range import from_float, to_float
from cyclegan.inference.restore import restore

TILE = 1536  # pictures of more pixels than a square of this side are translated in tiles
OVERLAP = 128  # pixels that two tiles beside each other have in common
Path = Union[str, "os.PathLike[str]"]
Size = tuple[int, int]  # width and height in pixels
LEAST_TILE = 4 * OVERLAP


class Translator:
    """A generator on one device, for pictures of any size.

    Pictures are mirrored at their edges to a size that the network takes, and cropped back. Those of more than tile x tile pixels
    are translated in overlapping tiles, between which the result fades from one to the next, in bounded memory; each instance
    normalization then sees one tile only, so that colours may drift between distant tiles.

    Args:
        network: a Keras model of float32 [N, H, W, C] in [-1, 1], H and W multiples of `multiple`.
        device: TensorFlow's name of the device, on which the network's variables are; `None` is where TensorFlow puts it.
        tile: the side of the largest square that is translated at once, in pixels; at least `LEAST_TILE`.
    """

    def __init__(self, network, multiple, device=None, tile=TILE):
        if tile < LEAST_TILE:
            raise UserError(f"--tile {tile}: expected at least {LEAST_TILE} pixels")
        self.multiple, self.tile = multiple, tile
        self.inputs, self.outputs = network.input_shape[-1], network.output_shape[-1]
        self._network, self._device = network, device
        self._compiled = {}  # by type

    def __call__(self, pictures):
        """uint8 or uint16 [N, h, w, C], or float32 in [-1, 1] -> the same type [N, h, w, outputs]."""
        height, width = pictures.shape[1:3]
        if height * width > self.tile**2:
            return np.stack([self._in_tiles(picture) for picture in pictures])
        return _to_type(self._float(pictures), pictures.dtype)

    def _float(self, pictures):
        """As the network gives it: float32 [N, h, w, outputs]."""
        before, after = zip(*(_padding(side, self.multiple) for side in pictures.shape[1:3]))
        padded = np.pad(pictures, ((0, 0), *zip(before, after), (0, 0)), mode="reflect")
        translated = self._function(pictures.dtype)(tf.constant(padded)).numpy()
        (top, left), (height, width) = before, pictures.shape[1:3]
        return translated[:, top : top + height, left : left + width]

    def _function(self, dtype):
        """What the network makes of pictures of a type. Traced once, for any number of any size."""
        if dtype not in self._compiled:

            def call(pictures):
                with tf.device(self._device):
                    pictures = pictures if dtype == np.float32 else to_float(pictures)
                    return self._network(pictures, training=False)

            signature = tf.TensorSpec([None, None, None, self.inputs], dtype)
            self._compiled[dtype] = tf.function(call).get_concrete_function(signature)
        return self._compiled[dtype]

    def _in_tiles(self, picture):
        """[h, w, C] -> [h, w, outputs]. Beside the two it keeps no more than a row of tiles."""
        height, width = picture.shape[:2]
        result = np.empty((height, width, self.outputs), picture.dtype)
        columns = _spans(width, self.tile)
        rows = _spans(height, self.tile)
        above = np.zeros((0, width, self.outputs), np.float32)  # what the row of tiles before gives to this one
        for (top, bottom, down), following in zip(rows, [*(row[0] for row in rows[1:]), height]):
            strip = np.zeros((bottom - top, width, self.outputs), np.float32)
            for left, right, across in columns:
                tile = self._float(picture[None, top:bottom, left:right])[0]
                strip[:, left:right] += tile * (down[:, None] * across)[..., None]
            strip[: len(above)] += above
            result[top:following] = _to_type(strip[: following - top], picture.dtype)
            above = strip[following - top :]
        return result


class Model:
    """The generators of a run, for use: `model = cyclegan.load("runs/horse2zebra")`, `model.x2y("horse.jpg").save("zebra.png")`.

    `config`, `checkpoint`, `progress`: see `trained.RestoredRun`. `tile`: see `Translator`.

    Args:
        run: the run's folder.
        checkpoint: the name of one of its checkpoints, "epoch_0010" say; by default the newest that can be read.
        precision: "float32", "bfloat16" or "float16"; by default what the run was trained in.
        tile: the side of the largest square that is translated at once, in pixels.
        device: TensorFlow's name of the device to compute on; by default the first GPU, or the CPU.

    Raises:
        UserError: it is no run's folder, or one of the other TensorFlow, or without such a checkpoint.
    """

    def __init__(
        self,
        run: Path,
        checkpoint: Optional[str] = None,
        precision: Optional[str] = None,
        tile: int = TILE,
        device: Optional[str] = None,
    ) -> None:
        self._trained = restore(run, checkpoint, precision, device=device)
        found = self._trained
        self.config, self.checkpoint, self.progress = found.config, found.checkpoint, found.progress
        self.tile = tile
        self._translators = {
            direction: Translator(found.network(direction), found.config.networks.multiple, device, tile)
            for direction in DIRECTIONS
        }

    @overload
    def x2y(self, image: np.ndarray, size: Optional[Size] = None) -> np.ndarray: ...

    @overload
    def x2y(self, image: Union[Image.Image, Path], size: Optional[Size] = None) -> Image.Image: ...

    def x2y(self, image, size=None):
        """Translates a picture of X to Y, or several.

        Args:
            image: a path; a Pillow image; or a NumPy array, uint8 [0, 255], uint16 [0, 65535] or float32 [-1, 1], of shape
                [h, w, C], [N, h, w, C], or [h, w] where C is 1.
            size: (width, height) in pixels that it is resized to first; by default it keeps its own.

        Returns:
            What it was given, translated: a Pillow image, of a path too, or an array of the same type. Opacity is that of the
            original.

        Raises:
            UserError: a file can't be read, or Pillow has no images of what comes out.
            ValueError, TypeError: it is nothing of the above.
        """
        return self._translate("x2y", image, size)

    @overload
    def y2x(self, image: np.ndarray, size: Optional[Size] = None) -> np.ndarray: ...

    @overload
    def y2x(self, image: Union[Image.Image, Path], size: Optional[Size] = None) -> Image.Image: ...

    def y2x(self, image, size=None):
        """Translates a picture of Y to X; as `x2y`."""
        return self._translate("y2x", image, size)

    def translator(self, direction):
        """The `Translator` of "x2y" or "y2x"."""
        return self._translators[direction]

    def _translate(self, direction, image, size):
        translator = self._translators[direction]
        if isinstance(image, np.ndarray):
            return _translate_array(translator, image, size)
        if isinstance(image, Image.Image):
            if translator.inputs not in (1, 3):
                raise ValueError(f"a Pillow image: expected an array of {translator.inputs} channels")
            picture = pillow_reader.from_pillow(image, translator.inputs)
        elif isinstance(image, (str, os.PathLike)):
            picture = read(image, translator.inputs)
        else:
            raise TypeError(f"{type(image).__name__}: expected a path, a Pillow image or a NumPy array")
        return to_pillow(translate_picture(translator, picture, size))


load = Model  # `cyclegan.load`


def read(path, channels):
    """The `DecodedImage` of a file.

    Raises:
        UserError: it can't be read.
    """
    try:
        return reader.decode_whole(path, channels)
    except Exception as error:  # Pillow's decoders raise almost anything on a damaged file
        raise UserError(f"{path} can't be read ({error}): expected a picture of {channels} channels") from error


def translate_picture(translator, picture, size=None):
    """`DecodedImage` -> `DecodedImage`. `size`: (width, height) in pixels that it is resized to first."""
    picture = resized(picture, size)
    pixels = translator(picture.pixels[None])[0]
    return translated(picture, pixels)


def translated(picture, pixels):
    """The `DecodedImage` of the translation of another one: with its opacity, and its profile if that is of such colours."""
    space = {1: b"GRAY", 3: b"RGB "}.get(pixels.shape[2])
    return DecodedImage(pixels, picture.opacity, picture.profile if picture.profile[16:20] == space else b"")


def resized(picture, size):
    """A `DecodedImage` in another size, (width, height) in pixels; `None` is its own.

    Raises:
        UserError: that is no size.
    """
    if size is None:
        return picture
    check_size(size)
    opacity = None if picture.opacity is None else geometry.resize(picture.opacity, size[::-1])
    return DecodedImage(geometry.resize(picture.pixels, size[::-1]), opacity, picture.profile)


def check_size(size):
    """Raises UserError if it is not (width, height), whole numbers of at least 1."""
    if not (isinstance(size, (tuple, list)) and len(size) == 2 and all(isinstance(n, int) and n > 0 for n in size)):
        raise UserError(f"size {size!r}: expected (width, height) in pixels")


def to_pillow(picture):
    """A Pillow image of a `DecodedImage`.

    Raises:
        UserError: there are none of so many channels or bits.
    """
    channels, clear = picture.pixels.shape[2], picture.opacity is not None
    deep = picture.pixels.dtype == np.uint16
    if channels not in (1, 3) or (deep and (channels > 1 or clear)):
        what = f"{channels} channels of {16 if deep else 8} bits{' and opacity' if clear else ''}"
        raise UserError(f"Pillow has no images of {what}: expected an array, or use cyclegan.translate for files")
    parts = [picture.pixels, picture.opacity] if clear else [picture.pixels]
    pixels = np.concatenate(parts, axis=2)
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    if picture.profile:
        image.info["icc_profile"] = picture.profile
    return image


def _translate_array(translator, array, size):
    shape = array.shape
    if array.ndim == 2 and translator.inputs == 1:
        array = array[..., None]
    pictures = array if array.ndim == 4 else array[None]
    if pictures.ndim != 4 or pictures.shape[-1] != translator.inputs or 0 in pictures.shape:
        raise ValueError(
            f"an array of shape {shape}: expected [h, w, {translator.inputs}] or [N, h, w, {translator.inputs}]"
        )
    if pictures.dtype not in (np.uint8, np.uint16, np.float32):
        raise ValueError(f"an array of {array.dtype}: expected uint8 [0, 255], uint16 [0, 65535] or float32 [-1, 1]")
    if pictures.dtype == np.float32 and not (np.abs(pictures) <= 1 + 1e-3).all():
        raise ValueError(f"an array of values from {pictures.min()} to {pictures.max()}: expected float32 in [-1, 1]")
    if size is not None:
        if pictures.dtype == np.float32:
            raise ValueError("size with a float32 array: expected uint8 or uint16, or resize it before")
        check_size(size)
        pictures = np.stack([geometry.resize(picture, size[::-1]) for picture in pictures])
    translated = translator(pictures)
    translated = translated if array.ndim == 4 else translated[0]
    return translated[..., 0] if len(shape) == 2 and translator.outputs == 1 else translated


def _to_type(pictures, dtype):
    return pictures if dtype == np.float32 else from_float(pictures, dtype)


def _padding(side, multiple):
    """(before, after): how many pixels make a side one that the networks take."""
    missing = max(math.ceil(side / multiple), math.ceil(MIN_SIDE / multiple)) * multiple - side
    return missing // 2, missing - missing // 2


def _spans(length, tile):
    """The tiles along a side: (start, stop, weights float32 [stop - start]), of at most `tile` pixels.

    Each has `OVERLAP` pixels in common with the next, over which its weights fall to 0 while those of the next rise to 1.
    """
    count = 1 if length <= tile else math.ceil(length / (tile - OVERLAP))
    ends = [round(i * length / count) for i in range(count + 1)]
    rising = (np.arange(OVERLAP, dtype=np.float32) + 0.5) / OVERLAP
    spans = []
    for first, last in zip(ends, ends[1:]):
        start, stop = max(first - OVERLAP // 2, 0), min(last + OVERLAP // 2, length)
        weights = np.ones(stop - start, np.float32)
        if start:
            weights[:OVERLAP] = rising
        if stop < length:
            weights[-OVERLAP:] = 1 - rising
        spans.append((start, stop, weights))
    return spans
