"""Test that Keras restores layers and networks from their configuration and from files."""

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.networks import batch_normalization, instance_normalization
from cyclegan.networks.convolution import make_convolution
from cyclegan.networks.dropout import Dropout
from cyclegan.networks.generators import make_generator
from cyclegan.networks.spectral_normalization import SpectralConvolution
from cyclegan.networks.transposed_convolution import make_transposed_convolution
from cyclegan.networks.upsampling import NearestUpsampling2D
from tests.networks.helpers import PAPER, network_config, noise


@pytest.mark.parametrize(
    "layer",
    [
        instance_normalization.InstanceNormalization(epsilon=1e-4, center=False),
        instance_normalization.PlainInstanceNormalization(epsilon=1e-4, scale=False),
        batch_normalization.BatchNormalization(1e-4),
        Dropout(0.3),
        NearestUpsampling2D(),
        make_convolution(3, 4, padding="valid", margin=1),
        make_convolution(3, 4, kind=SpectralConvolution),
        make_transposed_convolution(3, 3, padding="valid", use_bias=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_from_their_configuration(layer):
    copy = type(layer).from_config(layer.get_config())
    for attribute in {"epsilon", "center", "scale", "rate", "padding", "use_bias", "margin"} & set(vars(layer)):
        assert getattr(copy, attribute) == getattr(layer, attribute)
    x = noise(2, 4, 4, 3)
    assert copy(x).shape == layer(x).shape


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras 3.15's, with NumPy 2.5
@pytest.mark.parametrize("form", [{}, PAPER, {"norm": "batch", "dropout": 0.5}], ids=str)
def test_networks_from_a_keras_file(form, tmp_path):
    generator = make_generator(network_config(filters=2, residual_blocks=1, **form))
    generator.save(tmp_path / "generator.keras")
    x = np.random.default_rng(0).uniform(-1, 1, (1, 16, 20, 3)).astype(np.float32)
    loaded = tf.keras.models.load_model(tmp_path / "generator.keras")
    np.testing.assert_array_equal(loaded(x).numpy(), generator(x).numpy())
