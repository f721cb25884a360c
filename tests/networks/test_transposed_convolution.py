import numpy as np
import pytest
import tensorflow as tf

from cyclegan.networks.transposed_convolution import make_transposed_convolution
from tests.networks.helpers import assert_all_close, noise, output_and_gradients, with_random_weights


@pytest.mark.sampled
@pytest.mark.parametrize("kernel", [2, 3, 4, 7])
@pytest.mark.parametrize("height, width", [(4, 6), (5, 3), (1, 1)])
def test_equals_keras(kernel, height, width):
    ours = make_transposed_convolution(6, kernel)
    theirs = tf.keras.layers.Conv2DTranspose(6, kernel, 2, "same", use_bias=False)
    x = noise(2, height, width, 4)
    for layer in (ours, theirs):
        layer.build(x.shape)
    with_random_weights(ours, theirs)
    assert ours(x).shape == (2, 2 * height, 2 * width, 6)
    assert_all_close(output_and_gradients(ours, x), output_and_gradients(theirs, x), 1e-6)


def test_valid_padding_is_pytorchs_layer():
    """Compare with a loop for ConvTranspose2d(kernel 3, stride 2, padding 1, output padding 1): pixel i adds to 2 i - 1 and on."""
    layer = make_transposed_convolution(4, 3, padding="valid", use_bias=True)
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 6)).astype(np.float32)
    layer.build(x.shape)
    with_random_weights(layer)
    kernel, bias = layer.kernel.numpy(), layer.bias.numpy()
    expected = np.zeros((2, 6, 10, 4)) + bias
    for i, j, down, right in np.ndindex(3, 5, 3, 3):
        row, column = 2 * i - 1 + down, 2 * j - 1 + right
        if 0 <= row < 6 and 0 <= column < 10:
            expected[:, row, column] += x[:, i, j] @ kernel[down, right].T
    np.testing.assert_allclose(layer(x).numpy(), expected, atol=1e-5)
    assert tuple(layer.compute_output_shape((2, 3, None, 6))) == (2, 6, None, 4)
    free = tf.function(layer, input_signature=[tf.TensorSpec([None, None, None, 6])])
    np.testing.assert_allclose(free(x).numpy(), expected, atol=1e-5)
