import numpy as np
import pytest
import tensorflow as tf
from scipy import linalg

from cyclegan.evaluation import metrics


@pytest.fixture
def pair():
    """A brown half on a green ground, and the same with black and white stripes instead of brown."""
    source = np.full((1, 4, 8, 3), (0, 200, 0), np.uint8)
    truth = source.copy()
    source[:, :2] = 100
    truth[:, :2] = np.where(np.arange(8) % 2, 255, 0)[:, None]
    return source, truth


def test_the_truth_is_perfect(pair):
    source, truth = pair
    assert metrics.paired_scores(source, truth, truth) == {"outside": 0, "inside": 0, "coat": 0, "total": 0}


def test_the_identity_pays_the_gap_between_the_domains(pair):
    source, truth = pair
    # sorted: 100 against 0 in one half, against 255 in the other
    gap = (100 + 155) / 2
    expected = {"outside": 0, "inside": gap, "coat": gap, "total": gap / 2}
    assert metrics.paired_scores(source, source, truth) == expected


def test_stripes_elsewhere_have_the_colours_but_not_the_pixels(pair):
    source, truth = pair
    shifted = truth.copy()
    shifted[:, :2] = 255 - truth[:, :2]
    scores = metrics.paired_scores(source, shifted, truth)
    assert scores["inside"] == 255 and scores["coat"] == scores["total"] == 0


def test_a_better_coat_does_not_pay_for_a_worse_background(pair):
    source, truth = pair
    spoilt = truth.copy()
    spoilt[:, 2:] += 30
    scores = metrics.paired_scores(source, spoilt, truth)
    assert scores == {"outside": 30, "inside": 0, "coat": 0, "total": 15}


def test_pairs_that_cannot_be_scored_are_refused(pair):
    source, truth = pair
    with pytest.raises(ValueError, match="everywhere or nowhere"):
        metrics.paired_scores(source, source, source)
    with pytest.raises(ValueError, match="three equal"):
        metrics.paired_scores(source, source[:, :2], truth)


def normal(count, features=6, seed=0, scale=1.0, shift=0.0):
    """float64 [count, features], drawn from a normal distribution whose features depend on each other."""
    rng = np.random.default_rng(seed)
    mixed = np.random.default_rng(99).normal(size=(features, features))
    return scale * rng.normal(size=(count, features)) @ mixed + shift


def test_the_fid_of_a_shift_by_3_in_4_dimensions_is_36():
    x = normal(50, 4)
    assert metrics.fid(x, x + 3) == pytest.approx(4 * 3**2)


def test_the_fid_of_a_wider_distribution_is_worked_out_by_hand():
    """One feature: (m1 - m2)^2 + (s1 - s2)^2. Two that are independent: the sum over both."""
    one = np.array([[-1.0], [1.0]])  # variance 2
    assert metrics.fid(one, 3 * one + 5) == pytest.approx(25 + (3 - 1) ** 2 * 2)
    square = np.array([[-1.0, 0], [1, 0], [0, -1], [0, 1]])  # variances 2 / 3
    assert metrics.fid(square, square * [2, 4]) == pytest.approx((1 + 9) * 2 / 3)


@pytest.mark.parametrize("n, m, features", [(200, 300, 6), (40, 50, 6), (20, 15, 40), (5, 60, 40)])
def test_fid_agrees_with_scipys_matrix_root(n, m, features):
    x, y = normal(n, features), normal(m, features, 1, 1.5, 0.5)
    root = linalg.sqrtm(np.cov(x.T) @ np.cov(y.T)).real
    direct = np.sum((x.mean(0) - y.mean(0)) ** 2) + np.trace(np.cov(x.T) + np.cov(y.T) - 2 * root)
    tolerance = 1e-9 if min(n, m) > features else 1e-3  # of SciPy's, for a root of a singular matrix
    assert metrics.fid(x, y) == pytest.approx(direct, rel=tolerance)
    assert metrics.fid(x, y) == pytest.approx(metrics.fid(y, x), rel=1e-12)


def test_the_fid_of_a_set_and_itself_is_nothing_also_with_fewer_pictures_than_features():
    for count, features in ((100, 10), (20, 500)):
        x = normal(count, features)
        assert abs(metrics.fid(x, x)) < 1e-8 * np.sum(x**2)
        assert metrics.fid(x, normal(count, features, 1)) > 0.1


