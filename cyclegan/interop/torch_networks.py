"""Networks that pytorch-CycleGAN-and-pix2pix trained together, read from their files and checked to fit each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cyclegan.errors import UserError
from cyclegan.interop import state_dict, weights
from cyclegan.interop.discriminator_layout import find_discriminator
from cyclegan.interop.generator_layout import find_generator
from cyclegan.interop.layout import Layout

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
        """Copy the weights into a network of this package.

        Raises:
            UserError: They do not fit; see `copy_weights`.
        """
        try:
            weights.copy_weights(network, self.state, self.layout)
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
    G = networks["G"]
    if "F" in networks:
        _check_reverse_generator(networks["F"], G)
    for name in ("D_Y", "D_X"):
        if name in networks:
            channels = G.layout.channels_out if name == "D_Y" else G.layout.channels_in
            _check_discriminator(networks[name], G, channels)
    if {"D_X", "D_Y"} <= set(networks):
        _check_equal_discriminators(networks["D_X"], networks["D_Y"])
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


def _check_reverse_generator(F: TorchNetwork, G: TorchNetwork) -> None:
    expected = dataclasses.replace(G.layout, channels_in=G.layout.channels_out, channels_out=G.layout.channels_in)
    if F.layout != expected:
        raise UserError(f"{F.path} is {F.layout}; expected {expected}, the reverse of {G.path}")


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


def _check_equal_discriminators(D_X: TorchNetwork, D_Y: TorchNetwork) -> None:
    if D_X.layout.settings != D_Y.layout.settings:
        raise UserError(f"{D_X.path} is {D_X.layout}; expected the same as {D_Y.path}, which is {D_Y.layout}")
