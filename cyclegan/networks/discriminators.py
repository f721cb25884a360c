"""Generators and discriminators, of residual blocks (Zhu et al. 2017, appendix) and as U-Nets (Isola et al. 2017, appendix)."""

import tensorflow as tf

from cyclegan.networks import compat
from cyclegan.networks.activation import LeakyReLU
from cyclegan.networks.blocks import _Parts


def discriminator(config, channels=3, name="discriminator"):
    """How real each patch of a picture looks, or each pixel, as logits. float32 [N, H, W, channels] in [-1, 1] -> [N, h, w, 1].

    A PatchGAN of 3 layers sees 70 x 70 pixels for each logit; h and w are ceil(H / 8) and ceil(W / 8), in the variant "paper"
    floor(H / 8) - 2 and so on. 2,765,633 parameters by default, 2,764,737 in the variant "paper".
    """
    picture = tf.keras.Input((None, None, channels))
    build = {"patch": _patches, "pixel": _pixels}[config.discriminator]
    x = build(_Parts(config, config.has_penalty), picture)
    return compat.network(picture, tf.keras.layers.Activation("linear", dtype="float32")(x), name)


def _patches(parts, x):
    """A PatchGAN (Isola et al. 2017): convolutions of 4 x 4, of which the last two do not halve the size."""
    filters, count = parts.config.filters, parts.config.discriminator_layers
    x = LeakyReLU()(parts.convolve(x, filters, 4, 2, use_bias=True))
    for layer in range(1, count + 1):
        x = parts.convolve(x, filters * min(2**layer, 8), 4, 2 if layer < count else 1)
        x = LeakyReLU()(parts.normalize(x))
    return parts.convolve(x, 1, 4, use_bias=True)


def _pixels(parts, x):
    """Convolutions of 1 x 1. [N, H, W, C] -> [N, H, W, 1]."""
    filters = parts.config.filters
    x = LeakyReLU()(parts.convolve_inside(x, filters, 1, use_bias=True))
    x = LeakyReLU()(parts.normalize(parts.convolve_inside(x, 2 * filters, 1)))
    return parts.convolve_inside(x, 1, 1, use_bias=True)
