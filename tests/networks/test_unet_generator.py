import math

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.networks.dropout import Dropout
from cyclegan.networks.generators import make_generator
from tests.networks.helpers import network_config


@pytest.mark.sampled
@pytest.mark.parametrize("name, halvings, published", [("unet_256", 8, 54.41e6), ("unet_128", 7, 41.83e6)])
def test_parameter_counts_of_u_nets(name, halvings, published):
    """Count by hand: kernels of 4 x 4, a decoder with skip connections, two weights per channel of batch normalization."""
    widths = [3, *(64 * min(2**depth, 8) for depth in range(halvings))]
    down = sum(16 * before * after for before, after in zip(widths, widths[1:]))
    up = 16 * widths[-1] * widths[-2] + sum(16 * 2 * inner * outer for outer, inner in zip(widths, widths[1:-1]))
    norms = 2 * (sum(widths[2:-1]) + sum(widths[1:-1]))
    generator = make_generator(network_config(generator=name, norm="batch"))
    counted = sum(math.prod(variable.shape) for variable in generator.trainable_variables)
    assert counted == down + up + norms + 3 == pytest.approx(published, rel=1e-3)
    assert sum(math.prod(variable.shape) for variable in generator.non_trainable_variables) == norms


@pytest.mark.sampled
@pytest.mark.parametrize("upsample", ["transpose", "resize"])
def test_u_net_keeps_the_size_with_other_channels(upsample):
    generator = make_generator(network_config(filters=2, generator="unet_128", upsample=upsample, image_size=128), 1, 2)
    x = np.random.default_rng(0).uniform(-1, 1, (1, 128, 256, 1)).astype(np.float32)
    y = generator(x).numpy()
    assert y.shape == (1, 128, 256, 2) and np.abs(y).max() <= 1


def test_u_net_uses_all_skip_connections():
    """Check that every kernel gets a gradient; in the decoder for both the skip connection and the layer below."""
    generator = make_generator(network_config(filters=2, generator="unet_128", image_size=128, norm="none"))
    for variable in generator.trainable_variables:
        variable.assign(0.3 * tf.random.stateless_normal(variable.shape, [1, 2]))
    with tf.GradientTape() as tape:
        y = generator(tf.random.stateless_uniform([1, 128, 128, 3], [3, 4]))
    kernels = [variable for variable in generator.trainable_variables if len(variable.shape) == 4]
    gradients = tape.gradient(y, kernels)
    assert len(kernels) == 14 and all(np.any(gradient.numpy()) for gradient in gradients)
    for gradient in gradients[8:]:
        halves = np.split(gradient.numpy(), 2, axis=-1)
        assert np.any(halves[0]) and np.any(halves[1])


def test_dropout_is_where_the_reference_has_it():
    generator = make_generator(network_config(filters=2, dropout=0.5, generator="unet_128", image_size=128))
    assert sum(isinstance(layer, Dropout) for layer in generator.layers) == 2
