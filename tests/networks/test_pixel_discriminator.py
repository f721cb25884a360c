import numpy as np
import tensorflow as tf

from cyclegan.networks.discriminators import make_discriminator
from tests.networks.helpers import PAPER, network_config


def test_every_pixel_has_a_logit():
    discriminator = make_discriminator(network_config(filters=4, discriminator="pixel", **PAPER))
    assert discriminator(tf.zeros([1, 36, 36, 3])).shape == (1, 36, 36, 1)


def test_pixel_discriminator_sees_one_pixel():
    """Use no normalization, which sees all pixels. Count parameters by hand: 64 and 128 channels, biases everywhere."""
    discriminator = make_discriminator(network_config(discriminator="pixel", norm="none"))
    assert discriminator.count_params() == 3 * 64 + 64 + 64 * 128 + 128 + 128 + 1
    x = np.random.default_rng(0).uniform(-1, 1, (1, 5, 4, 3)).astype(np.float32)
    before = discriminator(x).numpy()
    x[0, 2, 3] += 1
    assert np.argwhere(discriminator(x).numpy() != before).tolist() == [[0, 2, 3, 0]]
