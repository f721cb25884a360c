"""Generators called layer by layer: features, recomputation, and the number of operations."""

import math

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.networks import compat
from cyclegan.networks.discriminators import make_discriminator
from cyclegan.networks.features import (
    WIDTH,
    call_with_recomputation,
    compute_features,
    count_macs,
    feature_layers,
    feature_sizes,
    make_heads,
)
from cyclegan.networks.generators import make_generator
from tests.networks.helpers import PAPER, network_config, noise


@pytest.mark.parametrize(
    "options, blocks, halved",
    [
        ({"residual_blocks": 6}, [1, 5], 2),
        ({"residual_blocks": 3, **PAPER}, [1, 3], 2),
        ({"residual_blocks": 2, "antialias": True, **PAPER}, [1, 2], 1),
    ],
)
def test_features_are_outputs_of_the_same_network(options, blocks, halved):
    network = make_generator(network_config(filters=2, **options))
    x = noise(2, 16, 24, 3)
    features = compute_features(network, x, training=False)
    sizes = [(22, 30), (16 // halved, 24 // halved), (8 // halved, 12 // halved), (4, 6), (4, 6)]
    assert feature_sizes(network, 16, 24) == sizes
    assert [each.shape for each in features] == [(2, *size, c) for size, c in zip(sizes, (3, 4, 8, 8, 8))]
    np.testing.assert_array_equal(features[0], np.pad(x, ((0, 0), (3, 3), (3, 3), (0, 0)), "reflect"))
    sums = [layer for layer in network.layers if isinstance(layer, tf.keras.layers.Add)]
    assert feature_layers(network)[3:] == [sums[number - 1] for number in blocks]
    part = compat.make_model(network.inputs, [layer.output for layer in feature_layers(network)], "part")
    for mine, expected in zip(features, part(x)):
        np.testing.assert_allclose(mine, expected, atol=1e-6)
    *same, output = compute_features(network, x, training=False, to_output=True)
    np.testing.assert_allclose(output, network(x), atol=1e-6)
    assert all(np.array_equal(a, b) for a, b in zip(features, same))


@pytest.mark.parametrize("blocks, count", [(0, 3), (1, 4), (2, 5)])
def test_networks_of_few_blocks_have_fewer_features(blocks, count):
    network = make_generator(network_config(filters=2, residual_blocks=blocks))
    assert len(compute_features(network, noise(1, 16, 16, 3), training=True)) == count


def test_heads_are_two_layers_for_each_feature_map():
    network = make_generator(network_config(filters=2, residual_blocks=1))
    heads = make_heads(network, "normal", "heads")
    features = [noise(2, 5, channels) for channels in (3, 4, 8, 8)]
    outputs = heads(features)
    for i, (feature, output) in enumerate(zip(features, outputs)):
        kernel, bias, second, second_bias = (heads.trainable_variables[2 * i + j].numpy() for j in (0, 1, 8, 9))
        expected = np.maximum(feature @ kernel + bias, 0) @ second + second_bias
        assert expected.shape == (2, 5, WIDTH) and np.abs(kernel).max() > 0.01
        np.testing.assert_allclose(output, expected, atol=1e-6)


FORMS = [
    {"residual_blocks": 2},
    {"residual_blocks": 1, **PAPER},
    {"residual_blocks": 1, "norm": "none", "upsample": "resize"},
    {"residual_blocks": 0},
    {"residual_blocks": 1, "antialias": True},
]


def with_gradients(network, x, recomputes):
    """Return the output of a network, and the gradients of a loss at its input and its variables."""

    @tf.function(autograph=False)
    def compute(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = call_with_recomputation(network, x) if recomputes else network(x, training=True)
            loss = tf.reduce_mean(tf.square(y - 0.3))
        gradients = tape.gradient(loss, [x, *network.trainable_variables])
        return y, [gradient for gradient in gradients if gradient is not None]

    y, gradients = compute(x)
    return [y.numpy(), *(gradient.numpy() for gradient in gradients)]


@pytest.mark.sampled
@pytest.mark.parametrize("form, precision", [(FORMS[0], "bfloat16"), *((form, "float32") for form in FORMS)], ids=str)
def test_recomputation_gives_the_same_results_and_gradients(form, precision):
    with compat.precision_policy(precision):
        generator = make_generator(network_config(filters=4, **form))
    x = tf.constant(noise(2, 16, 16, 3))
    for plain, again in zip(*(with_gradients(generator, x, recomputes) for recomputes in (False, True))):
        np.testing.assert_allclose(again, plain, rtol=1e-5, atol=1e-6 * np.abs(plain).max())


def test_blocks_run_again_in_the_backward_pass():
    """Count the convolutions: without recomputation, a network has one per layer in the forward pass."""
    generator = make_generator(network_config(filters=2, residual_blocks=3))

    @tf.function(autograph=False)
    def gradients(x):
        with tf.GradientTape() as tape:
            y = call_with_recomputation(generator, x)
        return tape.gradient(y, generator.trainable_variables)

    operations = gradients.get_concrete_function(tf.TensorSpec([1, 32, 32, 3])).graph.get_operations()
    paddings = [operation for operation in operations if operation.type == "MirrorPad"]
    assert len(paddings) == 2 + 2 * 2 * 3  # of the first and the last layer once, of the blocks twice
    assert len({operation.inputs[0].ref() for operation in paddings}) == len(paddings)  # so they cannot be merged


@pytest.mark.sampled
@pytest.mark.parametrize(
    "make, settings, height, width",
    [
        (make_generator, {"residual_blocks": 1, **PAPER}, 37, 20),
        (make_generator, {"residual_blocks": 0}, 36, 20),
        (make_generator, {"residual_blocks": 1, "upsample": "resize"}, 36, 20),
        (make_generator, {"generator": "unet_128", "image_size": 128}, 128, 256),
        (make_discriminator, {}, 37, 53),
        (make_generator, {"residual_blocks": 1, "antialias": True, **PAPER}, 37, 20),
        (make_discriminator, PAPER, 37, 53),
        (make_discriminator, {"antialias": True, **PAPER}, 37, 53),
        (make_discriminator, {"discriminator": "pixel"}, 37, 53),
    ],
)
def test_macs_equal_those_of_the_graph(make, settings, height, width, monkeypatch):
    monkeypatch.setattr(hardware, "has_accelerator", lambda: True)  # where every convolution is one operation
    network = make(network_config(filters=2, **settings))
    graph = tf.function(network).get_concrete_function(tf.TensorSpec([1, height, width, 3])).graph
    counted = 0
    for operation in graph.get_operations():
        if operation.type in ("Conv2D", "Conv2DBackpropInput"):
            which = operation.outputs[0] if operation.type == "Conv2D" else operation.inputs[2]
            counted += math.prod(which.shape[1:3]) * math.prod(operation.inputs[1].shape)
    assert count_macs(network, height, width) == counted > 0
