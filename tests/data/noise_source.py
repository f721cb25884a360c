"""Images of noise that are decoded on demand."""

import pathlib

import numpy as np

from cyclegan.data.lazy_images import LazyImages

SIZE = 16


class Source:
    """Return an image of noise for an index, and record the calls.

    Attributes:
        decoded: Indices of all calls.
    """

    def __init__(self, size=SIZE):
        self.size = size
        self.decoded = []

    def images(self, count, store=None):
        return lazy_images(self, count, self.size, store)

    def __call__(self, index):
        self.decoded.append(index)
        return self.image(index)

    def image(self, index):
        return np.random.default_rng(index).integers(0, 256, (self.size, self.size, 3)).astype(np.uint8)


def lazy_images(decode, count, size, store=None):
    """Return square RGB images of 8 bits."""
    return LazyImages(decode, (count, size, size, 3), np.full((count, 2), size), np.uint8, store)


def assert_right(images, source):
    """Check the pixels of all images."""
    assert len(images) == images.shape[0] and images.shape[1:] == (source.size, source.size, 3)
    for i in range(len(images)):
        assert images[i].dtype == np.uint8
        np.testing.assert_array_equal(images[i], source.image(i))


def resident_bytes():
    """Return the bytes of memory that this process has."""
    return int(pathlib.Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) * 1024
