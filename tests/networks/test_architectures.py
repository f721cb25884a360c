"""Generators and discriminators: sizes, parameters, and what an output depends on."""

import json
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.errors import UserError
from cyclegan.networks.blocks import BlockBuilder
from cyclegan.networks.discriminators import make_discriminator
from cyclegan.networks.generators import make_generator, residual_block
from cyclegan.networks.layers import Dropout
from tests.networks.helpers import PAPER, network_config

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOREIGN_KERAS = """
import cyclegan
import tensorflow as tf
from cyclegan.config import Config
from cyclegan.networks.network_set import NetworkSet

settings = {"filters": 2, "residual_blocks": 1, "image_size": 32, "objective": "cut"}
for data_format in ("channels_first", "channels_last"):
    tf.keras.backend.set_image_data_format(data_format)
    networks = NetworkSet(Config.from_settings(**settings))
    for network in networks.generators["G"], networks.discriminators["D_Y"]:
        assert network(tf.zeros([1, 32, 36, 3])).dtype == tf.float32
        assert {tf.as_dtype(weights.dtype).name for weights in network.weights} == {"float32"}
    assert tf.keras.backend.image_data_format() == data_format
assert tf.keras.backend.floatx() == "float16"
"""
UNET = {"generator": "unet_128", "filters": 2, "image_size": 128}


@pytest.mark.sampled
@pytest.mark.parametrize(
    "make, settings, count",
    [
        (make_generator, {}, 11_383_427),
        (make_generator, PAPER, 11_378_179),
        (make_generator, {"generator": "resnet_6blocks", **PAPER}, 7_837_699),
        (make_discriminator, {}, 2_765_633),
        (make_discriminator, PAPER, 2_764_737),
        (make_discriminator, {"discriminator": "pixel", "norm": "none"}, 3 * 64 + 64 + 64 * 128 + 128 + 128 + 1),
        (make_generator, {"generator": "unet_256", "norm": "batch"}, 54_413_955),
        (make_generator, {"generator": "unet_128", "norm": "batch"}, 41_828_995),
    ],
)
def test_parameter_counts(make, settings, count):
    """Compare with the numbers that the Keras example and pytorch-CycleGAN-and-pix2pix report."""
    assert sum(math.prod(each.shape) for each in make(network_config(**settings)).trainable_variables) == count


@pytest.mark.sampled
@pytest.mark.parametrize("height, width", [(16, 16), (32, 48), (36, 20)])
@pytest.mark.parametrize("form", [{}, PAPER, {"upsample": "resize"}, {"norm": "batch"}, {"antialias": True}], ids=str)
@pytest.mark.parametrize("inputs, outputs", [(3, 3), (1, 2)])
def test_resnets_keep_the_size_and_stay_in_range(height, width, form, inputs, outputs):
    generator = make_generator(network_config(filters=4, residual_blocks=1, **form), inputs, outputs)
    y = generator(np.random.default_rng(0).uniform(-1, 1, (2, height, width, inputs)).astype(np.float32)).numpy()
    assert y.shape == (2, height, width, outputs) and y.dtype == np.float32 and np.abs(y).max() <= 1


@pytest.mark.sampled
@pytest.mark.parametrize("upsample", ["transpose", "resize"])
def test_u_nets_keep_the_size(upsample):
    generator = make_generator(network_config(upsample=upsample, **UNET), 1, 2)
    assert generator(tf.random.stateless_uniform([1, 128, 256, 1], [3, 4])).shape == (1, 128, 256, 2)


def test_u_net_uses_all_skip_connections():
    """Check that every kernel gets a gradient; in the decoder for both the skip connection and the layer below."""
    generator = make_generator(network_config(norm="none", **UNET))
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


def test_residual_block_adds_to_its_input():
    image = tf.keras.Input((None, None, 4))
    block = tf.keras.Model(image, residual_block(BlockBuilder(network_config(dropout=0.5)), image))
    for weight in block.trainable_variables:
        weight.assign(tf.zeros_like(weight))
    x = np.random.default_rng(0).normal(size=(1, 6, 5, 4)).astype(np.float32)
    np.testing.assert_array_equal(block(x).numpy(), x)  # also negative values: no ReLU after the sum


@pytest.mark.parametrize("form, count", [({"generator": "resnet_4blocks", "filters": 2}, 4), (UNET, 2)])
def test_dropout_is_where_the_reference_has_it(form, count):
    generator = make_generator(network_config(dropout=0.5, **form))
    assert sum(isinstance(layer, Dropout) for layer in generator.layers) == count


