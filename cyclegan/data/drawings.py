"""Drawings of the embedded datasets, by the name of the dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cyclegan.data import scenes, stripes

Draw = Callable[[np.random.Generator, bool, int], np.ndarray]


def draw(dataset: str, domain: str, seed: Sequence[int], size: int) -> np.ndarray:
    """Draw an image of an embedded dataset.

    Args:
        dataset: One of `config.data.EMBEDDED`.
        domain: "A" or "B". With the same seed, the two images show the same.
        seed: Seed of the image.
        size: Side in pixels.

    Returns:
        uint8 [size, size, 3].
    """
    return DRAW[dataset](np.random.default_rng(seed), domain == "A", size)


def _draw_stripes(rng: np.random.Generator, is_first: bool, size: int) -> np.ndarray:
    return stripes.draw(stripes.random_scene(rng), "horse" if is_first else "zebra", size)


def _draw_scenes(rng: np.random.Generator, is_first: bool, size: int) -> np.ndarray:
    return scenes.draw(scenes.random_scene(rng), "labels" if is_first else "rendering", size)


DRAW: dict[str, Draw] = {"stripes": _draw_stripes, "scenes": _draw_scenes}
