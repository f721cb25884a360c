import typing

import pytest
import tensorflow as tf

from cyclegan.config.networks import NetworkConfig
from cyclegan.networks import discriminators
from cyclegan.networks.discriminators import make_discriminator
from tests.networks.helpers import PAPER, network_config


def test_every_name_of_the_configuration_has_an_architecture():
    names = typing.get_args(typing.get_type_hints(NetworkConfig)["discriminator"])
    assert set(names) == set(discriminators.ARCHITECTURES)


@pytest.mark.parametrize("settings, count", [({}, 2_765_633), (PAPER, 2_764_737)])
def test_parameter_counts_of_discriminators(settings, count):
    """Compare with the numbers that the Keras example and the paper report."""
    assert make_discriminator(network_config(**settings)).count_params() == count


def test_input_may_have_five_channels():
    discriminator = make_discriminator(network_config(filters=4), 5)
    assert discriminator(tf.zeros([1, 16, 16, 5])).shape == (1, 2, 2, 1)
