import numpy as np
import pytest
import tensorflow as tf

from cyclegan.networks import compat
from cyclegan.networks.features import SHRINK, WIDTH, compute_features, feature_layers, make_heads
from cyclegan.networks.generators import make_generator
from tests.networks.helpers import PAPER, network_config, noise


@pytest.mark.parametrize(
    "options, blocks", [({"residual_blocks": 6}, [1, 5]), ({"residual_blocks": 3, **PAPER}, [1, 3])]
)
def test_features_are_outputs_of_the_same_network(options, blocks):
    network = make_generator(network_config(filters=2, **options))
    x = noise(2, 16, 24, 3)
    features = compute_features(network, x, training=False)
    assert [each.shape for each in features] == [
        (2, 16 // shrink, 24 // shrink, channels) for shrink, channels in zip(SHRINK, (3, 4, 8, 8, 8))
    ]
    sums = [layer for layer in network.layers if isinstance(layer, tf.keras.layers.Add)]
    assert feature_layers(network)[2:] == [sums[number - 1] for number in blocks]
    part = compat.make_model(network.inputs, [layer.output for layer in feature_layers(network)], "part")
    for mine, expected in zip(features, [x, *part(x)]):
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
