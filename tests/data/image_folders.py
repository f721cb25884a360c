"""Datasets of image files for the tests."""

import imagecodecs
import numpy as np
import tifffile
from PIL import Image

from cyclegan.config import Config
from cyclegan.data import sources

CACHES = ("ram", "none")
BANDS = {"channels_x": 1, "channels_y": 5}  # settings for the fixture `bands`


def save(path, color=(200, 100, 50), size=(20, 10)):
    """Write an image of one color; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)
    return path


def photograph(path, seed, side):
    """Write an RGB image of noise; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side - 5, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def noise(path, seed, size=(20, 30), bands=3, dtype=np.uint16):
    """Write noise, as a PNG or as a TIFF of any number of bands; return it."""
    values = np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, (*size, bands)).astype(dtype)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        path.write_bytes(imagecodecs.png_encode(values.squeeze()))
    else:
        tifffile.imwrite(path, values, photometric="minisblack", planarconfig="contig")
    return values


def load(dataset, image_size=16, load_size=24, **settings):
    """Load a dataset, into memory by default."""
    defaults = {"image_size": image_size, "load_size": load_size, "cache": "ram"}
    return load_config(Config.from_settings(dataset=str(dataset), **{**defaults, **settings}))


def load_config(config, **options):
    """Load the dataset of a configuration."""
    return sources.load_domains(config.data, config.networks.multiple, **options)


def image_sets(domains):
    """Return the image sets of all splits."""
    return domains.train_x, domains.train_y, domains.test_x, domains.test_y


def stack(images):
    """Return images as an array, after reading each image twice."""
    first, again = (np.stack([images[i] for i in range(len(images))]) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert images.shape == first.shape and images.dtype == first.dtype
    return first
