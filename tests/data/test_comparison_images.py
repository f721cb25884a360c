"""Images on which exports are compared."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from cyclegan.config import Config
from cyclegan.data import sources
from cyclegan.data.sources import comparison_images


@pytest.fixture
def data(tmp_path):
    """Return the settings of a dataset in a folder, 3 channels to 1."""
    for split, shape in (("testA", (40, 48, 3)), ("trainB", (40, 48))):
        (tmp_path / split).mkdir()
        for number in range(3):
            levels = np.random.default_rng(number).integers(0, 256, shape).astype(np.uint8)
            Image.fromarray(levels).save(tmp_path / split / f"{number}.png")
    return Config.from_settings(dataset=str(tmp_path), channels_y=1, image_size=32, load_size=32).data


def test_held_out_images_come_in_two_sizes(data, tmp_path):
    images, text = comparison_images(data, "x2y", 4)
    assert [image.shape for image in images] == [(32, 32, 3)] * 2 + [(36, 40, 3)] * 2
    expected = [np.asarray(Image.open(tmp_path / "testA" / name).resize((32, 32))) for name in ("0.png", "1.png")]
    np.testing.assert_array_equal(images[:2], expected)
    assert text == f"2 images ({tmp_path}, testA), 32 x 32 and 36 x 40 pixels"


def test_training_images_are_held_out_without_a_test_folder(data, tmp_path):
    images, text = comparison_images(data, "y2x", 4)
    assert [image.shape for image in images] == [(32, 32, 1), (36, 40, 1)]
    np.testing.assert_array_equal(images[0][..., 0], Image.open(tmp_path / "trainB" / "0.png").resize((32, 32)))
    assert text.startswith(f"1 image ({tmp_path}, testB)")


def test_given_files_are_resized_to_the_given_size(data, tmp_path):
    (image,), text = comparison_images(data, "x2y", 4, [str(tmp_path / "trainB" / "2.png")], (64, 32))
    assert image.shape == (64, 32, 3) and text == "1 image (given), 64 x 32 pixels"


def test_drawn_images_replace_a_missing_dataset(data):
    data = dataclasses.replace(data, dataset="stripes", channels_y=5)
    images, text = comparison_images(data, "y2x", 4)
    assert [image.shape for image in images] == [(32, 32, 5)] * 2 + [(36, 40, 5)] * 2
    assert text.startswith("2 drawn images, ") and images[0].std() > 20 and (images[0] != images[1]).any()
    np.testing.assert_array_equal(images[0], sources.draw("stripes", "testB", 0, 32)[..., [0, 1, 2, 0, 1]])
