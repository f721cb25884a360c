import numpy as np
import pytest

from cyclegan.evaluation.label_errors import label_errors

COLORS = [(0, 0, 0), (255, 0, 0), (0, 255, 255)]


def test_by_hand():
    truth = np.array([[[COLORS[0]] * 6 + [COLORS[1]] * 2]], np.uint8)  # one image of 1 x 8 pixels
    got = truth.copy()
    got[0, 0, 0] = (127, 10, 10)  # nearer to black than to red
    got[0, 0, 1] = (129, 0, 0)  # red
    got[0, 0, 7] = (90, 180, 180)  # cyan
    assert label_errors(got, truth, COLORS) == {"pixels": 25.0, "classes": pytest.approx(100 * (1 / 6 + 1 / 2) / 2)}
    assert label_errors(truth, truth, COLORS) == {"pixels": 0.0, "classes": 0.0}


def test_shapes_must_be_equal():
    with pytest.raises(ValueError, match="expected equal ones"):
        label_errors(np.zeros((1, 2, 2, 3), np.uint8), np.zeros((1, 2, 3, 3), np.uint8), COLORS)
