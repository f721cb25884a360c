import numpy as np
import pytest
import tensorflow as tf

from cyclegan.networks.blocks import BlockBuilder
from cyclegan.networks.dropout import Dropout
from cyclegan.networks.generators import make_generator, residual_block
from tests.networks.helpers import network_config


def test_residual_block_adds_to_its_input():
    image = tf.keras.Input((None, None, 4))
    block = tf.keras.Model(image, residual_block(BlockBuilder(network_config(dropout=0.5)), image))
    for weight in block.trainable_variables:
        weight.assign(tf.zeros_like(weight))
    x = np.random.default_rng(0).normal(size=(1, 6, 5, 4)).astype(np.float32)
    np.testing.assert_array_equal(block(x).numpy(), x)  # also negative values: no ReLU after the sum


@pytest.mark.parametrize("form, count", [({"generator": "resnet_4blocks"}, 4), ({}, 0)])
def test_dropout_is_where_the_reference_has_it(form, count):
    generator = make_generator(network_config(filters=2, dropout=0.5 if form else 0.0, **form))
    assert sum(isinstance(layer, Dropout) for layer in generator.layers) == count
