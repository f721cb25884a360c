"""Discriminator that classifies each pixel by itself (Isola et al. 2017, the PatchGAN of 1 x 1 pixel)."""

from __future__ import annotations

import tensorflow as tf

from cyclegan.networks.blocks import BlockBuilder
from cyclegan.networks.layers import LeakyReLU


def build_pixel_discriminator(blocks: BlockBuilder, x: tf.Tensor) -> tf.Tensor:
    """Apply convolutions of 1 x 1: [N, H, W, C] -> [N, H, W, 1]."""
    filters = blocks.config.filters
    x = LeakyReLU()(blocks.convolve_pixels(x, filters, use_bias=True))
    x = LeakyReLU()(blocks.normalize(blocks.convolve_pixels(x, 2 * filters)))
    return blocks.convolve_pixels(x, 1, use_bias=True)
