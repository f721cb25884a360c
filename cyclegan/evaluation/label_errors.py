"""Errors of label maps, whose colors stand for classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def label_errors(translated: np.ndarray, truth: np.ndarray, colors: Sequence[Sequence[int]]) -> dict[str, float]:
    """Compare label maps with their ground truth. The label of a pixel is the one with the nearest color.

    Args:
        translated: Label maps, uint8 [N, H, W, 3].
        truth: Their ground truth.
        colors: Color of each label, RGB from 0 to 255.

    Returns:
        "pixels", the percentage of all pixels with a wrong label, and "classes", the mean over the labels of the truth of the
        percentage of their pixels with a wrong label.

    Raises:
        ValueError: The shapes differ.
    """
    if translated.shape != truth.shape:
        raise ValueError(f"shapes {translated.shape}, {truth.shape}: expected equal ones")
    expected = _labels(truth, colors)
    wrong = _labels(translated, colors) != expected
    by_class = [wrong[expected == label].mean() for label in np.unique(expected)]
    return {"pixels": 100 * float(wrong.mean()), "classes": 100 * float(np.mean(by_class))}


def _labels(images: np.ndarray, colors: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the index of the nearest color of each pixel, [N, H, W]."""
    nearest = np.full(images.shape[:-1], np.inf, np.float32)
    labels = np.zeros(images.shape[:-1], np.uint8)
    for index, color in enumerate(colors):
        distance = np.square(images.astype(np.float32) - np.asarray(color, np.float32)).sum(axis=-1)
        labels[distance < nearest] = index
        nearest = np.minimum(nearest, distance)
    return labels
