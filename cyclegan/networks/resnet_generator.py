"""Generator of residual blocks (Zhu et al. 2017, appendix)."""

from __future__ import annotations

import tensorflow as tf

from cyclegan.networks.blocks import BlockBuilder


def build_resnet(blocks: BlockBuilder, x: tf.Tensor, channels: int) -> tf.Tensor:
    """Halve the size twice, apply the residual blocks and double the size twice: [N, H, W, C] -> [N, H, W, channels]."""
    relu, filters = tf.keras.layers.ReLU, blocks.config.filters
    x = relu()(blocks.normalize(blocks.convolve_reflected(x, filters, 7)))
    for width in (2 * filters, 4 * filters):
        x = relu()(blocks.normalize(blocks.convolve(x, width, 3, 2)))
    for _ in range(blocks.config.residual_blocks or 0):
        x = residual_block(blocks, x)
    for width in (2 * filters, filters):
        x = relu()(blocks.normalize(blocks.upsample(x, width, 3)))
    return blocks.convolve_reflected(x, channels, 7, use_bias=True)


def residual_block(blocks: BlockBuilder, x: tf.Tensor) -> tf.Tensor:
    """Return x + norm(conv(pad(dropout(relu(norm(conv(pad(x)))))))), without a ReLU after the sum. [N, H, W, C] -> [N, H, W, C]."""
    channels = x.shape[-1]
    y = tf.keras.layers.ReLU()(blocks.normalize(blocks.convolve_reflected(x, channels, 3)))
    y = blocks.normalize(blocks.convolve_reflected(blocks.dropout(y), channels, 3))
    return tf.keras.layers.Add()([x, y])
