"""Discriminators by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

import tensorflow as tf

from cyclegan.networks import compat
from cyclegan.networks.blocks import BlockBuilder
from cyclegan.networks.patch_discriminator import build_patch_discriminator
from cyclegan.networks.pixel_discriminator import build_pixel_discriminator

if TYPE_CHECKING:
    from cyclegan.config.networks import NetworkConfig

# Architectures by `NetworkConfig.discriminator`. Each appends its layers to the input image and returns the logits.
ARCHITECTURES: dict[str, Callable[[BlockBuilder, tf.Tensor], tf.Tensor]] = {
    "patch": build_patch_discriminator,
    "pixel": build_pixel_discriminator,
}


def make_discriminator(
    config: NetworkConfig, channels: int = 3, second_derivatives: bool = False, name: str = "discriminator"
) -> tf.keras.Model:
    """Return a discriminator: float32 [N, H, W, channels] in [-1, 1] -> [N, h, w, 1], logits of being real.

    It has 2,765,633 parameters by default, 2,764,737 in the variant "paper".

    Args:
        config: Settings of the networks.
        channels: Channels of the images.
        second_derivatives: Whether losses contain gradients of the discriminator.
        name: Name of the Keras model.
    """
    image = tf.keras.Input((None, None, channels))
    blocks = BlockBuilder(config, second_derivatives, spectral=config.discriminator_norm == "spectral")
    x = ARCHITECTURES[config.discriminator](blocks, image)
    return compat.make_model(image, tf.keras.layers.Activation("linear", dtype="float32")(x), name)
