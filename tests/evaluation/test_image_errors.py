import numpy as np
import pytest
import tensorflow as tf

from cyclegan.evaluation.image_errors import errors_to_truth, mae, ssim


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_errors_by_hand(dtype):
    """Compare an image of which a quarter is off by 10 of 255 levels, and an equal one."""
    level = np.iinfo(dtype).max // 255
    x = np.full((2, 12, 12, 1), 10 * level, dtype)
    y = x.copy()
    y[0, :6, :6] = 0
    errors = errors_to_truth(x, y)
    assert errors["MAE"].tolist() == [2.5, 0]
    assert errors["PSNR"].tolist() == [pytest.approx(10 * np.log10(255**2 / 25)), np.inf]
    assert errors["SSIM"][1] == 1
    assert mae(x / level, y / level).tolist() == [2.5, 0]


def test_psnr_of_the_largest_error_is_0():
    black = np.zeros((1, 12, 12, 3), np.uint8)
    assert errors_to_truth(black, black + 255)["PSNR"].tolist() == [0]


def looped_ssim(x, y, peak):
    """Return the SSIM of two gray images, eqs. 13 to 16 of Wang et al. 2004 window by window."""
    distance = np.arange(-5, 6)
    weights = np.exp(-(distance[:, None] ** 2 + distance**2) / (2 * 1.5**2))
    weights /= weights.sum()
    found = []
    for i in range(x.shape[0] - 10):
        for j in range(x.shape[1] - 10):
            a, b = x[i : i + 11, j : j + 11].astype(float), y[i : i + 11, j : j + 11].astype(float)
            mean_a, mean_b = (weights * a).sum(), (weights * b).sum()
            var_a, var_b = (weights * (a - mean_a) ** 2).sum(), (weights * (b - mean_b) ** 2).sum()
            both = (weights * (a - mean_a) * (b - mean_b)).sum()
            c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
            luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
            found.append(luminance * (2 * both + c2) / (var_a + var_b + c2))
    return np.mean(found)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_ssim_equals_the_paper(dtype):
    peak, rng = np.iinfo(dtype).max, np.random.default_rng(0)
    x = rng.integers(0, peak + 1, (2, 14, 17, 3)).astype(dtype)
    y = (x * 0.7 + rng.integers(0, peak // 4, x.shape)).astype(dtype)
    expected = [np.mean([looped_ssim(a[..., c], b[..., c], peak) for c in range(3)]) for a, b in zip(x, y)]
    np.testing.assert_allclose(ssim(x, y, peak), expected, rtol=1e-9)


@pytest.mark.parametrize("a, b", [(100, 50), (250, 251)])  # tf.image.ssim is 0.001 off for the second pair
def test_ssim_of_flat_images_by_hand(a, b):
    """Compare flat images, for which only the means are left: (2 ab + c1) / (a^2 + b^2 + c1)."""
    x, y = np.full((1, 12, 12, 1), float(a)), np.full((1, 12, 12, 1), float(b))
    c1 = (0.01 * 255) ** 2
    assert ssim(x, y)[0] == pytest.approx((2 * a * b + c1) / (a**2 + b**2 + c1))
    assert ssim(x, x)[0] == 1


def test_ssim_equals_tensorflow():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (2, 20, 24, 3)).astype(np.uint8)
    y = np.clip(x + rng.normal(0, 30, x.shape), 0, 255).astype(np.uint8)
    np.testing.assert_allclose(ssim(x, y), tf.image.ssim(x, y, 255).numpy(), atol=1e-5)
