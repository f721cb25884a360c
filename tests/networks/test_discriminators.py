import pytest
import tensorflow as tf

from cyclegan.networks.discriminators import make_discriminator
from tests.networks.helpers import PAPER, network_config


@pytest.mark.parametrize("settings, count", [({}, 2_765_633), (PAPER, 2_764_737)])
def test_parameter_counts_of_discriminators(settings, count):
    """Compare with the numbers that the Keras example and the paper report."""
    assert make_discriminator(network_config(**settings)).count_params() == count


def test_input_may_have_five_channels():
    discriminator = make_discriminator(network_config(filters=4), 5)
    assert discriminator(tf.zeros([1, 16, 16, 5])).shape == (1, 2, 2, 1)
