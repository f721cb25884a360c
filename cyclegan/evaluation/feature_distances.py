"""Distances between sets of image features: FID and KID."""

from __future__ import annotations

import numpy as np


def fid(x: np.ndarray, y: np.ndarray) -> float:
    """Return the Fréchet distance between two sets of features (Heusel et al. 2017, "FID").

    Each set is modelled as a normal distribution; the distance is |mean x - mean y|^2 + tr(C_x + C_y - 2 (C_x C_y)^(1/2)) with the
    unbiased covariances C. With C_x = A'A and C_y = B'B, where A and B have few rows, the trace of the root is the sum of the
    singular values of AB'. This also works with fewer images than features, where a covariance is singular.

    Args:
        x: float [N, D], N at least 2.
        y: float [M, D], M at least 2.

    Returns:
        The distance, at least 0 up to rounding. Its expectation grows as the sets become smaller: compare sets of one size only.

    Raises:
        ValueError: The shapes do not fit.
    """
    x, y = _checked(x, y)
    a, b = _covariance_factor(x), _covariance_factor(y)
    root = np.linalg.svd(a @ b.T, compute_uv=False).sum()
    return float(np.sum((x.mean(axis=0) - y.mean(axis=0)) ** 2) + np.sum(a**2) + np.sum(b**2) - 2 * root)


def kid(
    x: np.ndarray, y: np.ndarray, subsets: int = 100, size: int | None = None, seed: int = 0
) -> tuple[float, float]:
    """Return the squared maximum mean discrepancy of two sets of features (Binkowski et al. 2018, "KID").

    The kernel is (x.y / D + 1)^3. Its unbiased estimate is computed for random subsets of each set, without replacement.

    Args:
        x: float [N, D], N at least 2.
        y: float [M, D], M at least 2.
        subsets: Number of subsets, at least 1.
        size: Images in a subset; by default `subset_size(N, M)`.
        seed: Seed of the subsets.

    Returns:
        (mean, standard deviation) over the subsets. The expectation of the mean does not depend on the sizes of the sets, and is 0
        for two sets of one distribution, so an estimate may be negative. The deviation shows how much the choice of images
        matters; it is not the error of the mean, because subsets share images.

    Raises:
        ValueError: The shapes do not fit, or a subset would have fewer than 2 images or more than there are.
    """
    x, y = _checked(x, y)
    size = subset_size(len(x), len(y)) if size is None else size
    if not 2 <= size <= min(len(x), len(y)):
        raise ValueError(f"subsets of {size} of {len(x)} and {len(y)}: expected at least 2 and at most all")
    rng = np.random.default_rng(seed)
    pairs = [[part[rng.choice(len(part), size, replace=False)] for part in (x, y)] for _ in range(subsets)]
    values = [squared_mmd(*pair) for pair in pairs]
    return float(np.mean(values)), float(np.std(values))


def subset_size(n: int, m: int) -> int:
    """Return the number of images in a subset of `kid` for sets of n and m images.

    It is 1000, or three quarters of the smaller set if that is less: if each subset held all images of a small set, the standard
    deviation would be too small.
    """
    return min(1000, max(2, min(n, m) * 3 // 4))


def squared_mmd(x: np.ndarray, y: np.ndarray) -> float:
    """Return the unbiased squared maximum mean discrepancy (Gretton et al. 2012, eq. 3) with the kernel (x.y / D + 1)^3.

    Args:
        x: float64 [N, D].
        y: float64 [M, D].
    """

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a @ b.T / a.shape[1] + 1) ** 3

    def mean_of_others(a: np.ndarray) -> float:
        values = kernel(a, a)
        return (values.sum() - np.trace(values)) / (len(a) * (len(a) - 1))

    return float(mean_of_others(x) + mean_of_others(y) - 2 * kernel(x, y).mean())


def _covariance_factor(x: np.ndarray) -> np.ndarray:
    """Return a matrix A with at most D rows and A'A = the unbiased covariance of x [N, D]."""
    centred = (x - x.mean(axis=0)) / np.sqrt(len(x) - 1)
    return np.asarray(np.linalg.qr(centred, mode="r")) if len(x) > x.shape[1] else centred


def _checked(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or min(len(x), len(y)) < 2:
        raise ValueError(f"features {x.shape} and {y.shape}: expected [N, D] and [M, D] with N and M at least 2")
    return x, y
