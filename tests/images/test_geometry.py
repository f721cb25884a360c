"""Resizing, and the sizes of --preprocess."""

import numpy as np
import pytest
from PIL import Image

from cyclegan.config import Config
from cyclegan.errors import UserError
from cyclegan.images import geometry

SIZES = np.array([(100, 200), (200, 100), (64, 64), (33, 150)])


def test_resize_equals_pillow_at_every_depth():
    values = np.random.default_rng(0).integers(60, 196, (40, 30, 5)).astype(np.uint8)
    for size in ((12, 20), (50, 31), (40, 31)):
        expected = np.asarray(Image.fromarray(values[..., :3]).resize(size[::-1], Image.BICUBIC)).astype(int)
        np.testing.assert_array_equal(geometry.resize(values[..., :3], size), expected)
        for image, scale in ((values, 1), (values.astype(np.uint16) * 257, 257)):
            resized = geometry.resize(image, size)
            assert resized.dtype == image.dtype and resized.shape == (*size, 5)
            difference = resized[..., :3] / scale - expected
            assert np.abs(difference).max() <= 1.1  # with 8 bits, Pillow also rounds between rows and columns
    stripes = np.zeros((64, 64, 2), np.uint16)
    stripes[:, ::2] = 60000
    gray = geometry.resize(stripes, (8, 8)).astype(int)
    assert np.abs(gray - 30000).max() < 1500  # no aliasing, which would give 0 or 60000
    edge = np.zeros((8, 8, 1), np.uint16)
    edge[:, 4:] = 65535
    assert np.unique(geometry.resize(edge, (8, 32))[0, [0, 15, 16, 31], 0].astype(int) // 32768).tolist() == [0, 1]
    assert geometry.resize(values, (40, 30)) is values


def config(mode, **values):
    return Config.from_settings(preprocess=mode, **{"image_size": 64, "image_width": 48, "load_size": 90, **values})


def resized(mode, training=True, sizes=SIZES, **values):
    settings = config(mode, **values)
    return geometry.resized_sizes(settings.data, settings.networks.multiple, np.array(sizes), training).tolist()


def test_resize_and_crop_resizes_to_one_size():
    assert resized("resize_and_crop") == 4 * [[90, round(90 * 48 / 64)]]
    assert resized("resize_and_crop", training=False) == 4 * [[64, 48]]


@pytest.mark.parametrize("training", [True, False])
def test_crop_resizes_nothing(training):
    assert resized("crop", training) == SIZES.tolist()


@pytest.mark.parametrize("training", [True, False])
def test_scale_width_equals_the_reference(training):
    """Compare with base_dataset.__scale_width: height int(max(load_size * height / width, crop_size))."""
    expected = [[int(max(90 * height / width, 64)), 90] for height, width in SIZES]
    assert expected == [[64, 90], [180, 90], [90, 90], [64, 90]]
    assert resized("scale_width_and_crop", training) == expected
    # Without a crop, sides are multiples of 4: 90 is as far from 88 as from 92, and 22 is even.
    assert resized("scale_width", training) == [[64, 88], [180, 88], [88, 88], [64, 88]]
    assert resized("scale_width", training, [(100, 90), (61, 60)], load_size=61) == [[68, 60], [64, 60]]


def test_none_resizes_to_multiples():
    assert resized("none", sizes=[(101, 203), (102, 198), (64, 64), (1, 5)]) == [
        *([100, 204], [104, 200]),  # 25.5 and 49.5 go to the even neighbor, as Python rounds
        *([64, 64], [4, 4]),
    ]
    unet = {"generator": "unet_128", "image_size": 128, "image_width": 128}
    assert resized("none", sizes=[(100, 300), (130, 20)], **unet) == [[128, 256], [128, 128]]


def final_size(mode, sizes, training=True, **values):
    wanted, sizes = config(mode, **values), np.array(sizes)
    resized = geometry.resized_sizes(wanted.data, wanted.networks.multiple, sizes, training)
    names = [f"{i}.png" for i in range(len(sizes))]
    return geometry.final_size(wanted.data, sizes, resized, names)


def test_crop_decides_the_final_size():
    for mode in ("resize_and_crop", "scale_width_and_crop"):
        assert final_size(mode, SIZES) == (64, 48)
    assert final_size("crop", [(64, 48), (900, 50)]) == (64, 48)
    with pytest.raises(UserError, match=r"crop: 2 images are smaller than the crop, for example 1.png \(48 x 63 "):
        final_size("crop", [(64, 48), (63, 48), (64, 47)])


def test_without_a_crop_all_sizes_are_equal():
    assert final_size("none", [(101, 203), (100, 204)]) == (100, 204)
    assert final_size("scale_width", [(100, 100), (200, 200)]) == (88, 88)
    text = (
        r"--preprocess none: 0.png \(204 x 100 pixels\) and 2.png \(214 x 100 pixels, resized to 216 x 100 pixels\)"
        r" differ in size; expected one size .*: use --preprocess crop or resize_and_crop"
    )
    with pytest.raises(UserError, match=text):
        final_size("none", [(100, 204), (101, 203), (100, 214)])
    with pytest.raises(UserError, match="differ in size"):
        final_size("scale_width", [(100, 100), (100, 90)])
    with pytest.raises(UserError, match=r"0.png \(12 x 40 pixels\); expected at least 16 x 16 pixels"):
        final_size("none", [(40, 12)])
