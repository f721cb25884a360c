"""Conversions between value ranges."""

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.images.image import DecodedImage, Metadata
from cyclegan.images.value_range import (
    from_float,
    image_to_levels,
    image_to_values,
    mark_missing,
    restore_nodata,
    to_depth,
    to_float,
    to_levels,
    to_values,
    value_type,
)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_to_float_is_the_same_for_arrays_and_tensors(dtype):
    levels = np.arange(np.iinfo(dtype).max + 1).astype(dtype)
    expected = tf.cast(levels, tf.float32) / (np.iinfo(dtype).max / 2) - 1.0
    array, tensor = to_float(levels), to_float(tf.constant(levels))
    assert array.dtype == np.float32 and tensor.dtype == tf.float32
    np.testing.assert_array_equal(array, expected)
    np.testing.assert_array_equal(tensor, expected)
    np.testing.assert_array_equal(from_float(array, dtype), levels)
    assert (array[0], array[-1]) == (-1, 1)
    symbolic = tf.function(to_float)(levels)  # the graph optimizer multiplies by the reciprocal
    np.testing.assert_allclose(symbolic, expected, rtol=0, atol=1.2e-7)


def test_from_float_rounds_and_clips():
    floats = np.float32([[-1, -1.5, 0.999, 1.5, 0]])
    assert from_float(floats, np.uint8).tolist() == [[0, 0, 255, 255, 128]]
    assert from_float(floats, np.uint16).tolist() == [[0, 0, 65502, 65535, 32768]]
    with pytest.raises(ValueError, match="not finite"):
        from_float(np.float32([0, np.nan]), np.uint8)


def test_to_depth_scales_by_257():
    levels = np.arange(256).astype(np.uint8)
    deep = to_depth(levels, np.uint16)
    assert deep.dtype == np.uint16 and deep.tolist() == [257 * level for level in range(256)]
    np.testing.assert_array_equal(to_depth(deep, np.uint8), levels)
    assert to_depth(levels, np.uint8) is levels


def test_values_of_a_range_become_levels_by_hand():
    values = np.array([-2000, -1000, 0, 500, 2000, 3000], np.int16)
    assert to_levels(values, (-1000, 2000)).tolist() == [0, 0, 21845, 32768, 65535, 65535]
    assert to_levels(np.float32([0.25, np.inf, -np.inf]), (0, 1)).tolist() == [16384, 65535, 0]
    assert to_levels(np.float32([1, np.nan, -9999]), (0, 1)).tolist() == [65535, 0, 0]
    gray = np.float32([[1], [np.nan], [0.7], [0.5]])
    assert to_levels(gray, (0, 1), nodata=0.7)[:, 0].tolist() == [65535, 0, 0, 32768]
    colors = np.array([[255, 10, 10], [255, 255, 255]], np.uint8)  # only the second has no data
    assert to_levels(colors, (0, 255), nodata=255).tolist() == [[65535, 2570, 2570], [0, 0, 0]]
    lowest = np.finfo(float).min
    assert to_levels(np.array([[lowest], [1], [-lowest]]), (0, 1), lowest).tolist() == [[0], [65535], [65535]]
    large = np.array([[2147483600], [2147483647]], np.int32)
    assert to_levels(large, (0, 2**31), nodata=2147483647).tolist() == [[65535], [0]]


@pytest.mark.parametrize("value_range", [(0, 4095), (-1024, 3071), (-32768, 32767), (12.3, 3981.4), (0, 200)])
def test_whole_numbers_return_exactly(value_range):
    low, high = value_range
    values = np.arange(int(np.ceil(low)), int(high) + 1)
    np.testing.assert_array_equal(
        to_values(to_levels(values, value_range), value_range, value_type(value_range)), values
    )


@pytest.mark.parametrize(
    "value_range, dtype",
    [
        *[((0, 255), np.uint8), ((0, 4095), np.uint16), ((-1000, 2000), np.int16), ((-70000, 0), np.float32)],
        *[((0, 70000), np.float32), ((0, 1), np.float32), ((10, 73), np.float32), ((10, 74), np.uint8)],
    ],
)
def test_the_type_of_values_is_the_smallest_that_holds_them(value_range, dtype):
    assert value_type(value_range) == dtype and value_type(value_range, fractional=True) == np.float32


def test_other_pixels_of_a_file_of_floats_may_have_no_data():
    """The first rows or pages decide what the translation names."""
    values = np.float32([[[1], [2]]])
    for given, fractional, nodata in ((None, True, np.nan), (-1, True, -1), (None, False, None)):
        image = mark_missing(DecodedImage(values, None, Metadata(nodata=given), fractional))
        assert f"{image.metadata.nodata}" == f"{nodata}" and image.missing is None


@pytest.mark.parametrize(
    "dtype, nodata, moved",
    [("u1", 0, 1), ("u1", 255, 254), ("i2", -32768, -32767), ("f4", -2, -1.9999999), ("f4", 0, 0)],
)
def test_translations_of_data_never_become_the_value_for_missing_data(dtype, nodata, moved):
    pixels = np.array([[[nodata, nodata], [nodata, 7], [9, 9]]], dtype)
    image = DecodedImage(pixels, None, Metadata(nodata=nodata), missing=np.uint8([[[0], [0], [1]]]))
    found = restore_nodata(image).pixels
    assert found.dtype == dtype and (found[0, 0] != nodata).all()
    np.testing.assert_allclose(found[0], [[moved] * 2, [nodata, 7], [nodata] * 2], rtol=1e-7, atol=1e-40)


def test_opacity_has_the_depth_of_the_values():
    image = DecodedImage(np.full((2, 3, 1), 100, np.uint8), np.full((2, 3, 1), 51, np.uint8))
    levels = image_to_levels(image, (0, 200))
    assert levels.pixels.max() == 32768 and levels.opacity.max() == 51 * 257
    for value_range, opacity in (((0, 200), 51), ((0, 4095), 51 * 257)):
        assert image_to_values(levels, value_range).opacity.max() == opacity
    assert image_to_values(levels, (0, 1)).opacity is None
