"""Settings of the generators and discriminators."""

from __future__ import annotations

import dataclasses
import re
from typing import ClassVar, Literal, Optional

from cyclegan.config.fields import Section, flag, refuse
from cyclegan.errors import UserError

RESNET = re.compile(r"resnet_(\d{1,3})blocks", re.ASCII)
UNETS = {"unet_256": 256, "unet_128": 128}  # sides of images have to be multiples of this, in pixels
RESNET_MULTIPLE = 4  # the same for ResNets, which halve the image twice
MAX_WEIGHTS = 10**10  # of a generator: 40 GB


@dataclasses.dataclass(frozen=True)
class NetworkConfig(Section):
    """Architecture of generators and discriminators."""

    TITLE: ClassVar[str] = "networks"

    variant: Literal["keras", "paper"] = flag(
        "keras: no biases, normalizations learn scales and offsets; paper: the networks of pytorch-CycleGAN-and-pix2pix",
        "keras",
    )
    generator: str = flag(
        "resnet_9blocks, resnet_6blocks (or another number), unet_256, unet_128; auto: a ResNet of --residual_blocks"
        " (default: auto)",
        "resnet_9blocks",
    )
    residual_blocks: Optional[int] = flag(
        "residual blocks of a ResNet generator (default: 9; 6 for images under 256 pixels; stripes, scenes: 3)", 9
    )
    filters: int = flag("channels after the first convolution (default: 64; stripes, scenes: 16)", 64)
    discriminator: Literal["patch", "pixel"] = flag("patch: a PatchGAN; pixel: classifies each pixel alone", "patch")
    discriminator_layers: int = flag(
        "layers of a PatchGAN that halve the image or widen the view; with 3, it sees patches of 70 x 70 pixels", 3
    )
    norm: Literal["instance", "batch", "none"] = flag("normalization", "instance")
    discriminator_norm: Literal["same", "spectral"] = flag(
        "normalization of the discriminators. same: as --norm says; spectral: each kernel is divided by its largest singular value",
        "same",
    )
    norm_affine: Literal["auto", "yes", "no"] = flag(
        "whether instance normalizations (--norm instance) learn scales and offsets; auto: with --variant keras"
        " (default: auto)",
        "yes",
    )
    upsample: Literal["transpose", "resize"] = flag(
        "upsampling in the generators. transpose: transposed convolutions; resize: nearest neighbours and a convolution",
        "transpose",
    )
    dropout: float = flag("share of the values that generators drop while training; 0 is off", 0.0)
    init: Literal["normal", "xavier", "kaiming", "orthogonal"] = flag("initial values of the convolutions", "normal")

    @property
    def multiple(self) -> int:
        """Pixels by which the sides of the generators' input must be divisible."""
        return UNETS.get(self.generator, RESNET_MULTIPLE)

    @property
    def halvings(self) -> int:
        """How often the generators halve their input."""
        return self.multiple.bit_length() - 1

    def check(self) -> None:
        """Raise `UserError` if a value cannot work."""
        self.check_at_least(0, "residual_blocks")
        self.check_at_least(1, "filters", "discriminator_layers")
        self.check_fraction("dropout")
        blocks = 50 if self.generator in UNETS else max(self.residual_blocks or 0, 1)  # a U-Net is not larger than 50
        if blocks * 2 * 9 * (4 * self.filters) ** 2 > MAX_WEIGHTS:
            refuse("filters", self.filters, f"fewer: generators would have more than {MAX_WEIGHTS:,} weights")
        resnet = RESNET.fullmatch(self.generator)
        if not resnet and self.generator not in UNETS:
            refuse("generator", self.generator, f"auto, resnet_9blocks (or another number), {', '.join(UNETS)}")
        if resnet and self.residual_blocks != int(resnet[1]):
            raise UserError(
                f"--residual_blocks {self.residual_blocks}: expected {resnet[1]}, as --generator {self.generator} has: drop one"
                " of the flags"
            )
        if not resnet and self.residual_blocks is not None:
            raise UserError(
                f"--residual_blocks {self.residual_blocks}: --generator {self.generator} has none; expected no such flag: drop it"
            )
