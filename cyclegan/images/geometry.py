"""Sizes of images: orientation, resizing, and the modes of --preprocess.

The modes equal the ones of pytorch-CycleGAN-and-pix2pix (`data/base_dataset.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from PIL import Image

from cyclegan.config.data import MIN_SIDE, DataConfig
from cyclegan.errors import UserError


def known_orientation(value: object) -> int:
    """Return a value of EXIF's orientation if it is one of 1 to 8, otherwise 1: files may hold any number or text."""
    return next((known for known in range(2, 9) if value == known), 1)


def upright_xmp(xmp: str | bytes) -> bytes:
    """Return XMP data that say of an image that it is upright."""
    return re.sub(rb'(tiff:Orientation(?:="|>))\d', rb"\g<1>1", xmp if isinstance(xmp, bytes) else xmp.encode())


def upright(image: np.ndarray, orientation: int) -> np.ndarray:
    """Return a view of an image [h, w, C], rotated and mirrored as EXIF's orientation, 1 to 8, requires."""
    # `reorient` of tifffile is not public, and exchanges 7 and 8 in version 2024.8.30.
    if orientation in (5, 6, 7, 8):
        image = image.swapaxes(0, 1)
    row_step = -1 if orientation in (3, 4, 7, 8) else 1
    column_step = -1 if orientation in (2, 3, 6, 7) else 1
    return image[::row_step, ::column_step]


def resize(image: np.ndarray, size: tuple[int, int], is_mask: bool = False) -> np.ndarray:
    """Resize an image, uint8 or uint16 [h, w, C], to (height, width) with Pillow's bicubic filter without aliasing.

    A mask, uint8 [h, w, 1], takes the nearest pixels.
    """
    height, width = size
    if image.shape[:2] == (height, width):
        return image
    if is_mask:
        return np.asarray(Image.fromarray(image[..., 0]).resize((width, height), Image.Resampling.NEAREST))[..., None]
    channels = image.shape[2]
    if image.dtype == np.uint8 and channels in (1, 3):
        whole = Image.fromarray(image[..., 0] if channels == 1 else image)
        return np.asarray(whole.resize((width, height), Image.Resampling.BICUBIC)).reshape(height, width, channels)
    # Pillow has no 16-bit RGB and no more than four bands, but it resizes a band of floats.
    bands = (Image.fromarray(image[..., band].astype(np.float32)) for band in range(channels))
    resized = np.stack([np.asarray(band.resize((width, height), Image.Resampling.BICUBIC)) for band in bands], axis=-1)
    return np.rint(np.clip(resized, 0, np.iinfo(image.dtype).max)).astype(image.dtype)


def resized_sizes(data: DataConfig, multiple: int, sizes: np.ndarray, training: bool) -> np.ndarray:
    """Return the sizes to which images of these sizes are resized, both as (height, width), int [N, 2].

    Crops come afterwards; `resize_and_crop` crops training images only. The sides of the networks' input must be
    divisible by `multiple`.
    """
    if data.preprocess == "resize_and_crop":
        return np.broadcast_to(data.load_shape if training else data.image_shape, sizes.shape)
    if data.preprocess.startswith("scale_width"):
        heights, widths = sizes[:, 0].astype(np.int64), sizes[:, 1].astype(np.int64)
        heights = np.maximum(data.load_size * heights // widths, data.image_size)
        sizes = np.stack([heights, np.full_like(heights, data.load_size)], axis=1)
    if "crop" in data.preprocess:
        return sizes
    return np.maximum(np.rint(sizes / multiple).astype(np.int64), 1) * multiple


def final_size(data: DataConfig, sizes: np.ndarray, resized: np.ndarray, names: Sequence[str]) -> tuple[int, int]:
    """Return the (height, width) in pixels of every image that the networks see.

    `sizes` are the heights and widths of the images of all splits, int [N, 2], before they become `resized`.

    Raises:
        UserError: An image is smaller than the crop; or, without a crop, images differ in size or are too small.
    """

    def describe(i: int) -> str:
        change = "" if (sizes[i] == resized[i]).all() else f", resized to {format_size(resized[i])}"
        return f"{names[i]} ({format_size(sizes[i])}{change})"

    if "crop" in data.preprocess:
        if len(small := np.flatnonzero((resized < data.image_shape).any(axis=1))):
            raise UserError(
                f"--preprocess {data.preprocess}: {len(small)} images are smaller than the crop, for example"
                f" {describe(small[0])}; expected at least {format_size(data.image_shape)}: use a smaller --image_size,"
                " or --preprocess resize_and_crop"
            )
        return data.image_shape
    if len(other := np.flatnonzero((resized != resized[0]).any(axis=1))):
        raise UserError(
            f"--preprocess {data.preprocess}: {describe(0)} and {describe(other[0])} differ in size; expected one"
            " size for all images of both domains, because a training step is compiled for one size, also with"
            " --batch_size 1: use --preprocess crop or resize_and_crop"
        )
    height, width = (int(side) for side in resized[0])
    if min(height, width) < MIN_SIDE:
        raise UserError(
            f"--preprocess {data.preprocess}: {describe(0)}; expected at least {format_size((MIN_SIDE, MIN_SIDE))}:"
            " use larger images, or --preprocess resize_and_crop"
        )
    return height, width


def format_size(size: Sequence[int] | np.ndarray) -> str:
    """Format a (height, width) for a message."""
    return f"{size[1]} x {size[0]} pixels"


def centre_crop(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return a view of the middle of an image [h, w, C]: [height, width, C] for a `size` of (height, width)."""
    height, width = size
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return image[top : top + height, left : left + width]
