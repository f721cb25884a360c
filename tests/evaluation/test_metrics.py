import numpy as np
import pytest
import tensorflow as tf
from scipy import linalg

from cyclegan.evaluation.metrics import errors_to_truth, fid, kid, squared_mmd, ssim, subset_size


def normal(count, features=6, seed=0, scale=1.0, shift=0.0):
    """Return float64 [count, features] from a normal distribution whose features depend on each other."""
    rng = np.random.default_rng(seed)
    mixed = np.random.default_rng(99).normal(size=(features, features))
    return scale * rng.normal(size=(count, features)) @ mixed + shift


def test_fid_by_hand():
    """Compare with the squared shift, with (m1 - m2)^2 + (s1 - s2)^2 for one feature, and with the sum for two."""
    x = normal(50, 4)
    assert fid(x, x + 3) == pytest.approx(4 * 3**2) and abs(fid(x, x)) < 1e-8 * np.sum(x**2)
    one = np.array([[-1.0], [1.0]])  # variance 2
    assert fid(one, 3 * one + 5) == pytest.approx(25 + (3 - 1) ** 2 * 2)
    square = np.array([[-1.0, 0], [1, 0], [0, -1], [0, 1]])  # variances 2 / 3
    assert fid(square, square * [2, 4]) == pytest.approx((1 + 9) * 2 / 3)


@pytest.mark.parametrize("n, m, features", [(200, 300, 6), (20, 15, 40), (5, 60, 40)])
def test_fid_equals_the_formula_of_pytorch_fid(n, m, features):
    x, y = normal(n, features), normal(m, features, 1, 1.5, 0.5)
    root = linalg.sqrtm(np.cov(x.T) @ np.cov(y.T)).real
    direct = np.sum((x.mean(0) - y.mean(0)) ** 2) + np.trace(np.cov(x.T) + np.cov(y.T) - 2 * root)
    tolerance = 1e-9 if min(n, m) > features else 1e-3  # SciPy's root of a singular matrix is inexact
    assert fid(x, y) == pytest.approx(direct, rel=tolerance)
    assert fid(x, y) == pytest.approx(fid(y, x), rel=1e-12)


def test_kid_by_hand():
    """Compare for the kernel (ab + 1)^3: x = 0, 1 and y = 1, 2 have 1, 27 within and (1 + 1 + 8 + 27) / 4 between."""
    x, y = np.array([[0.0], [1.0]]), np.array([[1.0], [2.0]])
    assert squared_mmd(x, y) == 1 + 27 - 2 * 37 / 4
    assert kid(x, y, 3) == (9.5, 0)


def test_kid_equals_the_formula_of_torch_fidelity():
    """Compare with the sums over pairs of images, with themselves left out within a set."""
    x, y = normal(5, 7), normal(5, 7, 1, shift=0.5)
    pairs = [(i, j) for i in range(5) for j in range(5)]
    within = sum((z[i] @ z[j] / 7 + 1) ** 3 for z in (x, y) for i, j in pairs if i != j) / (5 * 4)
    between = sum((x[i] @ y[j] / 7 + 1) ** 3 for i, j in pairs) / 5**2
    assert squared_mmd(x, y) == pytest.approx(within - 2 * between)


def test_kid_is_the_mean_over_random_subsets():
    x, y = normal(9, 4), normal(7, 4, 1, shift=0.3)
    rng, values = np.random.default_rng(5), []
    for _ in range(10):
        chosen_x, chosen_y = rng.choice(9, 5, replace=False), rng.choice(7, 5, replace=False)
        values.append(squared_mmd(x[chosen_x], y[chosen_y]))
    assert kid(x, y, 10, seed=5) == (pytest.approx(np.mean(values)), pytest.approx(np.std(values)))
    assert kid(x, y, 10, seed=5) != kid(x, y, 10, seed=6)


def test_kid_is_unbiased():
    """Compare small sets of one distribution: the mean KID is 0 for any size, and the mean FID is far from 0."""
    pairs = [(normal(n, 3, seed), normal(n, 3, 1000 + seed)) for n in (5, 40) for seed in range(300)]
    kids = np.array([squared_mmd(*pair) for pair in pairs]).reshape(2, 300)
    assert (np.abs(kids.mean(axis=1)) < 4 * kids.std(axis=1) / np.sqrt(300)).all()
    fids = np.array([fid(*pair) for pair in pairs]).reshape(2, 300).mean(axis=1)
    assert fids[0] > 3 * fids[1] > 0


@pytest.mark.parametrize("n, m, size", [(120, 140, 90), (5000, 1334, 1000), (2, 9, 2), (3, 3, 2)])
def test_subset_size_is_at_most_three_quarters(n, m, size):
    assert subset_size(n, m) == size


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_errors_by_hand(dtype):
    """Compare an image of which a quarter is off by 10 of 255 levels, and an equal one."""
    x = np.full((2, 12, 12, 1), 10 * (np.iinfo(dtype).max // 255), dtype)
    y = x.copy()
    y[0, :6, :6] = 0
    errors = errors_to_truth(x, y)
    assert errors["MAE"].tolist() == [2.5, 0]
    assert errors["PSNR"].tolist() == [pytest.approx(10 * np.log10(255**2 / 25)), np.inf]
    assert errors["SSIM"][1] == 1
    black = np.zeros((1, 12, 12, 3), dtype)
    assert errors_to_truth(black, black + np.iinfo(dtype).max)["PSNR"].tolist() == [0]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_ssim_equals_that_of_tensorflow(dtype):
    peak, rng = int(np.iinfo(dtype).max), np.random.default_rng(0)
    x = rng.integers(0, peak + 1, (2, 14, 17, 3)).astype(dtype)
    y = (x * 0.7 + rng.integers(0, peak // 4, x.shape)).astype(dtype)
    np.testing.assert_allclose(ssim(x, y, peak), tf.image.ssim(x, y, peak).numpy(), atol=1e-5)


@pytest.mark.parametrize("a, b", [(100, 50), (250, 251)])  # tf.image.ssim is 0.001 off for the second pair
def test_ssim_of_flat_images_by_hand(a, b):
    """Compare flat images, for which only the means are left: (2 ab + c1) / (a^2 + b^2 + c1)."""
    x, y = np.full((1, 12, 12, 1), float(a)), np.full((1, 12, 12, 1), float(b))
    c1 = (0.01 * 255) ** 2
    assert ssim(x, y)[0] == pytest.approx((2 * a * b + c1) / (a**2 + b**2 + c1))
