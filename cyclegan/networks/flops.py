"""Count of the operations that a network needs."""

from __future__ import annotations

import math

import tensorflow as tf

from cyclegan.networks.layers import NearestUpsampling2D, ReflectionPadding2D


def count_macs(network: tf.keras.Model, height: int, width: int, last: tf.keras.layers.Layer | None = None) -> int:
    """Return the multiply-accumulate operations of all convolutions of a network for one image.

    Args:
        network: Generator or discriminator of this package.
        height: Height of the image in pixels.
        width: Width of the image in pixels.
        last: Layer after which to stop; by default the last one.
    """
    macs = 0
    for layer in network.layers:  # in the order of computation; skip connections keep the size
        if isinstance(layer, ReflectionPadding2D):
            height, width = height + 2 * layer.padding, width + 2 * layer.padding
        elif isinstance(layer, NearestUpsampling2D):
            height, width = 2 * height, 2 * width
        elif isinstance(layer, tf.keras.layers.Conv2DTranspose):
            macs += height * width * math.prod(layer.kernel.shape)
            height, width = height * layer.strides[0], width * layer.strides[1]
        elif isinstance(layer, tf.keras.layers.ZeroPadding2D):  # of networks made of Keras's own layers
            height, width = height + sum(layer.padding[0]), width + sum(layer.padding[1])
        elif isinstance(layer, tf.keras.layers.Conv2D):
            (kernel_height, kernel_width), (down, right) = layer.kernel_size, layer.strides
            if layer.padding == "valid":
                more = 2 * getattr(layer, "margin", 0) + 1
                height, width = height + more - kernel_height, width + more - kernel_width
            height, width = math.ceil(height / down), math.ceil(width / right)
            macs += height * width * math.prod(layer.kernel.shape)
        if layer is last:
            break
    return macs
