"""Discriminators in state dicts of pytorch-CycleGAN-and-pix2pix."""

from __future__ import annotations

import re
from typing import Any

from cyclegan.errors import UserError
from cyclegan.interop.layout import Layout, following, kernel_of, normalization_settings
from cyclegan.interop.state_dict import StateDict

EXPECTED = "expected latest_net_D_A.pth or the like, a discriminator of pytorch-CycleGAN-and-pix2pix"


def find_discriminator(state: StateDict) -> Layout:
    """Return the layout of the discriminator in a state dict.

    Raises:
        UserError: The state dict does not belong to a discriminator of pytorch-CycleGAN-and-pix2pix.
    """
    settings: dict[str, Any]
    if "net.0.weight" in state:
        settings, convolutions = {"discriminator": "pixel"}, ["net.0", "net.2", "net.5"]
    elif "model.0.weight" in state:
        layers = sum(value.ndim == 4 for name, value in state.items() if re.fullmatch(r"model\.\d+\.weight", name)) - 2
        settings = {"discriminator": "patch", "discriminator_layers": layers}
        convolutions = ["model.0", *(f"model.{2 + 3 * layer}" for layer in range(layers + 1))]
    else:
        raise UserError(f"its first tensors are {', '.join(map(repr, [*state][:3])):.200}; {EXPECTED}")
    if len(convolutions) < 3:
        raise UserError(f"it has {len(convolutions)} convolutions, expected at least 3; {EXPECTED}")
    normalizations = [following(name, 1) for name in convolutions[1:-1]]
    first, last = (kernel_of(state, name, EXPECTED).shape for name in (convolutions[0], convolutions[-1]))
    return Layout(
        EXPECTED,
        settings["discriminator"],
        {
            **{"variant": "paper", **settings, "filters": first[0], "discriminator_norm": "same"},
            **normalization_settings(state, normalizations[0]),
        },
        convolutions,
        normalizations,
        channels_in=first[1],
        channels_out=last[0],
    )
