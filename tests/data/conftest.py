"""Folders of images."""

import numpy as np
import pytest

from tests.data.image_folders import noise, photograph, save


@pytest.fixture
def folder(tmp_path):
    """Make a dataset of 20 + 3 images, without test folders."""
    for i in range(20):
        save(tmp_path / "data" / "trainA" / f"{i:02d}.png", (i, 0, 0))
    for i in range(3):
        save(tmp_path / "data" / "trainB" / f"{i}.jpg", (0, 0, 250))
    return tmp_path / "data"


@pytest.fixture
def bands(tmp_path):
    """Make a dataset of gray 16-bit images and of 8-bit images with five bands, in different sizes."""
    for i in range(4):
        noise(tmp_path / "bands" / "trainA" / f"{i}.png", i, (24 + i, 30), 1)
        noise(tmp_path / "bands" / "trainB" / f"{i}.tif", 10 + i, (40, 32 + i), 5, np.uint8)
    return tmp_path / "bands"


@pytest.fixture
def photos(tmp_path):
    """Make a dataset of several formats and sizes, with subfolders."""
    for split, count in {"trainA": 6, "trainB": 5, "testB": 2}.items():
        for i in range(count):
            extension = ("jpg", "png", "webp", "bmp", "gif")[i % 5]
            photograph(tmp_path / "photos" / split / f"s{i % 2}" / f"{i}.{extension}", i, 24 + i)
    return tmp_path / "photos"
