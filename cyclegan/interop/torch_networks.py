"""Networks of pytorch-CycleGAN-and-pix2pix and of CUT: read from their files, recognized, checked, copied into ours.

A state dict has the tensors in the order of the modules, and names each one by the position of its module among the
others. So order and names determine the architecture.
"""

from __future__ import annotations

import dataclasses
import errno
import pathlib
import re
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from cyclegan.errors import UserError, describe_missing
from cyclegan.terminal import install_command

if TYPE_CHECKING:
    import tensorflow as tf

SAFE_VERSION = (2, 6)  # older versions can execute code of a file in spite of weights_only=True (CVE-2025-32434)
INSTALL = f"{install_command('torch')} --index-url https://download.pytorch.org/whl/cpu"
STATE_DICT = "expected a network's state_dict() that torch.save wrote"
UNETS = {8: "unet_256", 7: "unet_128"}  # by the number of halvings
REFERENCE_DROPOUT = 0.5  # the only rate of the reference
GENERATOR = "expected latest_net_G_A.pth or the like, a generator of pytorch-CycleGAN-and-pix2pix or of CUT"
DISCRIMINATOR = "expected latest_net_D_A.pth or the like, a discriminator of pytorch-CycleGAN-and-pix2pix or of CUT"
# Names of files, with the epoch or "latest", and the networks in them.
FILE = re.compile(r"(.+)_net_(G|D|G_A|G_B|D_A|D_B)\.pth")
NETWORK_OF = {"G": "G", "D": "D_Y", "G_A": "G", "G_B": "F", "D_A": "D_Y", "D_B": "D_X"}
BLUR = ".filt"  # end of the names of the constant kernels with which CUT blurs
# The settings of the numbers of channels of each network: of its input, of its output.
CHANNELS_X, CHANNELS_Y = "channels_x", "channels_y"
CHANNELS = {"G": (CHANNELS_X, CHANNELS_Y), "F": (CHANNELS_Y, CHANNELS_X), "D_X": (CHANNELS_X,), "D_Y": (CHANNELS_Y,)}

StateDict = dict[str, np.ndarray]


def find_files(path: str) -> dict[str, str]:
    """Return the files of networks at a path, by the name of the network as `read_networks` expects it.

    Args:
        path: Folder with files such as latest_net_G_A.pth, or with those of numbered epochs, of which the last counts;
            or one of these files, which stands for its epoch; or a generator from X to Y with any name.

    Raises:
        UserError: There are no such files.
    """
    whole = pathlib.Path(path)
    if whole.name in ("config.json", "checkpoints") and whole.exists() and (whole.parent / "config.json").is_file():
        raise UserError(f"--init_from {path}: a part of a run; expected its folder: --init_from {whole.parent}")
    named = FILE.fullmatch(whole.name) if whole.is_file() else None
    if whole.is_file() and not named:
        return {"G": path}
    epochs: dict[str, dict[str, str]] = {}
    for file in sorted((whole.parent if named else whole).glob("*.pth")):  # G_A comes after G, and wins
        if found := FILE.fullmatch(file.name):
            epochs.setdefault(found[1], {})[NETWORK_OF[found[2]]] = str(file)
    files = {epoch: found for epoch, found in epochs.items() if "G" in found and (not named or epoch == named[1])}
    if not files:
        what = "no networks" if whole.exists() else describe_missing(whole, "file or folder")
        raise UserError(
            f"--init_from {path}: {what}; expected the folder of a run, or .pth files with names such as"
            " latest_net_G_A.pth and latest_net_D_A.pth, or latest_net_G.pth"
        )
    return files[max(files, key=lambda epoch: (epoch == "latest", int(epoch) if epoch.isdecimal() else -1))]


def load_state_dict(path: str) -> StateDict:
    """Return the tensors in a file of `torch.save` by name, as float32. Nothing in the file is executed.

    Both the zip format since PyTorch 1.6 and the older one are read. DataParallel's prefix "module." is dropped.

    Raises:
        UserError: PyTorch is missing or too old, the file can't be read or is damaged, or it holds something else.
    """
    torch = _import_torch()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about formats that are refused anyway
            return _to_arrays(torch, torch.load(path, map_location="cpu", weights_only=True))
    except UserError as error:
        raise UserError(f"{path}: {error}; {STATE_DICT}") from None
    except Exception as error:  # a damaged pickle or archive may raise anything
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # of a file that is cut
            raise UserError(f"{path} can't be read ({error.strerror or error}); {STATE_DICT}") from error
        raise UserError(f"{path}: {_reason(error)}; {STATE_DICT}") from error


