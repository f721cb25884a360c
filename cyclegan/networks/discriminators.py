"""Discriminators with their settings: the PatchGAN of Isola et al. 2017, and one that classifies each pixel."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from cyclegan.config.fields import flag
from cyclegan.config.sections import NetworkConfig
from cyclegan.errors import UserError
from cyclegan.lazy_tensorflow import tf

if TYPE_CHECKING:
    from cyclegan.networks.blocks import BlockBuilder


@dataclasses.dataclass(frozen=True)
class Patch(NetworkConfig):
    """Classifies overlapping patches (PatchGAN)."""

    discriminator_layers: int = flag(3, least=1)
    """layers of a PatchGAN that halve the image or widen the view; with 3, it sees patches of 70 x 70 pixels"""

    def check_side(self, side: int) -> None:
        """Raise `UserError` if images of this side in pixels are too small."""
        layers, factor, added = self.discriminator_layers, 1, 0
        if self.variant == "paper":
            factor = 3  # the last two layers each take away a pixel
        elif self.norm == "instance" and self.discriminator_norm == "same":
            added = 1  # the normalization of a single pixel is zero
        smallest = (factor << min(layers, 64)) + added
        if side < smallest:
            most = ((side - added) // factor).bit_length() - 1
            raise UserError(
                f"--discriminator_layers {layers} halves images {layers} times, and images of {side} pixels are too"
                f" small for it: expected at most {most} layers, or images of at least {smallest} pixels (--image_size)"
            )

    def build_discriminator(self, blocks: BlockBuilder, x: tf.Tensor) -> tf.Tensor:
        """Append convolutions of 4 x 4 with stride 2, except for the last two: [N, H, W, C] -> [N, h, w, 1].

        With 3 layers, each logit depends on 70 x 70 pixels; h and w are ceil(H / 8) and ceil(W / 8), in the variant
        "paper" floor(H / 8) - 2 and floor(W / 8) - 2. With --antialias, blurs halve instead of strides.
        """
        from cyclegan.networks.layers import LeakyReLU

        layers = self.discriminator_layers
        x = blocks.blur(LeakyReLU()(blocks.convolve(x, self.filters, 4, blocks.halving, use_bias=True)))
        for layer in range(1, layers + 1):
            x = blocks.convolve(x, self.width(layer), 4, blocks.halving if layer < layers else 1)
            x = LeakyReLU()(blocks.normalize(x))
            x = blocks.blur(x) if layer < layers else x
        return blocks.convolve(x, 1, 4, use_bias=True)


@dataclasses.dataclass(frozen=True)
class Pixel(NetworkConfig):
    """Classifies each pixel by itself."""

    def build_discriminator(self, blocks: BlockBuilder, x: tf.Tensor) -> tf.Tensor:
        """Append convolutions of 1 x 1: [N, H, W, C] -> [N, H, W, 1]."""
        from cyclegan.networks.layers import LeakyReLU

        x = LeakyReLU()(blocks.convolve_pixels(x, self.filters, use_bias=True))
        x = LeakyReLU()(blocks.normalize(blocks.convolve_pixels(x, 2 * self.filters)))
        return blocks.convolve_pixels(x, 1, use_bias=True)


DISCRIMINATORS: dict[str, type[NetworkConfig]] = {"patch": Patch, "pixel": Pixel}  # by --discriminator


def make_discriminator(
    config: NetworkConfig, channels: int = 3, second_derivatives: bool = False, name: str = "discriminator"
) -> tf.keras.Model:
    """Return a discriminator: float32 [N, H, W, channels] in [-1, 1] -> [N, h, w, 1], logits of being real.

    It has 2,765,633 parameters by default, 2,764,737 in the variant "paper". Losses that contain its gradients need
    `second_derivatives`.
    """
    from cyclegan.networks import compat
    from cyclegan.networks.blocks import BlockBuilder

    image = tf.keras.Input((None, None, channels))
    blocks = BlockBuilder(config, second_derivatives, spectral=config.discriminator_norm == "spectral")
    x = config.build_discriminator(blocks, image)
    return compat.make_model(image, tf.keras.layers.Activation("linear", dtype="float32")(x), name)
