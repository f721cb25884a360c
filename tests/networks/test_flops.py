import math

import pytest
import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.networks.discriminators import make_discriminator
from cyclegan.networks.flops import count_macs
from cyclegan.networks.generators import make_generator
from tests.networks.helpers import PAPER, network_config


def test_macs_of_the_paper_by_hand():
    """Count at 256 px. Generator: 7x7 in and out, two convolutions down, 18 in the blocks, two up. Discriminator: five of 4x4."""
    generator = (
        256**2 * 7**2 * 3 * 64
        + 128**2 * 3**2 * 64 * 128
        + 64**2 * 3**2 * 128 * 256
        + 18 * 64**2 * 3**2 * 256 * 256
        + 64**2 * 3**2 * 256 * 128  # transposed: the whole kernel multiplies each input value
        + 128**2 * 3**2 * 128 * 64
        + 256**2 * 7**2 * 64 * 3
    )
    assert generator == pytest.approx(49.55e9, rel=1e-4)
    assert count_macs(make_generator(network_config(filters=64, residual_blocks=9)), 256, 256) == generator
    channels = (3, 64, 128, 256, 512, 1)
    discriminator = sum(
        side**2 * 4**2 * before * after for side, before, after in zip((128, 64, 32, 32, 32), channels, channels[1:])
    )
    assert count_macs(make_discriminator(network_config(filters=64)), 256, 256) == discriminator


@pytest.mark.sampled
@pytest.mark.parametrize(
    "make, height, width",
    [
        (lambda: make_generator(network_config(filters=2, residual_blocks=2)), 16, 16),
        (lambda: make_generator(network_config(filters=2, residual_blocks=0)), 36, 20),
        (lambda: make_generator(network_config(filters=3, residual_blocks=1), 1, 1), 20, 44),
        (lambda: make_discriminator(network_config(filters=2)), 16, 16),
        (lambda: make_discriminator(network_config(filters=2)), 37, 53),
        (lambda: make_discriminator(network_config(filters=2), 5), 70, 31),
        (lambda: make_generator(network_config(filters=2, residual_blocks=1, **PAPER)), 37, 20),
        (lambda: make_generator(network_config(filters=2, residual_blocks=1, upsample="resize")), 36, 20),
        (lambda: make_generator(network_config(filters=2, generator="unet_128", image_size=128)), 128, 256),
        (lambda: make_discriminator(network_config(filters=2, **PAPER)), 37, 53),
        (lambda: make_discriminator(network_config(filters=2, discriminator="pixel")), 37, 53),
    ],
)
def test_macs_equal_those_of_the_graph(make, height, width, monkeypatch):
    monkeypatch.setattr(hardware, "has_accelerator", lambda: True)  # where every convolution is one operation
    network = make()
    graph = tf.function(network).get_concrete_function(tf.TensorSpec([1, height, width, network.input_shape[-1]])).graph
    counted = 0
    for operation in graph.get_operations():
        if operation.type in ("Conv2D", "Conv2DBackpropInput"):
            which = operation.outputs[0] if operation.type == "Conv2D" else operation.inputs[2]
            counted += math.prod(which.shape[1:3]) * math.prod(operation.inputs[1].shape)
    assert count_macs(network, height, width) == counted > 0
