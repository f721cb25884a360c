import numpy as np
import pytest

from cyclegan.evaluation.stripes_score import stripes_score


@pytest.fixture
def pair():
    """Return an image with a brown half on a green ground, and the same with black and white stripes instead of brown."""
    source = np.full((1, 4, 8, 3), (0, 200, 0), np.uint8)
    truth = source.copy()
    source[:, :2] = 100
    truth[:, :2] = np.where(np.arange(8) % 2, 255, 0)[:, None]
    return source, truth


def test_truth_is_perfect(pair):
    source, truth = pair
    assert stripes_score(source, truth, truth) == {"outside": 0, "inside": 0, "coat": 0, "total": 0}


def test_identity_scores_the_gap_between_the_domains(pair):
    source, truth = pair
    # sorted: 100 against 0 in one half, against 255 in the other
    gap = (100 + 155) / 2
    expected = {"outside": 0, "inside": gap, "coat": gap, "total": gap / 2}
    assert stripes_score(source, source, truth) == expected


def test_displaced_stripes_have_no_coat_error(pair):
    source, truth = pair
    shifted = truth.copy()
    shifted[:, :2] = 255 - truth[:, :2]
    scores = stripes_score(source, shifted, truth)
    assert scores["inside"] == 255 and scores["coat"] == scores["total"] == 0


def test_background_errors_count_in_the_total(pair):
    source, truth = pair
    spoilt = truth.copy()
    spoilt[:, 2:] += 30
    scores = stripes_score(source, spoilt, truth)
    assert scores == {"outside": 30, "inside": 0, "coat": 0, "total": 15}


def test_refuses_pairs_without_a_coat(pair):
    source, truth = pair
    with pytest.raises(ValueError, match="everywhere or nowhere"):
        stripes_score(source, source, source)
    with pytest.raises(ValueError, match="three equal"):
        stripes_score(source, source[:, :2], truth)
