import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.errors import UserError
from cyclegan.networks.discriminators import make_discriminator
from tests.networks.helpers import PAPER, network_config


@pytest.mark.sampled
@pytest.mark.parametrize(
    "form, size, patches",
    [({}, 256, 32), ({}, 64, 8), ({}, 36, 5), (PAPER, 256, 30), (PAPER, 64, 6), (PAPER, 36, 2)]
    + [({"discriminator_layers": 1}, 36, 18), ({"discriminator_layers": 5}, 64, 2)]
    + [({"discriminator_layers": 2, **PAPER}, 256, 62)],
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
        with pytest.raises(
            UserError, match=f"images of {size - 4} pixels are too small for a discriminator of {count} layers"
        ):
            Config.from_settings(filters=2, discriminator_layers=count, image_size=size - 4, **PAPER)


@pytest.mark.parametrize("layers", [4, 5])
def test_a_discriminator_that_would_not_see_its_images_is_refused(layers):
    settings = {"filters": 2, "image_size": 2**layers, "discriminator_layers": layers}
    with pytest.raises(UserError, match=f"expected at least {2**layers + 1} pixels"):
        Config.from_settings(**settings)
    for accepted in ({"norm": "none"}, {"discriminator_norm": "spectral"}, {"image_size": 2**layers + 4}):
        config = Config.from_settings(**{**settings, **accepted})
        logits = make_discriminator(config.networks)(tf.random.normal([2, *config.data.image_shape, 3]))
        assert not np.allclose(logits[0], logits[1], rtol=1e-3, atol=0)


def test_positions_of_the_layers_stay():
    """A checkpoint of Keras 3 names a layer by its position, so earlier checkpoints fit as long as these stay."""
    layers = make_discriminator(network_config(filters=2, **PAPER)).layers
    assert [position for position, layer in enumerate(layers) if layer.weights] == [2, 5, 9, 13, 17]


@pytest.mark.sampled
@pytest.mark.parametrize("count, patch", [(1, 16), (2, 34), (3, 70), (4, 142), (5, 286)])
def test_receptive_field(count, patch):
    """Compare with the sizes by which pix2pix names its PatchGANs, except for the smallest one."""
    discriminator = make_discriminator(network_config(filters=2, discriminator_layers=count))
    field = 1
    convolutions = [layer for layer in discriminator.layers if isinstance(layer, tf.keras.layers.Conv2D)]
    for layer in reversed(convolutions):
        field = (field - 1) * layer.strides[0] + layer.kernel_size[0]
    assert field == patch
