import numpy as np
import pytest
from scipy import linalg

from cyclegan.evaluation.feature_distances import fid, kid, squared_mmd, subset_size


def normal(count, features=6, seed=0, scale=1.0, shift=0.0):
    """Return float64 [count, features] from a normal distribution whose features depend on each other."""
    rng = np.random.default_rng(seed)
    mixed = np.random.default_rng(99).normal(size=(features, features))
    return scale * rng.normal(size=(count, features)) @ mixed + shift


def test_fid_of_a_shift_by_hand():
    x = normal(50, 4)
    assert fid(x, x + 3) == pytest.approx(4 * 3**2)


def test_fid_of_a_wider_distribution_by_hand():
    """Compare with (m1 - m2)^2 + (s1 - s2)^2 for one feature, and with the sum for two independent features."""
    one = np.array([[-1.0], [1.0]])  # variance 2
    assert fid(one, 3 * one + 5) == pytest.approx(25 + (3 - 1) ** 2 * 2)
    square = np.array([[-1.0, 0], [1, 0], [0, -1], [0, 1]])  # variances 2 / 3
    assert fid(square, square * [2, 4]) == pytest.approx((1 + 9) * 2 / 3)


@pytest.mark.parametrize("n, m, features", [(200, 300, 6), (40, 50, 6), (20, 15, 40), (5, 60, 40)])
def test_fid_equals_scipys_matrix_root(n, m, features):
    x, y = normal(n, features), normal(m, features, 1, 1.5, 0.5)
    root = linalg.sqrtm(np.cov(x.T) @ np.cov(y.T)).real
    direct = np.sum((x.mean(0) - y.mean(0)) ** 2) + np.trace(np.cov(x.T) + np.cov(y.T) - 2 * root)
    tolerance = 1e-9 if min(n, m) > features else 1e-3  # SciPy's root of a singular matrix is inexact
    assert fid(x, y) == pytest.approx(direct, rel=tolerance)
    assert fid(x, y) == pytest.approx(fid(y, x), rel=1e-12)


def test_fid_of_equal_sets_is_zero():
    for count, features in ((100, 10), (20, 500)):
        x = normal(count, features)
        assert abs(fid(x, x)) < 1e-8 * np.sum(x**2)
        assert fid(x, normal(count, features, 1)) > 0.1


def looped_mmd(x, y):
    """Return the value of Gretton et al. 2012, eq. 3, by loops."""

    def kernel(a, b):
        return (sum(p * q for p, q in zip(a, b)) / len(a) + 1) ** 3

    n, m = len(x), len(y)
    within_x = sum(kernel(x[i], x[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    within_y = sum(kernel(y[i], y[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return within_x + within_y - 2 * sum(kernel(a, b) for a in x for b in y) / (n * m)


def test_kid_by_hand():
    """Compare for the kernel (ab + 1)^3: x = 0, 1 and y = 1, 2 have 1, 27 within and (1 + 1 + 8 + 27) / 4 between."""
    x, y = np.array([[0.0], [1.0]]), np.array([[1.0], [2.0]])
    assert squared_mmd(x, y) == 1 + 27 - 2 * 37 / 4
    assert kid(x, y, 3, 2) == (9.5, 0)


def test_kid_equals_loops():
    x, y = normal(9, 4), normal(7, 4, 1, shift=0.3)
    assert squared_mmd(x, y) == pytest.approx(looped_mmd(x, y), rel=1e-12)
    rng, values = np.random.default_rng(5), []
    for _ in range(10):
        chosen_x, chosen_y = rng.choice(9, 4, replace=False), rng.choice(7, 4, replace=False)
        values.append(looped_mmd(x[chosen_x], y[chosen_y]))
    assert kid(x, y, 10, 4, seed=5) == (pytest.approx(np.mean(values)), pytest.approx(np.std(values)))
    assert kid(x, y, 10, 4, seed=5) != kid(x, y, 10, 4, seed=6)


def test_kid_is_unbiased():
    """Compare small sets of one distribution: the mean KID is 0 for any size, and the mean FID is far from 0."""
    pairs = [(normal(n, 3, seed), normal(n, 3, 1000 + seed)) for n in (5, 40) for seed in range(300)]
    kids = np.array([squared_mmd(*pair) for pair in pairs]).reshape(2, 300)
    assert (np.abs(kids.mean(axis=1)) < 4 * kids.std(axis=1) / np.sqrt(300)).all()
    fids = np.array([fid(*pair) for pair in pairs]).reshape(2, 300).mean(axis=1)
    assert fids[0] > 3 * fids[1] > 0


@pytest.mark.parametrize("n, m, size", [(120, 140, 90), (32, 32, 24), (5000, 1334, 1000), (2, 9, 2), (3, 3, 2)])
def test_subset_size_is_at_most_three_quarters(n, m, size):
    assert subset_size(n, m) == size


@pytest.mark.parametrize("x, y", [((1, 3), (5, 3)), ((5, 3), (5, 4)), ((5,), (5,))])
def test_refuses_features_that_do_not_fit(x, y):
    for score in (fid, kid):
        with pytest.raises(ValueError, match="expected"):
            score(np.zeros(x), np.zeros(y))
    with pytest.raises(ValueError, match="subsets of 6 of 5 and 7"):
        kid(np.zeros((5, 2)), np.zeros((7, 2)), size=6)
