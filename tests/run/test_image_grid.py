import io

import numpy as np
import pytest
from PIL import Image

from cyclegan.run.image_grid import grid_png

TITLES = ["X", "G(X)", "F(G(X))", "Y", "F(Y)", "G(F(Y))"]


def flat(*values):
    """Return a float32 image [16, 16, channels], all pixels alike."""
    return np.broadcast_to(np.float32(values), (16, 16, len(values)))


def column_centres(rows, height):
    """Draw a grid; return the RGB levels at some height [0, 1] in the middle of each column."""
    png, width, rows_height = grid_png(rows, TITLES)
    image = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)
    assert image.shape[:2] == (rows_height, width)
    return image[int(height * rows_height), [int(width * (column + 0.5) / 6) for column in range(6)]]


@pytest.mark.parametrize("channels", [1, 3])
def test_images_side_by_side(channels):
    row = [flat(*[value] * channels) for value in (-1, 0, 1, 1, 0, -1)]
    levels = np.array([0, 128, 255, 255, 128, 0])[:, None]
    assert np.abs(column_centres([row, row], 0.3) - levels).max() <= 1


def test_other_channels_are_shown_as_gray_or_rgb():
    """Show the first of two channels as gray, and the first three of five."""
    two, five = flat(-1, 1), flat(1, -1, 0, 1, 1)
    black, red, gray = (0, 0, 0), (255, 0, 128), (128, 128, 128)
    found = column_centres([[two, five, flat(0, 1), five, two, five]], 0.6)
    assert np.abs(found - [black, red, gray, red, black, red]).max() <= 1
