"""Quality scores on arrays: of features (FID, KID), and of pictures whose truth is known."""

import numpy as np

COAT_THRESHOLD = (
    8  # grey levels (of 255) by which source and truth must differ somewhere to belong to what is translated
)


def paired_scores(source, translated, truth):
    """How well pictures were translated where the truth is known: an animal's coat changes, the rest stays.

    The coat is where source and truth differ. Why the identity (or any network that does too little) can't look good here:
    `inside` and `coat` count only pixels where leaving the source alone is wrong by construction, so the identity pays
    the whole gap between the domains in both. Where it is right, outside, it gets 0, which is the best one can do there;
    that is why `outside` is a separate figure that has to stay small, and why `total` counts both, by their area.

    `inside` compares pixel by pixel. That is fair where the truth follows from the source (a zebra's scene tells where
    the brown is, up to its shade), not for stripes, whose place can't be known: there, `coat` compares colour
    statistics. It is the Wasserstein-1 distance between the coat's values in the translation and in the truth, per picture and
    channel (Rubner et al. 2000): the mean difference of the sorted values.

    Args:
        source, translated, truth: uint8 [N, H, W, C], in the same order.

    Returns:
        dict of floats, in grey levels (0 to 255), means over the pictures: "outside", "inside", "coat" and "total" =
        share of the coat x coat + the other share x outside.

    Raises:
        ValueError: the shapes differ, or source and truth of a picture are equal, or differ everywhere.
    """
    if not source.shape == translated.shape == truth.shape:
        raise ValueError(f"shapes {source.shape}, {translated.shape}, {truth.shape}: expected three equal ones")
    rows = []
    for one in zip(*(pictures.astype(np.float64) for pictures in (source, translated, truth))):
        before, after, right = one
        coat = np.abs(before - right).max(axis=-1) > COAT_THRESHOLD
        if coat.all() or not coat.any():
            raise ValueError("source and truth differ everywhere or nowhere; expected pairs that differ in a part")
        error = np.abs(after - right)
        outside, inside = error[~coat].mean(), error[coat].mean()
        colours = np.abs(np.sort(after[coat], axis=0) - np.sort(right[coat], axis=0)).mean()
        share = coat.mean()
        rows.append((outside, inside, colours, share * colours + (1 - share) * outside))
    return dict(zip(("outside", "inside", "coat", "total"), np.mean(rows, axis=0).tolist()))


def fid(x, y):
    """Fréchet distance of two sets of features, each taken for a normal distribution (Heusel et al. 2017, "FID").

    |mean x - mean y|^2 + tr(C_x + C_y - 2 (C_x C_y)^(1/2)), with the unbiased covariances C. Here C_x = A'A and C_y = B'B with
    factors of few rows, and the trace of the root is the sum of the singular values of AB': no matrix has to be inverted, and no
    root be taken of one that is singular because there are fewer pictures than features.

    Args:
        x, y: float [N, D] and [M, D], N and M at least 2.

    Returns:
        A float of at least 0, up to rounding. Its expectation grows as the sets become smaller: compare equal numbers only.

    Raises:
        ValueError: the shapes are others.
    """
    x, y = _two_sets(x, y)
    a, b = _factor(x), _factor(y)
    root = np.linalg.svd(a @ b.T, compute_uv=False).sum()
    return float(np.sum((x.mean(axis=0) - y.mean(axis=0)) ** 2) + np.sum(a**2) + np.sum(b**2) - 2 * root)


def _factor(x):
    """The matrix A of at most D rows with A'A = the unbiased covariance of x [N, D]."""
    centred = (x - x.mean(axis=0)) / np.sqrt(len(x) - 1)
    return np.linalg.qr(centred, mode="r") if len(x) > x.shape[1] else centred


