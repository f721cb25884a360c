import numpy as np
import pytest
from PIL import Image

from cyclegan.errors import UserError
from cyclegan.images.image import DecodedImage
from cyclegan.inference import conversions
from tests.inference.arrays import images

RGB_PROFILE, GRAY_PROFILE = (bytes(16) + space + bytes(108) for space in (b"RGB ", b"GRAY"))


def test_wrong_images_are_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"a\.png can't be read .*: expected an image of 3 channels"):
        conversions.decode(tmp_path / "a.png", 3)
    with pytest.raises(TypeError, match="list: expected a path, a Pillow image or a NumPy array"):
        conversions.decode([1, 2], 3)
    with pytest.raises(ValueError, match=r"shape \(20, 24, 4\): expected \[h, w, 3\] or \[N, h, w, 3\]"):
        conversions.as_batch(images(20, 24, 4), 3)
    with pytest.raises(ValueError, match=r"shape \(0, 24, 3\)"):
        conversions.as_batch(images(0, 24, 3), 3)
    with pytest.raises(ValueError, match="an array of float64: expected uint8"):
        conversions.as_batch(np.zeros((8, 8, 3)), 3)
    with pytest.raises(ValueError, match=r"values from 0\.0 to 255\.0: expected float32 in \[-1, 1\]"):
        conversions.as_batch(np.float32([[[0, 255, 3]]]), 3)
    with pytest.raises(ValueError, match="size with a float32 array"):
        conversions.resize_batch(np.zeros((1, 8, 8, 3), np.float32), (4, 4))


@pytest.mark.parametrize(
    "shape, channels, batch, translated",
    [
        ((5, 7), 1, (1, 5, 7, 1), (5, 7, 3)),  # gray becomes RGB
        ((5, 7, 1), 1, (1, 5, 7, 1), (5, 7, 3)),
        ((5, 7, 3), 3, (1, 5, 7, 3), (5, 7, 3)),
        ((2, 5, 7, 3), 3, (2, 5, 7, 3), (2, 5, 7, 3)),
        ((1, 5, 7, 3), 3, (1, 5, 7, 3), (1, 5, 7, 3)),
    ],
)
def test_arrays_keep_their_dimensions(shape, channels, batch, translated):
    array = images(*shape)
    found = conversions.as_batch(array, channels)
    assert found.shape == batch and found.dtype == np.uint8
    np.testing.assert_array_equal(found.ravel(), array.ravel())
    assert conversions.like_batch(array, np.zeros((*batch[:3], 3), np.uint8)).shape == translated


def test_gray_arrays_keep_the_axes_of_their_original():
    gray = np.zeros((1, 5, 7, 1), np.uint8)
    assert conversions.like_batch(images(5, 7), gray).shape == (5, 7)
    assert conversions.like_batch(images(5, 7, 3), gray).shape == (5, 7, 1)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_resizing_by_hand(dtype):
    """Images of one color keep it; sizes are (width, height)."""
    pixels = np.full((4, 6, 3), 200, dtype)
    batch = conversions.resize_batch(pixels[None], (3, 8))
    assert batch.shape == (1, 8, 3, 3) and batch.dtype == dtype and (batch == 200).all()
    assert conversions.resize_batch(pixels[None], None).shape == (1, 4, 6, 3)
    original = DecodedImage(pixels, np.full((4, 6, 1), 7, dtype), b"profile")
    resized = conversions.resize(original, (3, 8))
    assert resized.pixels.shape == (8, 3, 3) and (resized.pixels == 200).all()
    assert resized.opacity.shape == (8, 3, 1) and (resized.opacity == 7).all() and resized.profile == b"profile"
    assert conversions.resize(DecodedImage(pixels), (3, 8)).opacity is None
    assert conversions.resize(original, None) is original


@pytest.mark.parametrize("size", [7, (7,), (7, 0), (7, -1), (7.0, 7), "77", (1, 2, 3)], ids=str)
def test_other_sizes_are_refused(size):
    image = images(4, 6, 3)
    for resize, given in ((conversions.resize_batch, image[None]), (conversions.resize, DecodedImage(image))):
        with pytest.raises(UserError, match=r"size .*: expected \(width, height\) in pixels"):
            resize(given, size)


@pytest.mark.parametrize(
    "channels, clear, dtype, mode",
    [
        (1, False, np.uint8, "L"),
        (1, True, np.uint8, "LA"),
        (3, False, np.uint8, "RGB"),
        (3, True, np.uint8, "RGBA"),
        (1, False, np.uint16, "I;16"),
    ],
)
def test_arrays_become_pillow_modes(channels, clear, dtype, mode):
    pixels, opacity = images(5, 7, channels, dtype=dtype), images(5, 7, 1, seed=1, dtype=dtype)
    made = conversions.to_pillow(DecodedImage(pixels, opacity if clear else None, RGB_PROFILE))
    assert made.mode == mode and made.size == (7, 5) and made.info["icc_profile"] == RGB_PROFILE
    bands = np.concatenate([pixels, opacity], axis=2) if clear else pixels
    np.testing.assert_array_equal(np.asarray(made).reshape(bands.shape), bands)


@pytest.mark.parametrize(
    "channels, clear, dtype, what",
    [
        (2, False, np.uint8, "2 channels of 8 bits"),
        (5, True, np.uint8, "5 channels of 8 bits and opacity"),
        (3, False, np.uint16, "3 channels of 16 bits"),
        (1, True, np.uint16, "1 channels of 16 bits and opacity"),
    ],
)
def test_images_without_a_pillow_mode_are_refused(channels, clear, dtype, what):
    image = DecodedImage(images(5, 7, channels, dtype=dtype), images(5, 7, 1, dtype=dtype) if clear else None)
    with pytest.raises(UserError, match=f"Pillow has no images of {what}: expected an array"):
        conversions.to_pillow(image)


def test_a_translation_keeps_a_profile_of_its_own_colors():
    opacity = images(5, 7, 1)
    for profile, kept in ((RGB_PROFILE, {3}), (GRAY_PROFILE, {1}), (b"", set())):
        original = DecodedImage(images(5, 7, 3), opacity, profile)
        for channels in (1, 3, 5):
            made = conversions.with_pixels(original, images(5, 7, channels, seed=1))
            assert made.opacity is opacity and made.pixels.shape == (5, 7, channels)
            assert made.profile == (profile if channels in kept else b"")


def test_pillow_images_of_other_channels_are_refused():
    with pytest.raises(ValueError, match="a Pillow image: expected an array of 5 channels"):
        conversions.decode(Image.new("RGB", (7, 5)), 5)
    assert conversions.decode(Image.new("RGB", (7, 5)), 1).pixels.shape == (5, 7, 1)


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.uint16])
def test_values_of_pillow_images_get_the_range_as_they_are(dtype):
    values = np.array([[-800, -500], [0, 1500]] if dtype != np.uint16 else [[0, 100], [1000, 1500]]).astype(dtype)
    levels = conversions.decode(Image.fromarray(values), 1, ((-1000.0, 2000.0), None)).pixels
    np.testing.assert_array_equal(levels[..., 0], np.rint((values.astype(np.float64) + 1000) / 3000 * 65535))
