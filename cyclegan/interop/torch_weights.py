"""Generators of pytorch-CycleGAN-and-pix2pix: what network a state dict is of, and its weights in ours.

State dicts name a tensor by its module's place among others, so the places say what is built. Kernels are [out, in, H, W] there, of
transposed convolutions [in, out, H, W], and [H, W, in, out] or [H, W, out, in] here.
"""

import re

import numpy as np

from cyclegan.errors import UserError

UNETS = {8: "unet_256", 7: "unet_128"}  # by how often they halve a picture
DROPOUT = 0.5  # the reference's only rate
ADVICE = "expected latest_net_G_A.pth or such, a generator of pytorch-CycleGAN-and-pix2pix"


def settings(state):
    """What makes a generator of a state dict's kind.

    Args:
        state: NumPy arrays by name, see `torch_file.load`.

    Returns:
        (fields of `config.Config` by name, channels that go in, channels that come out).

    Raises:
        UserError: it is none of pytorch-CycleGAN-and-pix2pix.
    """
    state = _without_prefix(state)
    fields, convolutions, norms = _places(state)
    first, last = (_kernel(state, name).shape for name in (convolutions[0], convolutions[-1]))
    transposed = fields["generator"] in UNETS.values()
    fields = {"variant": "paper", **fields, "filters": first[0], **_normalization(state, norms[0])}
    fields["upsample"] = "transpose"
    return fields, first[1], last[1 if transposed else 0]


def fill(network, state):
    """Gives a generator of `models.generator`, made with `settings`, the weights of a state dict.

    Raises:
        UserError: something is missing, left over, of another size, or not finite.
    """
    state = dict(_without_prefix(state))
    _, convolutions, norms = _places(state)
    ours = [layer for layer in network.layers if hasattr(layer, "kernel")]
    for name, layer in zip(convolutions, ours):
        kernel = _kernel(state, name)
        del state[f"{name}.weight"]
        _assign(layer.kernel, kernel.transpose(2, 3, 1, 0), f"{name}.weight")
        if layer.use_bias:  # without any it adds nothing: the reference has none where nothing is normalized
            _assign(layer.bias, state.pop(f"{name}.bias", np.zeros(layer.bias.shape)), f"{name}.bias")
    learned = [layer for layer in network.layers if getattr(layer, "gamma", None) is not None]
    for name, layer in zip(norms, learned):
        parts = {"weight": layer.gamma, "bias": layer.beta}
        if hasattr(layer, "moving_mean"):
            parts.update(running_mean=layer.moving_mean, running_var=layer.moving_variance)
        for part, variable in parts.items():
            _assign(variable, _taken(state, f"{name}.{part}"), f"{name}.{part}")
    # Instance normalizations of old versions kept running statistics, and did not use them.
    unused = {f"{name}.{part}" for name in norms for part in ("running_mean", "running_var", "num_batches_tracked")}
    if left := sorted(set(state) - unused):
        raise UserError(f"it has {len(left)} tensors more than such a generator, {left[0]!r:.80} for one; {ADVICE}")


def _without_prefix(state):
    """Without the "module." that PyTorch's DataParallel puts before each name."""
    if all(name.startswith("module.") for name in state):
        return {name[len("module.") :]: value for name, value in state.items()}
    return state


def _places(state):
    """(fields, names of the convolutions, names of the normalizations), the names in the order in which they are computed."""
    if "model.model.0.weight" in state:
        return _places_of_unet(max(name.count(".model") for name in state))
    blocks = {found[1] for found in (re.match(r"model\.(\d{1,3})\.conv_block\.", name) for name in state) if found}
    if "model.1.weight" not in state:
        raise UserError(f"its first tensors are {', '.join(map(repr, [*state][:3])):.200}; {ADVICE}")
    # Dropout has no tensors; with it the second convolution of a block is a place further back.
    dropout = np.ndim(state.get("model.10.conv_block.6.weight")) == 4
    return _places_of_resnet(len(blocks), dropout)


def _places_of_resnet(blocks, dropout):
    up = 10 + blocks
    inside = [f"model.{block}.conv_block.{place}" for block in range(10, up) for place in (1, 6 if dropout else 5)]
    normalized = ["model.1", "model.4", "model.7", *inside, f"model.{up}", f"model.{up + 3}"]
    fields = {"generator": f"resnet_{blocks}blocks", "dropout": DROPOUT if dropout else 0.0}
    return fields, [*normalized, f"model.{up + 7}"], [_neighbour(name, 1) for name in normalized]


def _places_of_unet(halvings):
    if halvings not in UNETS:
        raise UserError(f"it is a U-Net that halves pictures {halvings} times; expected 8 (unet_256) or 7 (unet_128)")
    outermost, levels = "model.model", ["model.model.1.model"]
    while len(levels) < halvings - 1:
        levels.append(f"{levels[-1]}.3.model")
    *between, innermost = levels
    down = [f"{outermost}.0", *(f"{level}.1" for level in levels)]
    up = [f"{innermost}.3", *(f"{level}.5" for level in reversed(between))]
    normalized = [*down[1:-1], *up]
    return {"generator": UNETS[halvings]}, [*down, *up, f"{outermost}.3"], [_neighbour(name, 1) for name in normalized]


def _neighbour(name, distance):
    """The name of the module so many places on."""
    head, place = name.rsplit(".", 1)
    return f"{head}.{int(place) + distance}"


def _normalization(state, norm):
    """The fields about normalizations, by the first one's name. Before batch normalization the reference has no biases."""
    biased = f"{_neighbour(norm, -1)}.bias" in state
    if f"{norm}.weight" in state:
        if f"{norm}.running_var" in state and not biased:
            return {"norm": "batch"}
        return {"norm": "instance", "norm_affine": "yes"}
    return {"norm": "instance", "norm_affine": "no"} if biased else {"norm": "none"}


def _kernel(state, name):
    kernel = state.get(f"{name}.weight")
    if np.ndim(kernel) != 4:
        what = "is missing" if kernel is None else f"has shape {kernel.shape}, expected four dimensions"
        raise UserError(f"its '{name}.weight' {what}; {ADVICE}")
    return kernel


def _taken(state, name):
    if name not in state:
        raise UserError(f"its '{name}' is missing; {ADVICE}")
    return state.pop(name)


def _assign(variable, value, name):
    if tuple(variable.shape) != value.shape:
        raise UserError(
            f"its '{name}' has {value.size:,} numbers, {value.shape} as we order them; expected {tuple(variable.shape)}"
        )
    if not np.isfinite(value).all():
        raise UserError(f"its '{name}' has numbers that are not finite; expected the weights of a sound network")
    variable.assign(value.astype(np.float32))