def _import_torch() -> ModuleType:
    try:
        import torch
    except ImportError as error:
        raise UserError(
            f"PyTorch, which reads these files, can't be imported ({error}); expected a build for the CPU: {INSTALL}"
        ) from error
    version = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
    if version < SAFE_VERSION:
        raise UserError(
            f"PyTorch {torch.__version__} can execute code that a file holds; expected 2.6 or newer: {INSTALL}"
        )
    return torch


def _to_arrays(torch: ModuleType, content: object) -> StateDict:
    if not isinstance(content, dict):
        raise UserError(f"it holds {type(content).__name__}, not a dict of tensors")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise UserError(f"its {name!r:.80} is {type(value).__name__}, not a tensor")
    return {name.removeprefix("module."): value.detach().to(torch.float32).numpy() for name, value in content.items()}


def _reason(error: Exception) -> str:
    """Return a short reason why PyTorch refuses a file; PyTorch's own message advises to execute the file's content."""
    text = str(error)
    if refused := re.search(r"GLOBAL ([\w.]{0,80}\w)", text):
        return f"it asks for {refused[1]}, which no state dict needs"
    if "weights_only" in text:
        return "it is no file of PyTorch, or holds more than tensors"
    return "it is no file of PyTorch, or a damaged or cut one: copy it again"


@dataclasses.dataclass(frozen=True)
class NetworkLayout:
    """The architecture of a network, and the names of its modules in a state dict."""

    expected: str  # end of error messages about the state dict
    settings: dict[str, Any]  # settings of `NetworkConfig` that build the same network
    convolutions: list[str]  # in the order of computation
    normalizations: list[str]  # in the order of computation
    channels_in: int
    channels_out: int

    def __str__(self) -> str:
        """Describe the network in words."""
        architecture = self.settings.get("generator") or self.settings["discriminator"]
        hidden = ("variant", "generator", "discriminator")
        rest = ", ".join(f"{name} {value}" for name, value in self.settings.items() if name not in hidden)
        return f"{architecture} from {self.channels_in} to {self.channels_out} channels with {rest}"


def find_generator(state: StateDict) -> NetworkLayout:
    """Return the layout of the generator in a state dict.

    Raises:
        UserError: The state dict belongs to no such generator.
    """
    settings: dict[str, Any]
    convolutions = _find_convolutions(state)
    if "model.model.0" in convolutions:
        halvings = max(name.count(".model") for name in state)
        if halvings not in UNETS:
            raise UserError(f"it is a U-Net that halves images {halvings} times; expected 8 (unet_256) or 7 (unet_128)")
        settings, outputs_axis = {"generator": UNETS[halvings]}, 1  # the last convolution is transposed
        normalized = [*convolutions[1 : halvings - 1], *convolutions[halvings:-1]]
    elif "model.1" in convolutions:
        in_blocks = [name for name in convolutions if ".conv_block." in name]
        # Dropout has no tensors, but moves the second convolution of a block by one position.
        dropout = REFERENCE_DROPOUT if any(".conv_block.6" in name for name in in_blocks) else 0.0
        settings = {"generator": f"resnet_{len(in_blocks) // 2}blocks", "dropout": dropout, "antialias": _blurs(state)}
        normalized, outputs_axis = convolutions[:-1], 0
    else:
        raise _unknown(state, GENERATOR)
    settings["upsample"] = "transpose"
    return _layout(state, GENERATOR, settings, convolutions, normalized, outputs_axis)


def find_discriminator(state: StateDict) -> NetworkLayout:
    """Return the layout of the discriminator in a state dict; raise `UserError` as `find_generator`."""
    convolutions = _find_convolutions(state)
    settings: dict[str, Any]
    if "net.0" in convolutions:
        settings = {"discriminator": "pixel"}
    elif "model.0" in convolutions:
        layers = len(convolutions) - 2
        settings = {"discriminator": "patch", "discriminator_layers": layers, "antialias": _blurs(state)}
    else:
        raise _unknown(state, DISCRIMINATOR)
    settings["discriminator_norm"] = "same"
    return _layout(state, DISCRIMINATOR, settings, convolutions, convolutions[1:-1])


