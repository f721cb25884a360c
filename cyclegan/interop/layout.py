"""Names of the modules of a network in a state dict of pytorch-CycleGAN-and-pix2pix.

A state dict names each tensor by the position of its module among the others, so the names determine the architecture.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from cyclegan.errors import UserError
from cyclegan.interop.state_dict import StateDict


@dataclasses.dataclass(frozen=True)
class Layout:
    """A network of pytorch-CycleGAN-and-pix2pix.

    Attributes:
        expected: End of error messages about the state dict.
        architecture: "resnet_9blocks" or "patch", for example.
        settings: Settings of `NetworkConfig` by name that build the same network.
        convolutions: Names of the convolutions in the order of computation.
        normalizations: Names of the normalizations in the order of computation.
        channels_in: Channels of the input.
        channels_out: Channels of the output.
    """

    expected: str
    architecture: str
    settings: dict[str, Any]
    convolutions: list[str]
    normalizations: list[str]
    channels_in: int
    channels_out: int

    def __str__(self) -> str:
        """Describe the network in words."""
        hidden = ("variant", "generator", "discriminator")
        rest = ", ".join(f"{name} {value}" for name, value in self.settings.items() if name not in hidden)
        return f"{self.architecture} from {self.channels_in} to {self.channels_out} channels with {rest}"


def following(name: str, distance: int) -> str:
    """Return the name of the module that comes `distance` positions after the module `name`."""
    head, position = name.rsplit(".", 1)
    return f"{head}.{int(position) + distance}"


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


def normalization_settings(state: StateDict, name: str) -> dict[str, str]:
    """Return the settings of the normalizations, found from the normalization `name` and the convolution before it.

    The reference has no biases before batch normalization.
    """
    biased = f"{following(name, -1)}.bias" in state
    if f"{name}.weight" in state:
        if f"{name}.running_var" in state and not biased:
            return {"norm": "batch"}
        return {"norm": "instance", "norm_affine": "yes"}
    return {"norm": "instance", "norm_affine": "no"} if biased else {"norm": "none"}