def test_weights_start_with_the_spread_of_the_paper():
    for form, middle in (({}, 0.0), ({"norm": "batch"}, 1.0), ({"norm": "batch", **PAPER}, 1.0)):
        variables = make_generator(network_config(filters=16, residual_blocks=4, **form)).trainable_variables
        scales = np.concatenate([v.numpy() for v in variables if "gamma" in v.name])
        assert scales.mean() == pytest.approx(middle, abs=0.004) and scales.std() == pytest.approx(0.02, rel=0.2)
        kernels = np.concatenate([v.numpy().ravel() for v in variables if len(v.shape) == 4])
        assert kernels.std() == pytest.approx(0.02, rel=0.01)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "form, size, patches",
    [({}, 256, 32), ({}, 64, 8), ({}, 36, 5), (PAPER, 256, 30), (PAPER, 64, 6), (PAPER, 36, 2)]
    + [({"discriminator_layers": 1}, 36, 18), ({"discriminator_layers": 5}, 64, 2)]
    + [({"discriminator_layers": 2, **PAPER}, 256, 62), ({"discriminator": "pixel", **PAPER}, 36, 36)],
)
def test_number_of_patches(form, size, patches):
    discriminator = make_discriminator(network_config(filters=4, **form), 5)
    assert discriminator(tf.zeros([1, size, size, 5])).shape == (1, patches, patches, 1)


@pytest.mark.parametrize("layers", [4, 5])
def test_a_discriminator_that_would_not_see_its_images_is_refused(layers):
    settings = {"filters": 2, "image_size": 2**layers, "discriminator_layers": layers}
    with pytest.raises(UserError, match=f"at most {layers - 1} layers, or images of at least {2**layers + 1} pixels"):
        Config.from_settings(**settings)
    with pytest.raises(UserError, match="of 44 pixels are too small .* at most 3 .* at least 48 pixels"):
        Config.from_settings(**{**settings, "image_size": 44, "discriminator_layers": 4}, **PAPER)
    for accepted in ({"norm": "none"}, {"discriminator_norm": "spectral"}, {"image_size": 2**layers + 4}):
        config = Config.from_settings(**{**settings, **accepted})
        logits = make_discriminator(config.networks)(tf.random.normal([2, *config.data.image_shape, 3]))
        assert not np.allclose(logits[0], logits[1], rtol=1e-3, atol=0)


def test_pixel_discriminator_sees_one_pixel():
    """Use no normalization, which sees all pixels."""
    discriminator = make_discriminator(network_config(discriminator="pixel", norm="none"))
    x = np.random.default_rng(0).uniform(-1, 1, (1, 5, 4, 3)).astype(np.float32)
    before = discriminator(x).numpy()
    x[0, 2, 3] += 1
    assert np.argwhere(discriminator(x).numpy() != before).tolist() == [[0, 2, 3, 0]]


def built(append, channels=2, **settings):
    """Return the model of the layers that a method of `BlockBuilder` appends."""
    image = tf.keras.Input((None, None, channels))
    return tf.keras.Model(image, append(BlockBuilder(network_config(**settings)), image))


@pytest.mark.parametrize(
    "settings, bias",
    [
        ({}, False),
        ({"norm": "none"}, True),
        ({"norm": "batch"}, False),
        (PAPER, True),  # although an instance normalization removes it
        ({"norm": "none", **PAPER}, True),
        ({"norm": "batch", **PAPER}, False),
    ],
    ids=str,
)
def test_biases_before_a_normalization(settings, bias):
    config = network_config(filters=2, residual_blocks=1, **settings)
    generator, discriminator = (
        [layer.use_bias for layer in make(config).layers if hasattr(layer, "kernel")]
        for make in (make_generator, make_discriminator)
    )
    assert generator == [bias] * 7 + [True]
    assert discriminator == [True, bias, bias, bias, True]  # no normalization behind the first and the last


@pytest.mark.parametrize(
    "settings, size, rows", [({}, 3, [2, 3, 4]), (PAPER, 3, [1, 2, 3]), ({}, 4, [1, 2, 3, 4]), (PAPER, 4, [1, 2, 3, 4])]
)
def test_upsampling_moves_a_pixel_as_the_reference_does(settings, size, rows):
    """Upsample one pixel: row i becomes rows from 2 i - 1 on; with TensorFlow's padding and size 3, from 2 i on."""
    model = built(lambda blocks, x: blocks.upsample(x, 1, size, use_bias=False), 1, **settings)
    model.set_weights([np.ones((size, size, 1, 1), np.float32)])
    x = np.zeros((1, 4, 4, 1), np.float32)
    x[0, 1, 1] = 1
    y = model(x).numpy()[0, ..., 0]
    assert np.flatnonzero(y.any(axis=1)).tolist() == np.flatnonzero(y.any(axis=0)).tolist() == rows


def test_settings_of_keras_do_not_reach_the_networks(tmp_path):
    (tmp_path / "keras.json").write_text(
        json.dumps({"image_data_format": "channels_first", "floatx": "float16", "backend": "jax"})
    )
    variables = {"KERAS_HOME": str(tmp_path), "KERAS_BACKEND": "torch", "TF_USE_LEGACY_KERAS": "1"}
    command = [sys.executable, "-c", FOREIGN_KERAS]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