def _find_convolutions(state: StateDict) -> list[str]:
    """Return the names of the convolutions, which a state dict has in the order of computation."""
    return [name[: -len(".weight")] for name, value in state.items() if name.endswith(".weight") and value.ndim == 4]


def _blurs(state: StateDict) -> bool:
    return any(name.endswith(BLUR) for name in state)


def _layout(
    state: StateDict,
    expected: str,
    settings: dict[str, Any],
    convolutions: list[str],
    normalized: list[str],
    outputs_axis: int = 0,
) -> NetworkLayout:
    """Return a layout with the settings of the normalizations, which are behind the convolutions `normalized`."""
    if not normalized:
        raise UserError(f"it has {len(convolutions)} convolutions, expected at least 3; {expected}")
    normalizations = [_following(name, 1) for name in normalized]
    first, last = (state[f"{name}.weight"].shape for name in (convolutions[0], convolutions[-1]))
    settings.update(variant="paper", filters=first[0], **_normalization_settings(state, normalizations[0]))
    return NetworkLayout(expected, settings, convolutions, normalizations, first[1], last[outputs_axis])


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


@dataclasses.dataclass(frozen=True)
class TorchNetwork:
    """A network that was read from the file `path`."""

    path: str
    state: StateDict
    layout: NetworkLayout

    def copy_to(self, network: tf.keras.Model) -> None:
        """Copy the weights into a network of this package that was built with the settings of the layout.

        Raises:
            UserError: A tensor is missing, left over, of another size, or not finite.
        """
        try:
            _copy_weights(network, self.state, self.layout)
        except UserError as error:
            raise UserError(f"{self.path}: {error}") from None


def read_networks(paths: Mapping[str, str]) -> dict[str, TorchNetwork]:
    """Return the networks in files, by the name of the network: "G" and any of "F", "D_X", "D_Y".

    Raises:
        UserError: A file can't be read or holds another network.
    """
    networks = {}
    for name, path in paths.items():
        state = load_state_dict(path)
        try:
            layout = find_generator(state) if name in ("G", "F") else find_discriminator(state)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        networks[name] = TorchNetwork(path, state, layout)
    return networks


def combined_settings(networks: Mapping[str, TorchNetwork]) -> dict[str, tuple[Any, str]]:
    """Return the settings that build these networks, as (value, file that has it) by name.

    Raises:
        UserError: The networks do not belong together: they need different values of a setting.
    """
    combined: dict[str, tuple[Any, str]] = {}
    for key, network in networks.items():
        layout = network.layout
        channels = dict(zip(CHANNELS[key], (layout.channels_in, layout.channels_out)))
        for name, value in {**channels, **layout.settings}.items():
            expected, path = combined.setdefault(name, (value, network.path))
            if value != expected:
                raise UserError(
                    f"{network.path} has {name} {value}; expected {expected}, as {path} has: G_B reverses G_A, D_A"
                    " sees the output of G_A, and D_B the output of G_B; a network without a file begins anew"
                )
    return combined


def _copy_weights(network: tf.keras.Model, state: StateDict, layout: NetworkLayout) -> None:
    """Copy the weights of a state dict into a network.

    Kernels are [out, in, H, W] in PyTorch and [H, W, in, out] here; of transposed convolutions, in and out are swapped
    in both.
    """
    rest = dict(state)
    convolutions = [layer for layer in network.layers if hasattr(layer, "kernel")]
    found, needed = len(layout.convolutions), len(convolutions)
    if found != needed:
        raise UserError(f"it has {found} convolutions, expected {needed} of {layout}; {layout.expected}")
    for name, layer in zip(layout.convolutions, convolutions):
        _assign(layer.kernel, rest.pop(f"{name}.weight").transpose(2, 3, 1, 0), f"{name}.weight")
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
    if layout.settings.get("antialias"):
        unused |= {name for name in rest if name.endswith(BLUR)}
    if left := sorted(set(rest) - unused):
        raise UserError(f"it has {len(left)} tensors too many, for example {left[0]!r:.80}; {layout.expected}")


def _assign(variable: tf.Variable, value: np.ndarray, name: str) -> None:
    if tuple(variable.shape) != value.shape:
        raise UserError(f"its '{name}' has shape {value.shape} in TensorFlow's order; expected {tuple(variable.shape)}")
    if not np.isfinite(value).all():
        raise UserError(f"its '{name}' has numbers that are not finite; expected the weights of a sound network")
    variable.assign(value.astype(np.float32))
