import numpy as np
import pytest

from cyclegan.data.scene_textures import PIXEL, TEXTURES
from cyclegan.data.scenes import LABEL_COLORS


def colors(label, u, v, width=0.25, height=0.5):
    """Return the colors at distances from the middle and heights above the bottom: [len(v), len(u), 3]."""
    found = TEXTURES[label](np.array(u)[None, :], np.array(v)[:, None], width, height)
    return np.broadcast_to(found, (len(v), len(u), 3))


def test_each_label_has_a_texture():
    assert set(TEXTURES) == set(LABEL_COLORS)


@pytest.mark.parametrize("label", TEXTURES)
def test_colors_are_levels_between_black_and_white(label):
    u, v = np.arange(0.5, 16) / 128, np.arange(0.5, 64) / 128  # of 128 pixels
    found = colors(label, u, v)
    assert found.min() >= 0 and found.max() <= 1


def test_the_sky_is_lightest_at_the_horizon():
    bottom, middle, top = colors("sky", [0.0], [0.0, 0.25, 0.5])[:, 0]
    np.testing.assert_allclose(bottom, (0.87, 0.92, 0.97))
    np.testing.assert_allclose(top, (0.33, 0.58, 0.9))
    np.testing.assert_allclose(middle, (0.6, 0.75, 0.935))


def test_bricks_lie_between_joints():
    joint, *_ = colors("brick", [0.06], [0.5 * PIXEL])[0]  # the lowest pixel of a course of four
    np.testing.assert_allclose(joint, (0.74, 0.7, 0.66))
    (row,) = colors("brick", [0.5 * PIXEL, 0.06], [2 * PIXEL])  # between two bricks, and in the middle of one
    np.testing.assert_allclose(row[0], joint)
    np.testing.assert_allclose(row[1] / row[1, 0], np.array((0.6, 0.27, 0.2)) / 0.6)
    (shifted,) = colors("brick", [0.5 * PIXEL], [6 * PIXEL])  # the next course begins half a brick earlier
    np.testing.assert_allclose(shifted[0] / shifted[0, 0], np.array((0.6, 0.27, 0.2)) / 0.6)


def test_a_kerb_ends_the_pavement():
    kerb, slab = colors("pavement", [0.0], [0.5 * PIXEL, 1.5 * PIXEL])[:, 0]
    np.testing.assert_allclose(kerb, 1.35 * np.array((0.62, 0.6, 0.57)))
    # 30.5 pixels below the top: slabs are two pixels deep, the upper half of them is darker.
    np.testing.assert_allclose(slab, 0.8 * np.array((0.62, 0.6, 0.57)))


def test_a_window_has_a_frame_and_glass_that_reflects_the_sky():
    width, height = 4 * PIXEL, 5 * PIXEL
    u = [0.1 * PIXEL, PIXEL, 1.8 * PIXEL]  # the bar in the middle, glass, the frame
    middle, glass, frame = colors("window", u, [height / 2], width, height)[0]
    np.testing.assert_allclose(middle, 0.95)
    np.testing.assert_allclose(frame, 0.95)
    np.testing.assert_allclose(glass, (0.24, 0.34, 0.44))  # halfway between its colors
