"""Networks that pytorch-CycleGAN-and-pix2pix trained together: read from their files, checked, and copied into ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cyclegan.errors import UserError
from cyclegan.interop import state_dict
from cyclegan.interop.layouts import Layout, find_discriminator, find_generator, kernel_of

if TYPE_CHECKING:
    import tensorflow as tf

SHARED = ("filters", "norm", "norm_affine")  # settings that generators and discriminators share


@dataclasses.dataclass(frozen=True)
class TorchNetwork:
    """A network that was read from a file.

    Attributes:
        path: The file.
        state: Arrays by name.
        layout: Names of the network's modules in `state`.
    """

    path: str
    state: state_dict.StateDict
    layout: Layout

    def copy_to(self, network: tf.keras.Model) -> None:
        """Copy the weights into a network of this package that was built with the settings of the layout.

        Raises:
            UserError: A tensor is missing, left over, of another size, or not finite.
        """
        try:
            copy_weights(network, self.state, self.layout)
        except UserError as error:
            raise UserError(f"{self.path}: {error}") from None


def read_networks(paths: Mapping[str, str]) -> dict[str, TorchNetwork]:
    """Return the networks in some files.

    Args:
        paths: Files by the name of the network: "G" and any of "F", "D_X", "D_Y".

    Raises:
        UserError: A file can't be read or holds another network, or the networks do not belong together.
    """
    networks = {name: _read(name, path) for name, path in paths.items()}
    G, F, D_X, D_Y = (networks.get(name) for name in ("G", "F", "D_X", "D_Y"))
    assert G
    if F:
        expected = dataclasses.replace(G.layout, channels_in=G.layout.channels_out, channels_out=G.layout.channels_in)
        if F.layout != expected:
            raise UserError(f"{F.path} is {F.layout}; expected {expected}, the reverse of {G.path}")
    for D, channels in ((D_Y, G.layout.channels_out), (D_X, G.layout.channels_in)):
        if D:
            _check_discriminator(D, G, channels)
    if D_X and D_Y and D_X.layout.settings != D_Y.layout.settings:
        raise UserError(f"{D_X.path} is {D_X.layout}; expected the same as {D_Y.path}, which is {D_Y.layout}")
    return networks


def combined_settings(networks: Mapping[str, TorchNetwork]) -> dict[str, tuple[Any, str]]:
    """Return the settings that build these networks, as (value, file that has it) by name."""
    G = networks["G"]
    settings = {"channels_x": (G.layout.channels_in, G.path), "channels_y": (G.layout.channels_out, G.path)}
    for network in reversed([*networks.values()]):
        settings.update({name: (value, network.path) for name, value in network.layout.settings.items()})
    return settings


def _read(name: str, path: str) -> TorchNetwork:
    state = state_dict.load_state_dict(path)
    try:
        return TorchNetwork(path, state, (find_generator if name in ("G", "F") else find_discriminator)(state))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _check_discriminator(D: TorchNetwork, G: TorchNetwork, channels: int) -> None:
    if D.layout.channels_in != channels:
        raise UserError(
            f"{D.path} takes images of {D.layout.channels_in} channels; expected {channels}, as {G.path} is {G.layout}:"
            " D_A takes the output of G_A, D_B the output of G_B"
        )
    for name in SHARED:
        ours, theirs = D.layout.settings.get(name), G.layout.settings.get(name)
        if ours != theirs:
            raise UserError(
                f"{D.path} has {name} {ours}; expected {theirs}, as in {G.path}: --{name} is the same for all four"
                " networks; leave the discriminators out to begin with new ones"
            )


def copy_weights(network: tf.keras.Model, state: state_dict.StateDict, layout: Layout) -> None:
    """Copy the weights of a state dict into a network that was built with the settings of its layout.

    Kernels are [out, in, H, W] in PyTorch and [H, W, in, out] here. Kernels of transposed convolutions are [in, out, H, W] in
    PyTorch and [H, W, out, in] here.

    Raises:
        UserError: A tensor is missing, left over, of another size, or not finite.
    """
    rest = dict(state)
    convolutions = [layer for layer in network.layers if hasattr(layer, "kernel")]
    for name, layer in zip(layout.convolutions, convolutions):
        kernel = kernel_of(state, name, layout.expected)
        del rest[f"{name}.weight"]
        _assign(layer.kernel, kernel.transpose(2, 3, 1, 0), f"{name}.weight")
        if layer.use_bias:  # a missing bias is 0: without a normalization, the reference has none
            _assign(layer.bias, rest.pop(f"{name}.bias", np.zeros(layer.bias.shape)), f"{name}.bias")
    normalizations = [layer for layer in network.layers if getattr(layer, "gamma", None) is not None]
    for name, layer in zip(layout.normalizations, normalizations):
        variables = {"weight": layer.gamma, "bias": layer.beta}
        if hasattr(layer, "moving_mean"):
            variables.update(running_mean=layer.moving_mean, running_var=layer.moving_variance)
        for part, variable in variables.items():
            if f"{name}.{part}" not in rest:
                raise UserError(f"its '{name}.{part}' is missing; {layout.expected}")
            _assign(variable, rest.pop(f"{name}.{part}"), f"{name}.{part}")
    # Instance normalizations of old versions kept running statistics, and did not use them.
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    unused = {f"{name}.{part}" for name in layout.normalizations for part in statistics}
    if left := sorted(set(rest) - unused):
        raise UserError(f"it has {len(left)} tensors too many, for example {left[0]!r:.80}; {layout.expected}")


def _assign(variable: tf.Variable, value: np.ndarray, name: str) -> None:
    if tuple(variable.shape) != value.shape:
        raise UserError(
            f"its '{name}' has {value.size:,} numbers, {value.shape} in TensorFlow's order; expected {tuple(variable.shape)}"
        )
    if not np.isfinite(value).all():
        raise UserError(f"its '{name}' has numbers that are not finite; expected the weights of a sound network")
    variable.assign(value.astype(np.float32))
