"""The embedded datasets, stripes and scenes, drawn as image files in memory."""

from __future__ import annotations

import concurrent.futures
import io
from collections.abc import Mapping

import numpy as np
from PIL import Image

from cyclegan.data import scenes, stripes
from cyclegan.data.machine import available_cores

SPLIT_SIZES = {"trainA": 256, "trainB": 288, "testA": 32, "testB": 32}
SEEDS = {  # images of splits with one seed and of the same number show the same
    "stripes": {"trainA": 1, "trainB": 2, "testA": 3, "testB": 3},
    "scenes": {"trainA": 1, "trainB": 1, "testA": 3, "testB": 3},
}


def draw(dataset: str, split: str, index: int, size: int) -> np.ndarray:
    """Draw an image of an embedded dataset: uint8 [size, size, 3]."""
    rng = np.random.default_rng([SEEDS[dataset][split], index])
    is_x = split.endswith("A")
    if dataset == "stripes":
        return stripes.draw(stripes.random_scene(rng), "horse" if is_x else "zebra", size)
    return scenes.draw(scenes.random_scene(rng), "labels" if is_x else "rendering", size)


def read(
    dataset: str, sides: Mapping[str, int], max_images: int | None = None
) -> tuple[dict[str, list[bytes]], dict[str, list[str]]]:
    """Draw all images as PNG, or the first `max_images` of each split, with these sides in pixels by split.

    Returns:
        The contents of the files, and the names of the images, by split.
    """
    files, names = {}, {}
    with concurrent.futures.ThreadPoolExecutor(available_cores()) as pool:
        for split, side in sides.items():
            indices = range(SPLIT_SIZES[split])[:max_images]
            files[split] = list(
                pool.map(lambda i, split=split, side=side: _png(draw(dataset, split, i, side)), indices)
            )
            names[split] = [f"{dataset}/{side}/{split}[{i}]" for i in indices]
    return files, names


def _png(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "png", compress_level=1)
    return file.getvalue()
