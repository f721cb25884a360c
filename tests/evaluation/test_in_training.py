import numpy as np
import pytest

from cyclegan.errors import UserError
from cyclegan.evaluation.in_training import make_evaluator


def black(x, training=False):
    return 0 * x - 1


def unchanged(x, training=False):
    return x


@pytest.mark.parametrize("paired", [True, False])
def test_scores_of_paired_and_other_images(paired):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 256, (2, 20, 24, 3)).astype(np.uint8) for _ in "xy")
    evaluator = make_evaluator("random", (black, unchanged), x, y, (16, 16), paired, bars=False)
    scores = evaluator.scores("x2y", errors=False)
    assert {"FID", "KID", "KID_std"} <= set(scores) and ("MAE" in scores) == paired
    if paired:
        assert scores["MAE"] == pytest.approx(y[:, 2:18, 4:20].mean())  # of G, which paints all black


def test_features_must_take_the_channels_of_both_domains():
    x, y = (np.zeros((2, 16, 16, channels), np.uint8) for channels in (3, 5))
    for domains in ((x, y), (y, x)):
        with pytest.raises(UserError, match="images of 5 channels: Inception takes RGB"):
            make_evaluator("inception", (black, black), *domains, (16, 16), False, False)
        assert make_evaluator("random", (black, black), *domains, (16, 16), False, False).extractor.name == "random"
