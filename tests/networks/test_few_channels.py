import numpy as np
import pytest
import tensorflow as tf

from cyclegan.networks.few_channels import convolve_to_few_channels
from tests.networks.helpers import assert_all_close


@pytest.mark.parametrize("kernel, height, width", [((3, 3), 6, 8), ((3, 5), 5, 8), ((2, 3), 5, 6), ((1, 1), 2, 4)])
def test_output_and_gradients_equal_loops_in_float64(kernel, height, width):
    rng = np.random.default_rng(0)
    tall, wide = kernel
    x, weight = rng.normal(size=(2, height, width, 3)), rng.normal(size=(tall, wide, 3, 2))
    y = np.zeros((2, height - tall + 1, width - wide + 1, 2))
    dy = rng.normal(size=y.shape)
    dx, dweight = np.zeros(x.shape), np.zeros(weight.shape)
    for n, i, j, down, right in np.ndindex(*y.shape[:3], tall, wide):
        y[n, i, j] += x[n, i + down, j + right] @ weight[down, right]
        dx[n, i + down, j + right] += weight[down, right] @ dy[n, i, j]
        dweight[down, right] += np.outer(x[n, i + down, j + right], dy[n, i, j])
    x, weight, back = (tf.constant(array, tf.float32) for array in (x, weight, dy))
    with tf.GradientTape() as tape:
        tape.watch([x, weight])
        got = convolve_to_few_channels(x, weight)
    gradients = tape.gradient(got, [x, weight], back)
    assert_all_close([t.numpy() for t in (got, *gradients)], [y, dx, dweight], 1e-6)
