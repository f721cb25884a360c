"""Images of any size: mirrored at their edges, or in tiles."""

import numpy as np
import pytest

from cyclegan.inference import tiles
from tests.inference.arrays import images


def pointwise(shapes):
    """Return a network that translates each pixel by itself, so that tiles are invisible; record the shapes."""

    def network(x):
        shapes.append(x.shape)
        x = x / np.float32(127.5) - 1
        return np.stack([x[..., 0] * 0.5, -x[..., 2]], axis=-1)

    return network


@pytest.mark.parametrize("size", [(600, 700), (513, 2500), (40, 20000), (1700, 511)], ids=str)
def test_tiles_fade_and_are_bounded(size):
    shapes, image = [], images(*size, 3)
    (got,) = tiles.translate(image[None], pointwise(shapes), 2, 4, 512)
    expected = np.stack([(image[..., 0] / 127.5 - 1) * 0.5, 1 - image[..., 2] / 127.5], axis=-1)
    assert np.abs(got - (expected + 1) * 127.5).max() <= 0.5 + 1e-2
    assert len(shapes) > 1 and all(max(shape[1:3]) <= 512 for shape in shapes)


def test_small_images_are_not_tiled():
    shapes = []
    tiles.translate(images(2, 400, 600, 3), pointwise(shapes), 2, 4, 512)  # fewer pixels than a tile, though longer
    assert shapes == [(2, 400, 600, 3)]


@pytest.mark.parametrize("multiple, size", [(4, (17, 23)), (4, (1, 1)), (4, (33, 2)), (128, (130, 20))], ids=str)
def test_images_are_mirrored_to_sides_that_fit(multiple, size):
    image, seen = images(*size, 3), []

    def network(x):
        seen.append(x)
        return x[..., :1] / np.float32(127.5) - 1

    (got,) = tiles.translate(image[None], network, 1, multiple, 512)
    np.testing.assert_array_equal(got, image[..., :1])
    missing = [(-(-max(side, 16) // multiple)) * multiple - side for side in size]
    padding = [(each // 2, each - each // 2) for each in missing]
    np.testing.assert_array_equal(seen[0][0], np.pad(image, (*padding, (0, 0)), "reflect"))
