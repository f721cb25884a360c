"""Images to compare translations with: images of a folder, and pairs of held-out images."""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from cyclegan.config.data import DataConfig, ValueRange
from cyclegan.data import folder_source, loading
from cyclegan.data.loading import LazyImages
from cyclegan.errors import UserError
from cyclegan.images import geometry


def read_folder(
    folder: pathlib.Path,
    data: DataConfig,
    multiple: int,
    channels: int,
    size: tuple[int, int],
    value_range: ValueRange | None = None,
) -> LazyImages:
    """Read the images of a folder, resized like the held-out images of a run.

    Args:
        folder: The folder.
        data: Settings of the run's images, for the resizing.
        multiple: Number of pixels by which the sides must be divisible.
        channels: Number of channels to decode.
        size: (height, width) in pixels that the networks of the run see.
        value_range: Value range of the domain.

    Returns:
        The images, indexed like an array [N, h, w, C].

    Raises:
        UserError: There are no images, some cannot be decoded, or they do not have that size after resizing.
    """
    paths = [os.path.join(folder, name) for name in folder_source.find_images(folder)]
    if not paths:
        raise UserError(f"--real {folder}: no images; expected at least 2 of {' '.join(folder_source.EXTENSIONS)}")
    facts = loading.check_files({"real": paths}, {"real": channels}, ranged=["real"] if value_range else [])["real"]
    sizes = loading.sizes_of(facts)
    resized = geometry.resized_sizes(data, multiple, sizes, training=False)
    final = geometry.final_size(data, sizes, resized, paths)
    if tuple(final) != tuple(size):
        raise UserError(
            f"--real {folder}: the images have {geometry.format_size(final)} after resizing; expected the run's"
            f" {geometry.format_size(size)}: resize them"
        )
    dtype = np.uint16 if facts["deep"].any() else np.uint8
    return loading.ImageFiles("real", paths, facts, resized, channels, dtype, value_range).lazy()


def check_same_names(names_x: Sequence[str], names_y: Sequence[str]) -> None:
    """Check that the held-out images of X and Y, such as "testA/3.png", differ in folder and suffix only.

    Raises:
        UserError: They have other names.
    """
    x, y = (
        [folder_source.stem(os.path.join(*pathlib.PurePath(name).parts[1:])) for name in names]
        for names in (names_x, names_y)
    )
    if x != y:
        different = sorted(set(x) ^ set(y)) or [a or b for a, b in itertools.zip_longest(x, y) if a != b]
        raise UserError(
            f"--paired: the held-out images of X ({len(x)}) and Y ({len(y)}) do not have the same names, for example"
            f" {different[0]}; expected an image of Y with the same name for each image of X"
        )
