"""Quality scores on arrays."""

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
