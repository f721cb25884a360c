"""Discriminator that classifies overlapping patches, the PatchGAN of Isola et al. 2017."""

from __future__ import annotations

import tensorflow as tf

from cyclegan.networks.blocks import BlockBuilder
from cyclegan.networks.layers import LeakyReLU

MAX_WIDTH = 8  # channels of a layer are at most this many times the number of filters


def build_patch_discriminator(blocks: BlockBuilder, x: tf.Tensor) -> tf.Tensor:
    """Apply convolutions of 4 x 4 with stride 2, except for the last two: [N, H, W, C] -> [N, h, w, 1].

    With 3 layers, each logit depends on 70 x 70 pixels; h and w are ceil(H / 8) and ceil(W / 8), in the variant "paper"
    floor(H / 8) - 2 and floor(W / 8) - 2.
    """
    filters, layers = blocks.config.filters, blocks.config.discriminator_layers
    x = LeakyReLU()(blocks.convolve(x, filters, 4, 2, use_bias=True))
    for layer in range(1, layers + 1):
        x = blocks.convolve(x, filters * min(2**layer, MAX_WIDTH), 4, 2 if layer < layers else 1)
        x = LeakyReLU()(blocks.normalize(x))
    return blocks.convolve(x, 1, 4, use_bias=True)
