"""Score of translations between the horses and zebras of `stripes`, whose ground truth is known."""

from __future__ import annotations

import numpy as np

COAT_THRESHOLD = 8  # gray levels of 255: source and truth differ by more on the coat


def stripes_score(source: np.ndarray, translated: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Score translations that should change the coat of an animal and nothing else.

    The coat is where source and truth differ. "outside" and "inside" are the mean absolute errors off and on the coat. The position
    of stripes cannot be predicted from a horse, so "coat" compares the colors of the coat only: it is the Wasserstein-1 distance
    (Rubner et al. 2000) per image and channel, the mean difference of the sorted values. "total" weights "coat" and "outside" by
    their areas. A network that changes too little scores badly, because "inside" and "coat" of the unchanged source are the whole
    distance between the domains.

    Args:
        source: Images before translation, uint8 [N, H, W, C].
        translated: Their translations.
        truth: Their ground truth.

    Returns:
        The four scores by name, means over the images in gray levels (0 to 255).

    Raises:
        ValueError: The shapes differ, or source and truth of an image differ everywhere or nowhere.
    """
    if not source.shape == translated.shape == truth.shape:
        raise ValueError(f"shapes {source.shape}, {translated.shape}, {truth.shape}: expected three equal ones")
    rows = []
    for before, after, right in zip(*(images.astype(np.float64) for images in (source, translated, truth))):
        coat = np.abs(before - right).max(axis=-1) > COAT_THRESHOLD
        if coat.all() or not coat.any():
            raise ValueError("source and truth differ everywhere or nowhere; expected pairs that differ in a part")
        error = np.abs(after - right)
        outside, inside = error[~coat].mean(), error[coat].mean()
        colors = np.abs(np.sort(after[coat], axis=0) - np.sort(right[coat], axis=0)).mean()
        share = coat.mean()
        rows.append((outside, inside, colors, share * colors + (1 - share) * outside))
    return dict(zip(("outside", "inside", "coat", "total"), np.mean(rows, axis=0).tolist()))
