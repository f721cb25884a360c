"""Copying of the weights of a state dict into a network.

Kernels are [out, in, H, W] in PyTorch and [H, W, in, out] here. Kernels of transposed convolutions are [in, out, H, W] in PyTorch
and [H, W, out, in] here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cyclegan.errors import UserError
from cyclegan.interop.layout import Layout, kernel_of
from cyclegan.interop.state_dict import StateDict

if TYPE_CHECKING:
    import tensorflow as tf


def copy_weights(network: tf.keras.Model, state: StateDict, layout: Layout) -> None:
    """Copy the weights of a state dict into a network that was built with the settings of its layout.

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
