import math

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config.networks import UNETS
from cyclegan.networks import generators
from cyclegan.networks.blocks import BlockBuilder
from cyclegan.networks.dropout import Dropout
from cyclegan.networks.generators import make_generator
from cyclegan.networks.resnet_generator import residual_block
from tests.networks.helpers import PAPER, network_config


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["resnet_0blocks", "resnet_9blocks", *UNETS])
def test_every_name_of_the_configuration_has_an_architecture(name):
    assert name.split("_")[0] in generators.ARCHITECTURES


@pytest.mark.sampled
@pytest.mark.parametrize(
    "settings, count", [({}, 11_383_427), (PAPER, 11_378_179), ({"generator": "resnet_6blocks", **PAPER}, 7_837_699)]
)
def test_parameter_counts_of_generators(settings, count):
    """The Keras example and the paper report these numbers."""
    assert make_generator(network_config(**settings)).count_params() == count


@pytest.mark.sampled
@pytest.mark.parametrize("name, halvings, published", [("unet_256", 8, 54.41e6), ("unet_128", 7, 41.83e6)])
def test_parameter_counts_of_u_nets(name, halvings, published):
    """Kernels are 4 x 4. The decoder convolves its input and a skip connection. Batch normalization has two weights per channel."""
    widths = [3, *(64 * min(2**depth, 8) for depth in range(halvings))]
    down = sum(16 * before * after for before, after in zip(widths, widths[1:]))
    up = 16 * widths[-1] * widths[-2] + sum(16 * 2 * inner * outer for outer, inner in zip(widths, widths[1:-1]))
    norms = 2 * (sum(widths[2:-1]) + sum(widths[1:-1]))
    generator = make_generator(network_config(generator=name, norm="batch"))
    counted = sum(math.prod(variable.shape) for variable in generator.trainable_variables)
    assert counted == down + up + norms + 3 == pytest.approx(published, rel=1e-3)
    assert sum(math.prod(variable.shape) for variable in generator.non_trainable_variables) == norms


@pytest.mark.sampled
@pytest.mark.parametrize("height, width", [(16, 16), (32, 48), (36, 20)])
@pytest.mark.parametrize("form", [{}, PAPER, {"upsample": "resize"}, {"norm": "none"}, {"norm": "batch"}], ids=str)
def test_output_has_the_size_of_the_input_and_is_in_range(height, width, form):
    generator = make_generator(network_config(filters=4, residual_blocks=1, **form))
    x = np.random.default_rng(0).uniform(-1, 1, (2, height, width, 3)).astype(np.float32)
    y = generator(x).numpy()
    assert y.shape == x.shape and y.dtype == np.float32 and np.abs(y).max() <= 1


@pytest.mark.sampled
@pytest.mark.parametrize("upsample", ["transpose", "resize"])
def test_u_net_keeps_the_size_with_other_channels(upsample):
    generator = make_generator(network_config(filters=2, generator="unet_128", upsample=upsample, image_size=128), 1, 2)
    x = np.random.default_rng(0).uniform(-1, 1, (1, 128, 256, 1)).astype(np.float32)
    y = generator(x).numpy()
    assert y.shape == (1, 128, 256, 2) and np.abs(y).max() <= 1


def test_u_net_uses_all_skip_connections():
    """Every kernel gets a gradient; in the decoder for both halves of its input, the skip connection and the layer below."""
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


def test_kernels_start_normal():
    kernels = [
        w.numpy()
        for w in make_generator(network_config(filters=32, residual_blocks=2)).trainable_variables
        if len(w.shape) == 4
    ]
    assert abs(np.concatenate([k.ravel() for k in kernels]).std() - 0.02) < 2e-4


def test_residual_block_adds_to_its_input():
    image = tf.keras.Input((None, None, 4))
    block = tf.keras.Model(image, residual_block(BlockBuilder(network_config(dropout=0.5)), image))
    for weight in block.trainable_variables:
        weight.assign(tf.zeros_like(weight))
    x = np.random.default_rng(0).normal(size=(1, 6, 5, 4)).astype(np.float32)
    np.testing.assert_array_equal(block(x).numpy(), x)  # also negative values: no ReLU after the sum


@pytest.mark.parametrize(
    "form, count", [({"generator": "resnet_4blocks"}, 4), ({"generator": "unet_128", "image_size": 128}, 2), ({}, 0)]
)
def test_dropout_is_where_the_reference_has_it(form, count):
    generator = make_generator(network_config(filters=2, dropout=0.5 if form else 0.0, **form))
    assert sum(isinstance(layer, Dropout) for layer in generator.layers) == count


def test_initial_gammas():
    for form, middle in (({}, 0.0), ({"norm": "batch"}, 1.0), ({"norm": "batch", **PAPER}, 1.0)):
        generator = make_generator(network_config(filters=16, residual_blocks=4, **form))
        scales = np.concatenate([v.numpy() for v in generator.trainable_variables if "gamma" in v.name])
        assert scales.mean() == pytest.approx(middle, abs=0.004) and scales.std() == pytest.approx(0.02, rel=0.2)


def test_channels():
    generator = make_generator(network_config(filters=4, residual_blocks=0), 1, 1)
    assert generator(tf.zeros([1, 16, 16, 1])).shape == (1, 16, 16, 1)