def kid(x, y, subsets=100, size=None, seed=0):
    """Squared maximum mean discrepancy of two sets of features, unbiased (Binkowski et al. 2018, "KID").

    The kernel is (x.y / D + 1)^3. Of each set, `subsets` times, a subset is drawn without replacement.

    Args:
        x, y: float [N, D] and [M, D], N and M at least 2; they need not be equal.
        subsets: how many, at least 1.
        size: pictures in a subset; `None` is `subset_size(N, M)`.
        seed: of the draw.

    Returns:
        (mean, standard deviation) over the subsets, floats. The expectation is the same for sets of any size, and 0 for two sets
        of one distribution: single estimates may be negative. The deviation says how much the choice of pictures matters; as
        subsets share pictures, it is not the error of the mean.

    Raises:
        ValueError: the shapes are others, or there are fewer than `size` or than 2 in a subset.
    """
    x, y = _two_sets(x, y)
    size = subset_size(len(x), len(y)) if size is None else size
    if not 2 <= size <= min(len(x), len(y)):
        raise ValueError(f"subsets of {size} of {len(x)} and {len(y)}: expected at least 2 and at most all")
    rng = np.random.default_rng(seed)
    drawn = [[part[rng.choice(len(part), size, replace=False)] for part in (x, y)] for _ in range(subsets)]
    values = [squared_mmd(*parts) for parts in drawn]
    return float(np.mean(values)), float(np.std(values))


def subset_size(n, m):
    """Pictures in a subset of `kid` for sets of n and m: 1000, or three quarters of the smaller set if that is less.

    With all of a small set in each subset, the standard deviation would leave out what that set has to do with it.
    """
    return min(1000, max(2, min(n, m) * 3 // 4))


def squared_mmd(x, y):
    """The unbiased estimate of the squared maximum mean discrepancy (Gretton et al. 2012, eq. 3), kernel (x.y / D + 1)^3.

    float64 [N, D] and [M, D] -> a float.
    """

    def kernel(a, b):
        return (a @ b.T / a.shape[1] + 1) ** 3

    def mean_of_others(a):
        values = kernel(a, a)
        return (values.sum() - np.trace(values)) / (len(a) * (len(a) - 1))

    return float(mean_of_others(x) + mean_of_others(y) - 2 * kernel(x, y).mean())


def _two_sets(x, y):
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or min(len(x), len(y)) < 2:
        raise ValueError(f"features {x.shape} and {y.shape}: expected [N, D] and [M, D] with N and M at least 2")
    return x, y


def mae(x, y):
    """Mean absolute difference of pictures: float [N, H, W, C] twice -> [N], in their units."""
    return np.abs(np.subtract(x, y, dtype=np.float64)).mean(axis=(1, 2, 3))


def psnr(x, y, peak=255.0):
    """Peak signal-to-noise ratio, 10 log10(peak^2 / mean squared error): [N, H, W, C] twice -> [N], in dB; inf for equal ones."""
    error = (np.subtract(x, y, dtype=np.float64) ** 2).mean(axis=(1, 2, 3))
    with np.errstate(divide="ignore"):
        return 10 * np.log10(peak**2 / error)


def ssim(x, y, peak=255.0):
    """Structural similarity (Wang et al. 2004): [N, H, W, C] twice, H and W at least 11 -> [N], 1 for equal pictures.

    The mean over all windows that lie inside of the picture (Gaussian, 11 x 11, sigma 1.5) and over the channels, each by
    itself, where the paper has gray pictures; K1 = 0.01, K2 = 0.03, and weighted (co)variances without a correction for their
    bias, as there. `peak` is the range of the values.
    """
    offsets = np.arange(11) - 5
    weights = np.exp(-(offsets**2) / (2 * 1.5**2))
    weights /= weights.sum()

    def windows(pictures):
        height, width = pictures.shape[1] - 10, pictures.shape[2] - 10
        rows = sum(w * pictures[:, i : i + height] for i, w in enumerate(weights))
        return sum(w * rows[:, :, i : i + width] for i, w in enumerate(weights))

    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    mean_x, mean_y = windows(x), windows(y)
    variances = windows(x * x) - mean_x**2 + windows(y * y) - mean_y**2
    covariance = windows(x * y) - mean_x * mean_y
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    values = (2 * mean_x * mean_y + c1) * (2 * covariance + c2) / ((mean_x**2 + mean_y**2 + c1) * (variances + c2))
    return values.mean(axis=(1, 2, 3))
