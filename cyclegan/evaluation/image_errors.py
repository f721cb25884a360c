"""Errors between images and their ground truth."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

SSIM_RADIUS, SSIM_SIGMA = 5, 1.5  # of the Gaussian window, in pixels


def errors_to_truth(translated: np.ndarray, truth: np.ndarray) -> dict[str, np.ndarray]:
    """Return "MAE" in gray levels of 255, "PSNR" in dB and "SSIM" of each image, [N].

    Args:
        translated: uint8 or uint16 [N, H, W, C].
        truth: The ground truth, of the same type and shape.
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

    This is the mean over all Gaussian windows (11 x 11, sigma 1.5) inside the image, and over the channels. K1 is 0.01 and K2 is
    0.03; the (co)variances have no bias correction.

    Args:
        x: Images [N, H, W, C], H and W at least 11.
        y: Images of the same shape.
        peak: Range of the values.
    """
    # float64, because the float32 variances of tf.image.ssim cancel: it is off by 0.001 for flat bright images.
    offsets = np.arange(-SSIM_RADIUS, SSIM_RADIUS + 1)
    weights = np.exp(-(offsets**2) / (2 * SSIM_SIGMA**2))
    weights /= weights.sum()

    def window_means(images: np.ndarray) -> np.ndarray:
        height, width = images.shape[1] - 2 * SSIM_RADIUS, images.shape[2] - 2 * SSIM_RADIUS
        rows = sum(w * images[:, i : i + height] for i, w in enumerate(weights))
        return sum(w * rows[:, :, i : i + width] for i, w in enumerate(weights))

    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    mean_x, mean_y = window_means(x), window_means(y)
    variances = window_means(x * x) - mean_x**2 + window_means(y * y) - mean_y**2
    covariance = window_means(x * y) - mean_x * mean_y
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    values = (2 * mean_x * mean_y + c1) * (2 * covariance + c2) / ((mean_x**2 + mean_y**2 + c1) * (variances + c2))
    return values.mean(axis=(1, 2, 3))
