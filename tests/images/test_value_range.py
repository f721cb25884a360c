"""Conversions between value ranges."""

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.images.value_range import from_float, to_depth, to_float


def test_to_float_spans_minus_one_to_one():
    assert to_float(np.array([0, 255], np.uint8)).tolist() == [-1.0, 1.0]
    assert to_float(np.array([0, 65535], np.uint16)).tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_to_float_is_the_same_for_arrays_and_tensors(dtype):
    levels = np.arange(np.iinfo(dtype).max + 1).astype(dtype)
    expected = tf.cast(levels, tf.float32) / (np.iinfo(dtype).max / 2) - 1.0
    array, tensor = to_float(levels), to_float(tf.constant(levels))
    assert array.dtype == np.float32 and tensor.dtype == tf.float32
    np.testing.assert_array_equal(array, expected)
    np.testing.assert_array_equal(tensor, expected)
    symbolic = tf.function(to_float)(levels)  # the graph optimizer multiplies by the reciprocal
    np.testing.assert_allclose(symbolic, expected, rtol=0, atol=1.2e-7)


def test_from_float_rounds_and_clips():
    floats = np.float32([[-1, -1.5, 0.999, 1.5, 0]])
    assert from_float(floats, np.uint8).tolist() == [[0, 0, 255, 255, 128]]
    assert from_float(floats, np.uint16).tolist() == [[0, 0, 65502, 65535, 32768]]
    with pytest.raises(ValueError, match="not finite"):
        from_float(np.float32([0, np.nan]), np.uint8)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_from_float_inverts_to_float(dtype):
    levels = np.arange(np.iinfo(dtype).max + 1).astype(dtype)
    np.testing.assert_array_equal(from_float(to_float(levels), dtype), levels)


def test_to_depth_scales_by_257():
    levels = np.arange(256).astype(np.uint8)
    deep = to_depth(levels, np.uint16)
    assert deep.dtype == np.uint16 and deep.tolist() == [257 * level for level in range(256)]
    np.testing.assert_array_equal(to_depth(deep, np.uint8), levels)
    assert to_depth(levels, np.uint8) is levels
