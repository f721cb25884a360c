"""Generator that is a U-Net (Isola et al. 2017, appendix)."""

from __future__ import annotations

import tensorflow as tf

from cyclegan.networks.activation import LeakyReLU
from cyclegan.networks.blocks import BlockBuilder

MAX_WIDTH = 8  # channels of a layer are at most this many times the number of filters
DROPOUT_DEPTH = 4  # decoder layers from this depth on have dropout


def build_unet(blocks: BlockBuilder, x: tf.Tensor, channels: int) -> tf.Tensor:
    """Halve the size several times and double it as often, with a skip connection at each size.

    [N, H, W, C] -> [N, H, W, channels]; H and W are multiples of 2 to the power of the number of halvings. The
    outermost and the innermost convolution of the encoder have no normalization, so training uses their biases. Decoder
    layers that join two layers of full width have dropout.
    """
    relu, filters, depth = tf.keras.layers.ReLU, blocks.config.filters, blocks.config.halvings
    widths = [filters * min(2**level, MAX_WIDTH) for level in range(depth)]
    x = blocks.convolve(x, widths[0], 4, 2, use_bias=blocks.has_biases)
    skips = []
    for width in widths[1:-1]:
        skips.append(x)
        x = blocks.normalize(blocks.convolve(LeakyReLU()(x), width, 4, 2))
    skips.append(x)
    x = blocks.convolve(LeakyReLU()(x), widths[-1], 4, 2, use_bias=blocks.has_biases)
    for level in reversed(range(depth - 1)):
        x = blocks.normalize(blocks.upsample(relu()(x), widths[level], 4))
        if DROPOUT_DEPTH <= level + 1 < depth - 1:
            x = blocks.dropout(x)
        x = tf.keras.layers.Concatenate()([skips[level], x])
    return blocks.upsample(relu()(x), channels, 4, use_bias=True)
