"""Search for equal and similar images by 64-bit hashes."""

from __future__ import annotations

import math

import numpy as np

HASH_BITS = 64
MAX_DISTANCE = 4  # bits in which the hashes of near duplicates differ at most
MAX_ROUNDING, MAX_DIFFERENCE = 1.0, 0.2  # mean difference of pixels, in levels and as a share of the standard deviation
BLOCK = 4096  # pairs of miniatures that are compared at once
MAX_NEIGHBORS = 64  # hashes with which each hash is compared in a band; bounds time and memory


def equal_groups(keys: np.ndarray) -> list[list[int]]:
    """Group the indices of equal keys, by first index; leave out keys that occur once."""
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    groups: dict[int, list[int]] = {}
    for index in np.flatnonzero(counts[inverse] > 1).tolist():
        groups.setdefault(int(inverse[index]), []).append(index)
    return list(groups.values())


def near_groups(
    hashes: np.ndarray, colors: np.ndarray, color_tolerance: float, miniatures: np.ndarray
) -> list[list[int]]:
    """Return groups of similar images, like `equal_groups`. Images that are similar to the same image are in the same group.

    Two images are similar if at most `MAX_DISTANCE` bits of their hashes, no color and few pixels of their miniatures differ
    much. Such hashes agree in at least one of `MAX_DISTANCE` + 1 bands of their bits, so only hashes that agree in a band are
    compared, and no more than `MAX_NEIGHBORS` of them, in order of the other bits. Memory and time grow in proportion to the
    number of images.

    Args:
        hashes: Perceptual hashes, uint64 [N].
        colors: Numbers that describe the colors of each image, [N, K].
        color_tolerance: Largest difference between these numbers.
        miniatures: The images in few pixels, uint8 [N, ...].
    """
    pixels = miniatures.reshape(len(miniatures), math.prod(miniatures.shape[1:]))
    bands = MAX_DISTANCE + 1
    starts = np.arange(bands + 1) * HASH_BITS // bands
    labels = np.arange(len(hashes))
    for start, stop in zip(starts[:-1], starts[1:]):
        rotated = hashes << np.uint64(start) | hashes >> np.uint64((HASH_BITS - start) % HASH_BITS)
        order = np.argsort(rotated, kind="stable")
        keys = rotated[order] >> np.uint64(HASH_BITS - (stop - start))
        first = np.arange(len(hashes))
        for offset in range(1, MAX_NEIGHBORS + 1):
            first = first[first + offset < len(hashes)]
            first = first[keys[first] == keys[first + offset]]  # the keys are sorted: others never agree again
            pairs = np.stack([order[first], order[first + offset]])
            pairs = pairs[:, labels[pairs[0]] != labels[pairs[1]]]
            pairs = pairs[:, _distances(*hashes[pairs]) <= MAX_DISTANCE]
            pairs = pairs[:, (np.abs(colors[pairs[0]] - colors[pairs[1]]) <= color_tolerance).all(axis=1)]
            pairs = pairs[:, _have_similar_pixels(pixels, pairs)]
            if pairs.size:
                labels = _merge(labels, pairs)
    return equal_groups(labels)


def _have_similar_pixels(pixels: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return for which pairs [2, P] of miniatures [N, K] the mean difference is small, compared to the contrast: bool [P].

    Not more than `BLOCK` pairs are in memory as float32.
    """
    similar = np.zeros(pairs.shape[1], bool)
    for start in range(0, len(similar), BLOCK):
        a, b = pixels[pairs[:, start : start + BLOCK]].astype(np.float32)
        contrast = np.minimum(a.std(axis=1), b.std(axis=1))
        similar[start : start + BLOCK] = np.abs(a - b).mean(axis=1) <= MAX_ROUNDING + MAX_DIFFERENCE * contrast
    return similar


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the number of bits in which hashes differ."""
    return np.unpackbits((a ^ b).view(np.uint8).reshape(-1, HASH_BITS // 8), axis=1).sum(axis=1)


def _merge(labels: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the labels of images, int [N], after the images of each pair got the same label; pairs: int [2, P]."""
    from scipy.sparse import coo_matrix, csgraph  # slow to import

    edges = coo_matrix((np.ones(pairs.shape[1], bool), labels[pairs]), shape=(len(labels), len(labels)))
    return csgraph.connected_components(edges, directed=False)[1][labels]
