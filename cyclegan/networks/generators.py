"""Generators and discriminators, of residual blocks (Zhu et al. 2017, appendix) and as U-Nets (Isola et al. 2017, appendix)."""

import tensorflow as tf

from cyclegan.networks import compat
from cyclegan.networks.activation import LeakyReLU
from cyclegan.networks.blocks import _Parts

HALVINGS = {"unet_256": 8, "unet_128": 7}


def generator(config, inputs=3, outputs=3, name="generator"):
    """A picture of one domain to a picture of the other: float32 [N, H, W, inputs] -> [N, H, W, outputs], both in [-1, 1].

    11,383,427 parameters by default, 11,378,179 in the variant "paper".

    Args:
        config: the `Config`: `filters` is the number of channels after the first convolution.
    """
    picture = tf.keras.Input((None, None, inputs))
    build = _unet if config.generator in HALVINGS else _resnet
    x = build(_Parts(config), picture, outputs)
    return compat.network(picture, tf.keras.layers.Activation("tanh", dtype="float32")(x), name)


def _resnet(parts, x, outputs):
    """Down to a quarter of the size, the residual blocks, and up again. [N, H, W, C] -> [N, H, W, outputs]."""
    relu, filters = tf.keras.layers.ReLU, parts.config.filters
    x = relu()(parts.normalize(parts.convolve_mirrored(x, filters, 7)))
    for width in (2 * filters, 4 * filters):
        x = relu()(parts.normalize(parts.convolve(x, width, 3, 2)))
    for _ in range(parts.config.residual_blocks):
        x = _residual_block(parts, x)
    for width in (2 * filters, filters):
        x = relu()(parts.normalize(parts.enlarge(x, width, 3)))
    return parts.convolve_mirrored(x, outputs, 7, use_bias=True)


def _residual_block(parts, x):
    """x + norm(conv(pad(drop(relu(norm(conv(pad(x)))))))), no ReLU after the sum. [N, H, W, C] -> [N, H, W, C]."""
    channels = x.shape[-1]
    y = tf.keras.layers.ReLU()(parts.normalize(parts.convolve_mirrored(x, channels, 3)))
    y = parts.normalize(parts.convolve_mirrored(parts.drop(y), channels, 3))
    return tf.keras.layers.Add()([x, y])


def _unet(parts, x, outputs):
    """Halves the size again and again, and doubles it as often, with what there was at each size beside what comes back.

    [N, H, W, C] -> [N, H, W, outputs], H and W multiples of 2 to the power of the halvings. Neither the outermost nor the
    innermost halving is normalized. Dropout follows the enlargements between halvings of full width.
    """
    relu, filters, halvings = tf.keras.layers.ReLU, parts.config.filters, HALVINGS[parts.config.generator]
    widths = [filters * min(2**depth, 8) for depth in range(halvings)]
    x = parts.convolve(x, widths[0], 4, 2)
    skips = []
    for depth in range(1, halvings):
        skips.append(x)
        x = parts.convolve(LeakyReLU()(x), widths[depth], 4, 2)
        if depth < halvings - 1:
            x = parts.normalize(x)
    for depth in reversed(range(halvings - 1)):
        x = parts.normalize(parts.enlarge(relu()(x), widths[depth], 4))
        if 4 <= depth + 1 < halvings - 1:
            x = parts.drop(x)
        x = tf.keras.layers.Concatenate()([skips[depth], x])
    return parts.enlarge(relu()(x), outputs, 4, use_bias=True)
