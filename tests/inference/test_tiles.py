"""Images of any size: mirrored at their edges, or in tiles with the statistics of the whole image."""

import numpy as np
import pytest

from cyclegan.config import Config
from cyclegan.inference import tiles
from cyclegan.inference.model import Model
from cyclegan.networks import generators
from tests.inference.arrays import images
from tests.inference.runs import TINY, UNET


def network_of(call, channels, multiple, reach=40):
    """Return a network without instance normalization."""
    return tiles.Network(call, lambda x, *_: (call(x), []), [], channels, multiple, reach)


def pointwise(shapes, dtype=np.uint8, reach=40):
    """Return a network that translates each pixel by itself, so that tiles are invisible; record the shapes."""

    def call(x):
        shapes.append(x.shape)
        x = x / np.float32(127.5) - 1 if x.dtype == np.uint8 else x
        return np.stack([x[..., 0] * 0.5, -x[..., 2]], axis=-1)

    return network_of(call, 2, 4, reach)


@pytest.mark.parametrize("reach", [40, 1000], ids=["exact", "fading"])
@pytest.mark.parametrize("size", [(600, 700), (513, 2500), (40, 20000), (1703, 511)], ids=str)
def test_tiles_fit_together_and_are_bounded(size, reach):
    shapes, read, image = [], [], images(*size, 3)

    def rows(part):
        read.append(part.stop - part.start)
        return image[part]

    parts = list(tiles.TiledImage(rows, size, pointwise(shapes, reach=reach), 512).translate())
    expected = np.stack([(image[..., 0] / 127.5 - 1) * 0.5, 1 - image[..., 2] / 127.5], axis=-1)
    assert np.abs(np.concatenate(parts) - (expected + 1) * 127.5).max() <= 0.5 + 1e-2
    assert len(shapes) > 1 and all(max(shape[1:3]) <= 512 for shape in shapes)
    assert max(read) <= 512 and max(map(len, parts)) <= 512


def test_small_images_are_not_tiled():
    shapes = []
    tiles.translate(images(2, 400, 600, 3), pointwise(shapes), 512)  # fewer pixels than a tile, though longer
    assert shapes == [(2, 400, 600, 3)]


@pytest.mark.parametrize("multiple, size", [(4, (17, 23)), (4, (1, 1)), (4, (33, 2)), (128, (130, 20))], ids=str)
def test_images_are_mirrored_to_sides_that_fit(multiple, size):
    image, seen = images(*size, 3), []

    def call(x):
        seen.append(x)
        return x[..., :1] / np.float32(127.5) - 1

    (got,) = tiles.translate(image[None], network_of(call, 1, multiple), 512)
    np.testing.assert_array_equal(got, image[..., :1])
    missing = [(-(-max(side, 16) // multiple)) * multiple - side for side in size]
    padding = [(each // 2, each - each // 2) for each in missing]
    np.testing.assert_array_equal(seen[0][0], np.pad(image, (*padding, (0, 0)), "reflect"))


class RandomModel(Model):
    """A model with random weights."""

    def __init__(self, **settings):
        self.config = Config.from_settings(**{**TINY, "channels_y": 3, **settings})
        generator = generators.make_generator(self.config.networks)
        rng = np.random.default_rng(0)
        for variable in generator.variables:
            if len(variable.shape) == 1:  # gamma, beta, biases and statistics
                variable.assign(rng.normal(1, 0.2, variable.shape))
        self.generators, self.tile, self._device, self._functions = {"x2y": generator}, 512, None, {}


def uneven_image():
    """Return an image, uint8 [521, 702, 3], whose parts have other statistics: smooth and dark, or squares of noise."""
    image = images(131, 176, 3).repeat(4, 0).repeat(4, 1)[:521, :702]
    image[:, :400] = np.linspace(0, 60, 400).astype(np.uint8)[:, None]
    return image


@pytest.mark.parametrize(
    "settings, level",
    [
        ({}, 1),
        ({"variant": "paper", "antialias": True}, 1),
        ({"upsample": "resize", "norm_affine": "no"}, 1),
        ({"norm": "batch"}, 0),
        (UNET, 3),  # sees more than the margins of its tiles
    ],
    ids=["resnet", "paper", "resize", "batch", "unet"],
)
def test_tiles_have_the_statistics_of_the_whole_image(settings, level):
    model, image = RandomModel(**settings), uneven_image()
    tiled = model.x2y(image)
    model.tile = 1024
    whole = model.x2y(image)
    difference = np.abs(tiled.astype(int) - whole)
    assert difference.max() <= level and whole.std() > 5


def test_large_tiles_of_unets_are_exact():
    """Tiles of three times the reach of the network have margins of all pixels that influence the rest."""
    model, image = RandomModel(**UNET, norm="batch"), images(400, 390, 3).repeat(4, 0).repeat(4, 1)
    for variable in model.generators["x2y"].variables:
        if len(variable.shape) == 4:  # so that the innermost layers change the output
            variable.assign(variable * 5)
    floats = image / np.float32(127.5) - 1
    model.tile = 1536
    tiled = model.x2y(floats)
    model.tile = 2048
    np.testing.assert_allclose(tiled, model.x2y(floats), atol=1e-4)
