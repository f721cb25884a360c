"""Generators in state dicts of pytorch-CycleGAN-and-pix2pix."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from cyclegan.errors import UserError
from cyclegan.interop.layout import Layout, following, kernel_of, normalization_settings
from cyclegan.interop.state_dict import StateDict

UNETS = {8: "unet_256", 7: "unet_128"}  # by the number of halvings
DROPOUT = 0.5  # the only rate of the reference
EXPECTED = "expected latest_net_G_A.pth or the like, a generator of pytorch-CycleGAN-and-pix2pix"


def find_generator(state: StateDict) -> Layout:
    """Return the layout of the generator in a state dict.

    Raises:
        UserError: The state dict does not belong to a generator of pytorch-CycleGAN-and-pix2pix.
    """
    unet = "model.model.0.weight" in state
    settings, convolutions, normalizations = _find_unet(state) if unet else _find_resnet(state)
    first, last = (kernel_of(state, name, EXPECTED).shape for name in (convolutions[0], convolutions[-1]))
    return Layout(
        EXPECTED,
        settings["generator"],
        {
            "variant": "paper",
            **settings,
            "filters": first[0],
            **normalization_settings(state, normalizations[0]),
            "upsample": "transpose",
        },
        convolutions,
        normalizations,
        channels_in=first[1],
        channels_out=last[1 if unet else 0],  # the last convolution of a U-Net is transposed
    )


def _find_resnet(state: StateDict) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return (settings, convolutions, normalizations)."""
    if "model.1.weight" not in state:
        raise UserError(f"its first tensors are {', '.join(map(repr, [*state][:3])):.200}; {EXPECTED}")
    blocks = len({found[1] for found in (re.match(r"model\.(\d{1,3})\.conv_block\.", name) for name in state) if found})
    # Dropout has no tensors, but moves the second convolution of a block by one position.
    dropout = state.get("model.10.conv_block.6.weight", np.zeros(0)).ndim == 4
    up = 10 + blocks
    inner = [f"model.{block}.conv_block.{place}" for block in range(10, up) for place in (1, 6 if dropout else 5)]
    normalized = ["model.1", "model.4", "model.7", *inner, f"model.{up}", f"model.{up + 3}"]
    settings = {"generator": f"resnet_{blocks}blocks", "dropout": DROPOUT if dropout else 0.0}
    return settings, [*normalized, f"model.{up + 7}"], [following(name, 1) for name in normalized]


def _find_unet(state: StateDict) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return (settings, convolutions, normalizations)."""
    halvings = max(name.count(".model") for name in state)
    if halvings not in UNETS:
        raise UserError(f"it is a U-Net that halves images {halvings} times; expected 8 (unet_256) or 7 (unet_128)")
    outermost, levels = "model.model", ["model.model.1.model"]
    while len(levels) < halvings - 1:
        levels.append(f"{levels[-1]}.3.model")
    *between, innermost = levels
    down = [f"{outermost}.0", *(f"{level}.1" for level in levels)]
    up = [f"{innermost}.3", *(f"{level}.5" for level in reversed(between))]
    normalized = [*down[1:-1], *up]
    return (
        {"generator": UNETS[halvings]},
        [*down, *up, f"{outermost}.3"],
        [following(name, 1) for name in normalized],
    )