def looped_mmd(x, y):
    """The sums of Gretton et al. 2012, eq. 3, one by one."""

    def kernel(a, b):
        return (sum(p * q for p, q in zip(a, b)) / len(a) + 1) ** 3

    n, m = len(x), len(y)
    within_x = sum(kernel(x[i], x[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    within_y = sum(kernel(y[i], y[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return within_x + within_y - 2 * sum(kernel(a, b) for a in x for b in y) / (n * m)


def test_kid_by_hand():
    """One feature, kernel (ab + 1)^3: x = 0, 1 and y = 1, 2 have 1, 27 within and (1 + 1 + 8 + 27) / 4 between."""
    x, y = np.array([[0.0], [1.0]]), np.array([[1.0], [2.0]])
    assert metrics.squared_mmd(x, y) == 1 + 27 - 2 * 37 / 4
    assert metrics.kid(x, y, 3, 2) == (9.5, 0)


def test_kid_agrees_with_loops_for_unequal_sets_and_over_subsets():
    x, y = normal(9, 4), normal(7, 4, 1, shift=0.3)
    assert metrics.squared_mmd(x, y) == pytest.approx(looped_mmd(x, y), rel=1e-12)
    rng, values = np.random.default_rng(5), []
    for _ in range(10):
        chosen_x, chosen_y = rng.choice(9, 4, replace=False), rng.choice(7, 4, replace=False)
        values.append(looped_mmd(x[chosen_x], y[chosen_y]))
    assert metrics.kid(x, y, 10, 4, seed=5) == (pytest.approx(np.mean(values)), pytest.approx(np.std(values)))
    assert metrics.kid(x, y, 10, 4, seed=5) != metrics.kid(x, y, 10, 4, seed=6)


def test_kid_is_unbiased_where_fid_is_not():
    """Of two small sets of one distribution, KID is nothing on average, whatever their size, and FID is far from it."""
    pairs = [(normal(n, 3, seed), normal(n, 3, 1000 + seed)) for n in (5, 40) for seed in range(300)]
    kids = np.array([metrics.squared_mmd(*pair) for pair in pairs]).reshape(2, 300)
    assert (np.abs(kids.mean(axis=1)) < 4 * kids.std(axis=1) / np.sqrt(300)).all()
    fids = np.array([metrics.fid(*pair) for pair in pairs]).reshape(2, 300).mean(axis=1)
    assert fids[0] > 3 * fids[1] > 0


@pytest.mark.parametrize("n, m, size", [(120, 140, 90), (32, 32, 24), (5000, 1334, 1000), (2, 9, 2), (3, 3, 2)])
def test_subsets_leave_something_out_where_they_can(n, m, size):
    assert metrics.subset_size(n, m) == size


@pytest.mark.parametrize("x, y", [((1, 3), (5, 3)), ((5, 3), (5, 4)), ((5,), (5,))])
def test_sets_that_cannot_be_compared_are_refused(x, y):
    for score in (metrics.fid, metrics.kid):
        with pytest.raises(ValueError, match="expected"):
            score(np.zeros(x), np.zeros(y))
    with pytest.raises(ValueError, match="subsets of 6 of 5 and 7"):
        metrics.kid(np.zeros((5, 2)), np.zeros((7, 2)), size=6)


def test_errors_of_pictures_by_hand():
    x = np.full((2, 2, 2, 1), 10, np.uint8)
    y = x.copy()
    y[0, 0, 0] = 0  # 10 levels off in one of four values
    assert metrics.mae(x, y).tolist() == [2.5, 0]
    assert metrics.psnr(x, y).tolist() == [pytest.approx(10 * np.log10(255**2 / 25)), np.inf]
    assert metrics.psnr(np.zeros((1, 2, 2, 3)), np.ones((1, 2, 2, 3)), 1.0).tolist() == [0]


def looped_ssim(x, y, peak):
    """Wang et al. 2004, eqs. 13 to 16, window by window of one gray picture."""
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
def test_ssim_agrees_with_the_paper_window_by_window(dtype):
    peak, rng = np.iinfo(dtype).max, np.random.default_rng(0)
    x = rng.integers(0, peak + 1, (2, 14, 17, 3)).astype(dtype)
    y = (x * 0.7 + rng.integers(0, peak // 4, x.shape)).astype(dtype)
    expected = [np.mean([looped_ssim(a[..., c], b[..., c], peak) for c in range(3)]) for a, b in zip(x, y)]
    np.testing.assert_allclose(metrics.ssim(x, y, peak), expected, rtol=1e-9)


def test_the_ssim_of_flat_pictures_by_hand():
    """Without any variance only the means are left: (2 ab + c1) / (a^2 + b^2 + c1)."""
    x, y = np.full((1, 12, 12, 1), 100.0), np.full((1, 12, 12, 1), 50.0)
    c1 = (0.01 * 255) ** 2
    assert metrics.ssim(x, y)[0] == pytest.approx((2 * 100 * 50 + c1) / (100**2 + 50**2 + c1))
    assert metrics.ssim(x, x)[0] == 1


def test_ssim_and_psnr_are_those_of_tensorflow():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (2, 20, 24, 3)).astype(np.uint8)
    y = np.clip(x + rng.normal(0, 30, x.shape), 0, 255).astype(np.uint8)
    np.testing.assert_allclose(metrics.ssim(x, y), tf.image.ssim(x, y, 255).numpy(), atol=1e-5)
    np.testing.assert_allclose(metrics.psnr(x, y), tf.image.psnr(x, y, 255).numpy(), rtol=1e-5)
