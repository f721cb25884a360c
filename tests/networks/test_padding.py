import numpy as np

from cyclegan.networks.padding import ReflectionPadding2D


def test_equals_numpy():
    x = np.random.default_rng(0).normal(size=(2, 5, 4, 3)).astype(np.float32)
    np.testing.assert_array_equal(
        ReflectionPadding2D(3)(x).numpy(), np.pad(x, ((0, 0), (3, 3), (3, 3), (0, 0)), "reflect")
    )
