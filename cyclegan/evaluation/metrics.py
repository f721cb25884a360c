"""Metrics of translations: FID and KID of features, and errors between images and their ground truth."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from scipy import ndimage

SSIM_RADIUS, SSIM_SIGMA = 5, 1.5  # of the Gaussian window, in pixels


def fid(x: np.ndarray, y: np.ndarray) -> float:
    """Return the Fréchet distance between two sets of features (Heusel et al. 2017, "FID").

    The distance of the normal distributions of the sets is |mean x - mean y|^2 + tr(C_x + C_y - 2 (C_x C_y)^(1/2)) with
    the unbiased covariances C. With C_x = A'A and C_y = B'B, the trace of the root is the sum of the singular values of
    AB', also if there are fewer images than features. The distance grows as the sets become smaller: compare sets of
    one size only.

    Args:
        x: float [N, D], N at least 2.
        y: float [M, D], M at least 2.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    a, b = _covariance_factor(x), _covariance_factor(y)
    root = np.linalg.svd(a @ b.T, compute_uv=False).sum()
    return float(np.sum((x.mean(axis=0) - y.mean(axis=0)) ** 2) + np.sum(a**2) + np.sum(b**2) - 2 * root)


def kid(x: np.ndarray, y: np.ndarray, subsets: int = 100, seed: int = 0) -> tuple[float, float]:
    """Return the squared maximum mean discrepancy of two sets of features (Binkowski et al. 2018, "KID").

    The kernel is (x.y / D + 1)^3. The estimate is unbiased, for random subsets of `subset_size(N, M)` images of each
    set, without replacement.

    Args:
        x: float [N, D], N at least 2.
        y: float [M, D], M at least 2.
        subsets: Number of subsets.
        seed: Seed of the subsets.

    Returns:
        (mean, standard deviation) over the subsets. The mean is unbiased, so it may be negative. The deviation is not
        the error of the mean, because subsets share images.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    size = subset_size(len(x), len(y))
    rng = np.random.default_rng(seed)
    pairs = [[part[rng.choice(len(part), size, replace=False)] for part in (x, y)] for _ in range(subsets)]
    values = [squared_mmd(*pair) for pair in pairs]
    return float(np.mean(values)), float(np.std(values))


def subset_size(n: int, m: int) -> int:
    """Return the number of images in a subset of `kid`: at most 1000, and at most three quarters of the smaller set."""
    return min(1000, max(2, min(n, m) * 3 // 4))


def squared_mmd(x: np.ndarray, y: np.ndarray) -> float:
    """Return the unbiased squared maximum mean discrepancy (Gretton et al. 2012, eq. 3), kernel (x.y / D + 1)^3."""

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


def errors_to_truth(translated: np.ndarray, truth: np.ndarray) -> dict[str, np.ndarray]:
    """Return "MAE" in gray levels of 255, "PSNR" in dB and "SSIM" of each image, [N].

    The images are uint8 or uint16 [N, H, W, C].
    """
    peak = int(np.iinfo(truth.dtype).max)
    return {
        "MAE": mae(translated, truth) * (255 / peak),
        "PSNR": tf.image.psnr(translated, truth, peak).numpy(),
        "SSIM": ssim(translated, truth, peak),
    }


def mae(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the mean absolute difference of each image, [N], in the units of the images [N, H, W, C]."""
    return np.abs(np.subtract(x, y, dtype=np.float64)).mean(axis=(1, 2, 3))


def ssim(x: np.ndarray, y: np.ndarray, peak: float = 255.0) -> np.ndarray:
    """Return the structural similarity of each image (Wang et al. 2004), [N]; 1 for equal images.

    The mean is over all Gaussian windows (11 x 11, sigma 1.5) inside the images [N, H, W, C], and over the channels.
    K1 is 0.01 and K2 is 0.03; the (co)variances have no bias correction.
    """

    # float64, because the float32 variances of tf.image.ssim cancel: it is off by 0.001 for flat bright images.
    def window_means(images: np.ndarray) -> np.ndarray:
        for axis in (1, 2):
            images = ndimage.gaussian_filter1d(images, SSIM_SIGMA, axis, truncate=SSIM_RADIUS / SSIM_SIGMA)
        return images[:, SSIM_RADIUS:-SSIM_RADIUS, SSIM_RADIUS:-SSIM_RADIUS]

    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    mean_x, mean_y = window_means(x), window_means(y)
    variances = window_means(x * x) - mean_x**2 + window_means(y * y) - mean_y**2
    covariance = window_means(x * y) - mean_x * mean_y
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    values = (2 * mean_x * mean_y + c1) * (2 * covariance + c2) / ((mean_x**2 + mean_y**2 + c1) * (variances + c2))
    return values.mean(axis=(1, 2, 3))
