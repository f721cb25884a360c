import math

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.networks.convolution import make_convolution


@pytest.mark.parametrize(
    "init, scale",
    [
        ("normal", 0.02),
        ("xavier", 0.02 * math.sqrt(2 / (9 * 64 + 9 * 32))),
        ("kaiming", math.sqrt(2 / (9 * 64))),
    ],
)
def test_spread_equals_the_reference(init, scale):
    tf.keras.utils.set_random_seed(0)  # other seeds may have a mean further from 0
    layer = make_convolution(32, 3, init=init)
    layer.build((None, None, None, 64))
    kernel = layer.kernel.numpy()
    assert kernel.std() == pytest.approx(scale, rel=0.02) and abs(kernel.mean()) < 0.02 * scale
    assert np.abs(kernel).max() > 3 * scale  # not truncated


def test_orthogonal_kernels_have_orthogonal_columns():
    layer = make_convolution(8, 3, init="orthogonal")
    layer.build((None, None, None, 4))
    columns = layer.kernel.numpy().reshape(36, 8)
    np.testing.assert_allclose(columns.T @ columns, 0.02**2 * np.eye(8), atol=1e-8)
