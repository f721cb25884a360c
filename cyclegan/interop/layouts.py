"""Networks of pytorch-CycleGAN-and-pix2pix, recognized by the names in their state dicts.

A state dict names each tensor by the position of its module among the others, so the names determine the architecture.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np

from cyclegan.errors import UserError
from cyclegan.interop.state_dict import StateDict

UNETS = {8: "unet_256", 7: "unet_128"}  # by the number of halvings
DROPOUT = 0.5  # the only rate of the reference
GENERATOR = "expected latest_net_G_A.pth or the like, a generator of pytorch-CycleGAN-and-pix2pix"
DISCRIMINATOR = "expected latest_net_D_A.pth or the like, a discriminator of pytorch-CycleGAN-and-pix2pix"


@dataclasses.dataclass(frozen=True)
class Layout:
    """A network of pytorch-CycleGAN-and-pix2pix.

    Attributes:
        expected: End of error messages about the state dict.
        settings: Settings of `NetworkConfig` by name that build the same network.
        convolutions: Names of the convolutions in the order of computation.
        normalizations: Names of the normalizations in the order of computation.
        channels_in: Channels of the input.
        channels_out: Channels of the output.
    """

    expected: str
    settings: dict[str, Any]
    convolutions: list[str]
    normalizations: list[str]
    channels_in: int
    channels_out: int

    def __str__(self) -> str:
        """Describe the network in words."""
        architecture = self.settings.get("generator") or self.settings["discriminator"]
        hidden = ("variant", "generator", "discriminator")
        rest = ", ".join(f"{name} {value}" for name, value in self.settings.items() if name not in hidden)
        return f"{architecture} from {self.channels_in} to {self.channels_out} channels with {rest}"


def find_generator(state: StateDict) -> Layout:
    """Return the layout of the generator in a state dict.

    Raises:
        UserError: The state dict does not belong to a generator of pytorch-CycleGAN-and-pix2pix.
    """
    unet = "model.model.0.weight" in state
    settings, convolutions, normalized = _find_unet(state) if unet else _find_resnet(state)
    normalizations = [_following(name, 1) for name in normalized]
    first, last = (kernel_of(state, name, GENERATOR).shape for name in (convolutions[0], convolutions[-1]))
    settings = {
        **{"variant": "paper", **settings, "filters": first[0]},
        **_normalization_settings(state, normalizations[0]),
        "upsample": "transpose",
    }
    channels_out = last[1 if unet else 0]  # the last convolution of a U-Net is transposed
    return Layout(GENERATOR, settings, convolutions, normalizations, first[1], channels_out)


def _find_resnet(state: StateDict) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return (settings, convolutions, those before a normalization)."""
    if "model.1.weight" not in state:
        raise _unknown(state, GENERATOR)
    blocks = len({found[1] for found in (re.match(r"model\.(\d{1,3})\.conv_block\.", name) for name in state) if found})
    # Dropout has no tensors, but moves the second convolution of a block by one position.
    dropout = state.get("model.10.conv_block.6.weight", np.zeros(0)).ndim == 4
    up = 10 + blocks
    inner = [f"model.{block}.conv_block.{position}" for block in range(10, up) for position in (1, 6 if dropout else 5)]
    normalized = ["model.1", "model.4", "model.7", *inner, f"model.{up}", f"model.{up + 3}"]
    settings = {"generator": f"resnet_{blocks}blocks", "dropout": DROPOUT if dropout else 0.0}
    return settings, [*normalized, f"model.{up + 7}"], normalized


def _find_unet(state: StateDict) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return (settings, convolutions, those before a normalization)."""
    halvings = max(name.count(".model") for name in state)
    if halvings not in UNETS:
        raise UserError(f"it is a U-Net that halves images {halvings} times; expected 8 (unet_256) or 7 (unet_128)")
    levels = ["model.model.1.model"]
    while len(levels) < halvings - 1:
        levels.append(f"{levels[-1]}.3.model")
    *between, innermost = levels
    down = ["model.model.0", *(f"{level}.1" for level in levels)]
    up = [f"{innermost}.3", *(f"{level}.5" for level in reversed(between))]
    return {"generator": UNETS[halvings]}, [*down, *up, "model.model.3"], [*down[1:-1], *up]


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
        raise _unknown(state, DISCRIMINATOR)
    if len(convolutions) < 3:
        raise UserError(f"it has {len(convolutions)} convolutions, expected at least 3; {DISCRIMINATOR}")
    normalizations = [_following(name, 1) for name in convolutions[1:-1]]
    first, last = (kernel_of(state, name, DISCRIMINATOR).shape for name in (convolutions[0], convolutions[-1]))
    settings = {
        **{"variant": "paper", **settings, "filters": first[0], "discriminator_norm": "same"},
        **_normalization_settings(state, normalizations[0]),
    }
    return Layout(DISCRIMINATOR, settings, convolutions, normalizations, first[1], last[0])


def kernel_of(state: StateDict, name: str, expected: str) -> np.ndarray:
    """Return the kernel of the convolution `name`, [out, in, H, W]; [in, out, H, W] of a transposed convolution.

    Raises:
        UserError: It is missing or has another number of dimensions.
    """
    kernel = state.get(f"{name}.weight")
    if kernel is None:
        raise UserError(f"its '{name}.weight' is missing; {expected}")
    if kernel.ndim != 4:
        raise UserError(f"its '{name}.weight' has shape {kernel.shape}, expected four dimensions; {expected}")
    return kernel


def _unknown(state: StateDict, expected: str) -> UserError:
    return UserError(f"its first tensors are {', '.join(map(repr, [*state][:3])):.200}; {expected}")


def _following(name: str, distance: int) -> str:
    """Return the name of the module that comes `distance` positions after the module `name`."""
    head, position = name.rsplit(".", 1)
    return f"{head}.{int(position) + distance}"


def _normalization_settings(state: StateDict, name: str) -> dict[str, str]:
    """Return the settings of the normalizations, found from the normalization `name` and the convolution before it.

    The reference has no biases before batch normalization.
    """
    biased = f"{_following(name, -1)}.bias" in state
    if f"{name}.weight" in state:
        if f"{name}.running_var" in state and not biased:
            return {"norm": "batch"}
        return {"norm": "instance", "norm_affine": "yes"}
    return {"norm": "instance", "norm_affine": "no"} if biased else {"norm": "none"}
