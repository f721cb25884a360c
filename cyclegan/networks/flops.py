"""Generators and discriminators, of residual blocks (Zhu et al. 2017, appendix) and as U-Nets (Isola et al. 2017, appendix)."""

import math

import tensorflow as tf

from cyclegan.networks.convolution import Doubling
from cyclegan.networks.padding import ReflectionPadding2D


def multiplications(network, height, width):
    """How many multiplications, each with an addition, the convolutions of a network need for one picture of a size in pixels."""
    keras, total = tf.keras.layers, 0
    for layer in network.layers:  # in the order they are computed in; what leads around others keeps the size
        if isinstance(layer, ReflectionPadding2D):
            height, width = height + 2 * layer.padding, width + 2 * layer.padding
        elif isinstance(layer, keras.ZeroPadding2D):
            height, width = height + sum(layer.padding[0]), width + sum(layer.padding[1])
        elif isinstance(layer, Doubling):
            height, width = 2 * height, 2 * width
        elif isinstance(layer, keras.Conv2DTranspose):
            total += height * width * math.prod(layer.kernel.shape)
            height, width = height * layer.strides[0], width * layer.strides[1]
        elif isinstance(layer, keras.Conv2D):
            (tall, wide), (down, right) = layer.kernel_size, layer.strides
            if layer.padding == "valid":
                height, width = height - tall + 1, width - wide + 1
            height, width = math.ceil(height / down), math.ceil(width / right)
            total += height * width * math.prod(layer.kernel.shape)
    return total
