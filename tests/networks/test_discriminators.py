import typing

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.config.networks import NetworkConfig
from cyclegan.errors import UserError
from cyclegan.networks import discriminators
from cyclegan.networks.discriminators import make_discriminator
from tests.networks.helpers import PAPER, network_config


def test_every_name_of_the_configuration_has_an_architecture():
    names = typing.get_args(typing.get_type_hints(NetworkConfig)["discriminator"])
    assert set(names) == set(discriminators.ARCHITECTURES)


@pytest.mark.parametrize("settings, count", [({}, 2_765_633), (PAPER, 2_764_737)])
def test_parameter_counts_of_discriminators(settings, count):
    """The Keras example and the paper report these numbers."""
    assert make_discriminator(network_config(**settings)).count_params() == count


@pytest.mark.sampled
@pytest.mark.parametrize(
    "form, size, patches",
    [({}, 256, 32), ({}, 64, 8), ({}, 36, 5), (PAPER, 256, 30), (PAPER, 64, 6), (PAPER, 36, 2)]
    + [({"discriminator_layers": 1}, 36, 18), ({"discriminator_layers": 5}, 64, 2)]
    + [({"discriminator_layers": 2, **PAPER}, 256, 62), ({"discriminator": "pixel", **PAPER}, 36, 36)],
)
def test_number_of_patches(form, size, patches):
    discriminator = make_discriminator(network_config(filters=4, **form))
    assert discriminator(tf.zeros([1, size, size, 3])).shape == (1, patches, patches, 1)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_smallest_image_of_the_paper_leaves_one_patch(count):
    size = 3 * 2**count
    networks = network_config(filters=2, discriminator_layers=count, image_size=max(16, size), **PAPER)
    assert make_discriminator(networks)(tf.zeros([1, size, size, 3])).shape == (1, 1, 1, 1)
    if size > 16:
        with pytest.raises(UserError, match=f"--discriminator_layers {count}: halves images of {size - 4} pixels to"):
            Config.from_settings(filters=2, discriminator_layers=count, image_size=size - 4, **PAPER)


def test_pixel_discriminator_sees_one_pixel():
    """Without a normalization, which sees all pixels. The parameters by hand: 64 and 128 channels, biases everywhere."""
    discriminator = make_discriminator(network_config(discriminator="pixel", norm="none"))
    assert discriminator.count_params() == 3 * 64 + 64 + 64 * 128 + 128 + 128 + 1
    x = np.random.default_rng(0).uniform(-1, 1, (1, 5, 4, 3)).astype(np.float32)
    before = discriminator(x).numpy()
    x[0, 2, 3] += 1
    assert np.argwhere(discriminator(x).numpy() != before).tolist() == [[0, 2, 3, 0]]


@pytest.mark.sampled
@pytest.mark.parametrize("count, patch", [(1, 16), (2, 34), (3, 70), (4, 142), (5, 286)])
def test_receptive_field(count, patch):
    """Pix2pix names its PatchGANs by these sizes, except for the smallest one."""
    discriminator = make_discriminator(network_config(filters=2, discriminator_layers=count))
    field = 1
    convolutions = [layer for layer in discriminator.layers if isinstance(layer, tf.keras.layers.Conv2D)]
    for layer in reversed(convolutions):
        field = (field - 1) * layer.strides[0] + layer.kernel_size[0]
    assert field == patch


def test_channels():
    discriminator = make_discriminator(network_config(filters=4), 5)
    assert discriminator(tf.zeros([1, 16, 16, 5])).shape == (1, 2, 2, 1)
