import re

import numpy as np
import pytest

from cyclegan.config import Config
from cyclegan.config.data import DataConfig
from cyclegan.errors import UserError
from cyclegan.images import writer
from cyclegan.images.image import DecodedImage
from cyclegan.inference.real_images import check_same_names, read_folder
from tests.inference.arrays import images


def save(path, *shape, dtype=np.uint8):
    """Write a random image; return it."""
    pixels = images(*shape, dtype=dtype)
    writer.write(path, DecodedImage(pixels))
    return pixels


def test_a_folder_is_resized_like_held_out_images(tmp_path):
    exact = save(tmp_path / "b.png", 16, 20, 3)
    save(tmp_path / "sub" / "a.jpg", 33, 50, 3)
    (tmp_path / "notes.txt").write_text("no image")
    config = Config.from_settings(image_size=16, image_width=20, load_size=40)
    found = read_folder(tmp_path, config.data, 4, 3, (16, 20))
    assert found.shape == (2, 16, 20, 3) and found.dtype == np.uint8
    np.testing.assert_array_equal(found[0], exact)
    assert found[1].shape == (16, 20, 3)
    assert read_folder(tmp_path, config.data, 4, 1, (16, 20))[1].shape == (16, 20, 1)


def test_one_16_bit_image_makes_all_16_bit(tmp_path):
    shallow = save(tmp_path / "a.png", 16, 16, 1)
    deep = save(tmp_path / "b.png", 16, 16, 1, dtype=np.uint16)
    found = read_folder(tmp_path, Config.from_settings(image_size=16).data, 4, 1, (16, 16))
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found[0], shallow * np.uint16(257))
    np.testing.assert_array_equal(found[1], deep)


def test_images_of_other_sizes_are_refused(tmp_path):
    save(tmp_path / "a.png", 18, 34, 3)  # resized to the nearest multiples of 4
    config = Config.from_settings(preprocess="none", image_size=16, pool_size=0)
    text = f"--real {tmp_path}: the images have 32 x 16 pixels after resizing; expected the run's 16 x 16 pixels: resize them"
    with pytest.raises(UserError, match=re.escape(text)):
        read_folder(tmp_path, config.data, 4, 3, (16, 16))
    assert read_folder(tmp_path, config.data, 4, 3, (16, 32)).shape == (1, 16, 32, 3)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="no images; expected at least 2 of .png"):
        read_folder(tmp_path, DataConfig(), 4, 3, (256, 256))


def test_pairs_differ_in_folder_and_suffix_only():
    check_same_names(["testA/1.png", "testA/b/2.jpg"], ["testB/1.tif", "testB/b/2.png"])
    check_same_names([], [])


@pytest.mark.parametrize(
    "x, y, counts, example",
    [
        (["testA/1.png", "testA/2.png"], ["testB/1.png", "testB/3.png"], (2, 2), "2"),
        (["testA/1.png", "testA/2.png"], ["testB/1.png"], (2, 1), "2"),
        (["testA/1.png"], ["testB/b/1.png"], (1, 1), "1"),
        (["testA/2.png", "testA/1.png"], ["testB/1.png", "testB/2.png"], (2, 2), "2"),  # in another order
        (["testA/1.png", "testA/1.jpg"], ["testB/1.png"], (2, 1), "1"),
    ],
)
def test_other_names_are_refused(x, y, counts, example):
    with pytest.raises(UserError) as error:
        check_same_names(x, y)
    assert "of X ({}) and Y ({}) do not have the same names".format(*counts) in str(error.value)
    assert f"for example {example}; expected an image of Y with the same name" in str(error.value)
