"""Generators by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

import tensorflow as tf

from cyclegan.networks import compat
from cyclegan.networks.blocks import BlockBuilder
from cyclegan.networks.resnet_generator import build_resnet
from cyclegan.networks.unet_generator import build_unet

if TYPE_CHECKING:
    from cyclegan.config.networks import NetworkConfig

# Architectures by the part of `NetworkConfig.generator` before the first underscore. Each appends its layers to the
# input image and returns the given number of channels, before the tanh. `cyclegan.config.networks` lists all names.
ARCHITECTURES: dict[str, Callable[[BlockBuilder, tf.Tensor, int], tf.Tensor]] = {
    "resnet": build_resnet,
    "unet": build_unet,
}


def make_generator(
    config: NetworkConfig, channels_in: int = 3, channels_out: int = 3, name: str = "generator"
) -> tf.keras.Model:
    """Return a generator: float32 [N, H, W, channels_in] -> [N, H, W, channels_out], both in [-1, 1].

    It has 11,383,427 parameters by default, 11,378,179 in the variant "paper".

    Args:
        config: Settings of the networks.
        channels_in: Channels of the images to translate.
        channels_out: Channels of the translated images.
        name: Name of the Keras model.
    """
    image = tf.keras.Input((None, None, channels_in))
    build = ARCHITECTURES[config.generator.split("_")[0]]
    x = build(BlockBuilder(config), image, channels_out)
    return compat.make_model(image, tf.keras.layers.Activation("tanh", dtype="float32")(x), name)
