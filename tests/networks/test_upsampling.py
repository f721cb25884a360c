import numpy as np

from cyclegan.networks.upsampling import NearestUpsampling2D
from tests.networks.helpers import noise, output_and_gradients, upstream


def test_repeats_each_pixel_and_sums_the_gradients():
    x = noise(2, 3, 4, 5)
    y, dx = output_and_gradients(NearestUpsampling2D(), x)
    np.testing.assert_array_equal(y, x.numpy().repeat(2, axis=1).repeat(2, axis=2))
    np.testing.assert_allclose(dx, upstream(y).numpy().reshape(2, 3, 2, 4, 2, 5).sum(axis=(2, 4)), atol=1e-6)
