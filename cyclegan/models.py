"""Generators and discriminators (Zhu et al. 2017, appendix), in the variant of the Keras example.

Fully convolutional: built for any height and width that are multiples of 4.
"""

import math

import tensorflow as tf

from cyclegan.layers import (
    LeakyReLU,
    ReflectionPadding2D,
    convolution,
    instance_normalization,
    residual_block,
    upsampling_convolution,
)


def generator(config, inputs=3, outputs=3, name="generator"):
    """A ResNet generator: a picture of one domain to a picture of the other.

    float32 [N, H, W, inputs] -> [N, H, W, outputs], both in [-1, 1], H and W multiples of 4. 11,383,427 parameters by default.

    Args:
        config: the `Config`: `filters` is the number of channels after the first convolution, twice and four times as many
            further in; `residual_blocks` how many blocks there are at a quarter of the resolution.
    """
    layers, filters = tf.keras.layers, config.filters
    picture = tf.keras.Input((None, None, inputs))
    x = ReflectionPadding2D(3)(picture)
    x = convolution(filters, 7, padding="valid")(x)
    x = layers.ReLU()(instance_normalization()(x))
    for width in (2 * filters, 4 * filters):
        x = convolution(width, 3, stride=2)(x)
        x = layers.ReLU()(instance_normalization()(x))
    for _ in range(config.residual_blocks):
        x = residual_block(x)
    for width in (2 * filters, filters):
        x = upsampling_convolution(width, 3)(x)
        x = layers.ReLU()(instance_normalization()(x))
    x = ReflectionPadding2D(3)(x)
    x = convolution(outputs, 7, padding="valid", use_bias=True)(x)
    return tf.keras.Model(picture, layers.Activation("tanh", dtype="float32")(x), name=name)


def discriminator(config, channels=3, name="discriminator"):
    """A 70x70 PatchGAN: how real each patch of a picture looks, as logits.

    float32 [N, H, W, channels] in [-1, 1] -> [N, ceil(H / 8), ceil(W / 8), 1], unbounded. 2,765,633 parameters by
    default.
    """
    layers, filters = tf.keras.layers, config.filters
    picture = tf.keras.Input((None, None, channels))
    x = convolution(filters, 4, stride=2, use_bias=True)(picture)
    x = LeakyReLU()(x)
    for width, stride in ((2 * filters, 2), (4 * filters, 2), (8 * filters, 1)):
        x = convolution(width, 4, stride=stride)(x)
        x = LeakyReLU()(instance_normalization()(x))
    x = convolution(1, 4, use_bias=True)(x)
    return tf.keras.Model(picture, layers.Activation("linear", dtype="float32")(x), name=name)


def multiplications(network, height, width):
    """How many multiplications, each with an addition, the convolutions of a network need for one picture of a size in pixels."""
    layers, total = tf.keras.layers, 0
    for layer in network.layers:  # in the order they are computed in; the residual branches keep the size
        if isinstance(layer, ReflectionPadding2D):
            height, width = height + 2 * layer.padding, width + 2 * layer.padding
        elif isinstance(layer, layers.Conv2DTranspose):
            total += height * width * math.prod(layer.kernel.shape)
            height, width = height * layer.strides[0], width * layer.strides[1]
        elif isinstance(layer, layers.Conv2D):
            (tall, wide), (down, right) = layer.kernel_size, layer.strides
            if layer.padding == "valid":
                height, width = height - tall + 1, width - wide + 1
            height, width = math.ceil(height / down), math.ceil(width / right)
            total += height * width * math.prod(layer.kernel.shape)
    return total
