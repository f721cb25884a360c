"""Generators: a ResNet (Zhu et al. 2017, appendix) and a U-Net (Isola et al. 2017, appendix), with their settings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cyclegan.config.data import EMBEDDED
from cyclegan.config.fields import flag, refuse
from cyclegan.config.sections import NetworkConfig
from cyclegan.errors import UserError
from cyclegan.lazy_tensorflow import tf

if TYPE_CHECKING:
    from cyclegan.networks.blocks import BlockBuilder

RESNET = re.compile(r"resnet_(\d{1,3})blocks", re.ASCII)
DROPOUT_DEPTH = 4  # decoder layers of a U-Net from this depth on have dropout


def _default_blocks(settings: Mapping[str, Any]) -> int:
    if resnet := RESNET.fullmatch(settings["generator"]):
        return int(resnet[1])
    if settings["dataset"] in EMBEDDED:
        return 3
    return 9 if settings["image_size"] >= 256 else 6


@dataclasses.dataclass(frozen=True)
class ResNet(NetworkConfig):
    """Halves the size twice, applies residual blocks, and doubles the size twice."""

    residual_blocks: int = flag(9, derive=_default_blocks)
    """residual blocks of a ResNet generator (default: 9; 6 for images under 256 pixels; stripes, scenes: 3)"""

    @property
    def halvings(self) -> int:
        """How often the generators halve their input."""
        return 2

    @property
    def reach(self) -> int:
        """Pixels around an output pixel that influence it, at most: 8 per block, and 28 for all other layers."""
        return 8 * self.residual_blocks + 28

    def _check(self) -> None:
        resnet = RESNET.fullmatch(self.generator)
        if not resnet:
            refuse("generator", self.generator, "a number of residual blocks as in resnet_9blocks")
        if self.residual_blocks != int(resnet[1]):
            raise UserError(
                f"--residual_blocks {self.residual_blocks}: expected {resnet[1]}, as --generator {self.generator} has:"
                " drop one of the flags"
            )

    def build_generator(self, blocks: BlockBuilder, x: tf.Tensor, channels: int) -> tf.Tensor:
        """Append all layers but the tanh: [N, H, W, C] -> [N, H, W, channels]."""
        relu, filters = tf.keras.layers.ReLU, self.filters
        x = relu()(blocks.normalize(blocks.convolve_reflected(x, filters, 7)))
        for width in (2 * filters, 4 * filters):
            x = blocks.blur(relu()(blocks.normalize(blocks.convolve(x, width, 3, blocks.halving))))
        for _ in range(self.residual_blocks):
            x = residual_block(blocks, x)
        for width in (2 * filters, filters):
            x = relu()(blocks.normalize(blocks.upsample(x, width, 3)))
        return blocks.convolve_reflected(x, channels, 7, use_bias=True)


def residual_block(blocks: BlockBuilder, x: tf.Tensor) -> tf.Tensor:
    """Return x + norm(conv(pad(dropout(relu(norm(conv(pad(x)))))))), of the shape of x, without a ReLU behind."""
    channels = x.shape[-1]
    y = tf.keras.layers.ReLU()(blocks.normalize(blocks.convolve_reflected(x, channels, 3)))
    y = blocks.normalize(blocks.convolve_reflected(blocks.dropout(y), channels, 3))
    return tf.keras.layers.Add()([x, y])


@dataclasses.dataclass(frozen=True)
class UNet(NetworkConfig):
    """Halves the size 8 or 7 times and doubles it as often, with a skip connection at each size."""

    @property
    def halvings(self) -> int:
        """How often the generators halve their input."""
        return {"unet_256": 8, "unet_128": 7}[self.generator]

    @property
    def reach(self) -> int:
        """Pixels around an output pixel that influence it, at most."""
        return 4 * self.multiple

    def _check(self) -> None:
        if self.antialias:
            raise UserError(f"--antialias: expected a ResNet, not --generator {self.generator}")

    def build_generator(self, blocks: BlockBuilder, x: tf.Tensor, channels: int) -> tf.Tensor:
        """Append all layers but the tanh: [N, H, W, C] -> [N, H, W, channels].

        The outermost and the innermost convolution of the encoder have no normalization, so training uses their biases.
        Decoder layers that join two layers of full width have dropout.
        """
        from cyclegan.networks.layers import LeakyReLU

        relu, depth = tf.keras.layers.ReLU, self.halvings
        widths = [self.width(level) for level in range(depth)]
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


# Classes by the pattern of --generator.
GENERATORS: dict[str, type[NetworkConfig]] = {
    "auto": ResNet,
    "resnet_*blocks": ResNet,
    "unet_256": UNet,
    "unet_128": UNet,
}


def make_generator(
    config: NetworkConfig, channels_in: int = 3, channels_out: int = 3, name: str = "generator"
) -> tf.keras.Model:
    """Return a generator: float32 [N, H, W, channels_in] -> [N, H, W, channels_out], both in [-1, 1].

    It has 11,383,427 parameters by default, 11,378,179 in the variant "paper".
    """
    from cyclegan.networks import compat
    from cyclegan.networks.blocks import BlockBuilder

    image = tf.keras.Input((None, None, channels_in))
    x = config.build_generator(BlockBuilder(config), image, channels_out)
    return compat.make_model(image, tf.keras.layers.Activation("tanh", dtype="float32")(x), name)
