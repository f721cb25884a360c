"""The networks of pytorch-CycleGAN-and-pix2pix as PyTorch modules, and state dicts of them without PyTorch."""

import contextlib
from collections import OrderedDict

import numpy as np

from cyclegan.config import Config
from cyclegan.interop.torch_networks import TorchNetwork, find_discriminator, find_generator
from cyclegan.networks.discriminators import make_discriminator
from cyclegan.networks.generators import make_generator


def agree_for_one_seed(compare):
    """Call `compare(seed)` until it agrees, at most for eight seeds.

    Rounding may carry a value over the kink of a ReLU, for some seeds on some CPUs, which moves a gradient by 1 %, also
    in PyTorch's float32. A wrong formula agrees for no seed.
    """
    for seed in range(1, 9):
        with contextlib.suppress(AssertionError):
            return compare(seed)
    return compare(1)


def pytorch_normalization(torch, norm):
    """Return (function from channels to a module, whether convolutions before it have biases)."""
    if norm == "batch":
        return torch.nn.BatchNorm2d, False
    if norm == "none":
        return (lambda channels: torch.nn.Identity()), False
    return (lambda channels: torch.nn.InstanceNorm2d(channels, affine=norm == "affine")), True


def pytorch_blur(torch, channels, doubles=False):
    """Return the blur of CUT: halve the sides, or double them."""
    row = torch.tensor([1.0, 3.0, 3.0, 1.0] if doubles else [1.0, 2.0, 1.0])
    kernel = torch.outer(row, row) / row.sum() ** 2 * (4 if doubles else 1)

    class Blur(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("filt", kernel.repeat(channels, 1, 1, 1))

        def forward(self, x):
            functional = torch.nn.functional
            if not doubles:
                return functional.conv2d(functional.pad(x, [1] * 4, "reflect"), self.filt, stride=2, groups=channels)
            repeated = functional.pad(x, [1] * 4, "replicate")
            return functional.conv_transpose2d(repeated, self.filt, stride=2, padding=3, groups=channels)

    return Blur()


def pytorch_resnet(torch, inputs, outputs, filters, blocks, norm, dropout=False, blurs=False):
    """Return the generator of Zhu et al. 2017, or of CUT, with modules where the published weights have them."""
    nn = torch.nn
    normalize, bias = pytorch_normalization(torch, norm)

    class Block(nn.Module):
        def __init__(self, channels):
            super().__init__()
            first = [nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3, bias=bias), normalize(channels), nn.ReLU()]
            second = [nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3, bias=bias), normalize(channels)]
            self.conv_block = nn.Sequential(*first, *([nn.Dropout(0.5)] if dropout else []), *second)

        def forward(self, x):
            return x + self.conv_block(x)

    parts = [nn.ReflectionPad2d(3), nn.Conv2d(inputs, filters, 7, bias=bias), normalize(filters), nn.ReLU()]
    for width in (filters, 2 * filters):
        parts += [nn.Conv2d(width, 2 * width, 3, 1 if blurs else 2, 1, bias=bias), normalize(2 * width), nn.ReLU()]
        parts += [pytorch_blur(torch, 2 * width)] if blurs else []
    parts += [Block(4 * filters) for _ in range(blocks)]
    for width in (4 * filters, 2 * filters):
        enlarge = [nn.ConvTranspose2d(width, width // 2, 3, 2, padding=1, output_padding=1, bias=bias)]
        if blurs:
            enlarge = [pytorch_blur(torch, width, doubles=True), nn.Conv2d(width, width // 2, 3, 1, 1, bias=bias)]
        parts += [*enlarge, normalize(width // 2), nn.ReLU()]
    parts += [nn.ReflectionPad2d(3), nn.Conv2d(filters, outputs, 7), nn.Tanh()]
    return nn.Sequential(OrderedDict(model=nn.Sequential(*parts)))


def pytorch_unet(torch, inputs, outputs, filters, halvings, norm):
    """Return the U-Net of Isola et al. 2017 with modules where the published weights have them, nested."""
    nn = torch.nn
    normalize, bias = pytorch_normalization(torch, norm)

    class Level(nn.Module):
        def __init__(self, parts, skip=True):
            super().__init__()
            self.model = nn.Sequential(*parts)
            self.skip = skip

        def forward(self, x):
            return torch.cat([x, self.model(x)], dim=1) if self.skip else self.model(x)

    widths = [filters * min(2**depth, 8) for depth in range(halvings)]
    level = None
    for outer, inner in reversed([*zip(widths, widths[1:])]):
        down = [nn.LeakyReLU(0.2), nn.Conv2d(outer, inner, 4, 2, 1, bias=bias)]
        between = [normalize(inner), level] if level else []
        up = nn.ConvTranspose2d(2 * inner if level else inner, outer, 4, 2, 1, bias=bias)
        level = Level([*down, *between, nn.ReLU(), up, normalize(outer)])
    last = nn.ConvTranspose2d(2 * filters, outputs, 4, 2, 1)
    level = Level([nn.Conv2d(inputs, filters, 4, 2, 1, bias=bias), level, nn.ReLU(), last, nn.Tanh()], skip=False)
    return nn.Sequential(OrderedDict(model=level))


def with_random_weights(torch, network):
    """Return the network in evaluation mode with weights, and running statistics, as after some training."""
    torch.manual_seed(0)
    for name, value in network.state_dict().items():
        if name.endswith("filt"):
            continue
        if value.ndim == 4:
            value.normal_(0, (2 / value[0].numel()) ** 0.5)
        elif value.ndim == 1:
            value.uniform_(0.5, 1.5) if "var" in name or "weight" in name else value.normal_(0, 0.3)
    return network.eval()


def pytorch_patch_discriminator(torch, inputs, filters, layers, norm, blurs=False):
    """Return the PatchGAN of Isola et al. 2017, or of CUT, with modules where the published weights have them."""
    nn = torch.nn
    normalize, bias = pytorch_normalization(torch, norm)
    widths = [filters * min(2**layer, 8) for layer in range(layers + 1)]
    halving = 1 if blurs else 2
    parts = [nn.Conv2d(inputs, filters, 4, halving, 1), nn.LeakyReLU(0.2)]
    for layer in range(1, layers + 1):
        parts += [pytorch_blur(torch, widths[layer - 1])] if blurs else []
        stride = halving if layer < layers else 1
        parts += [nn.Conv2d(widths[layer - 1], widths[layer], 4, stride, 1, bias=bias), normalize(widths[layer])]
        parts += [nn.LeakyReLU(0.2)]
    return nn.Sequential(OrderedDict(model=nn.Sequential(*parts, nn.Conv2d(widths[-1], 1, 4, 1, 1))))


def pytorch_pixel_discriminator(torch, inputs, filters, norm):
    """Return the discriminator of single pixels; its last convolution has a bias only with instance normalization."""
    nn = torch.nn
    normalize, bias = pytorch_normalization(torch, norm)
    parts = [nn.Conv2d(inputs, filters, 1), nn.LeakyReLU(0.2), nn.Conv2d(filters, 2 * filters, 1, bias=bias)]
    parts += [normalize(2 * filters), nn.LeakyReLU(0.2), nn.Conv2d(2 * filters, 1, 1, bias=bias)]
    return nn.Sequential(OrderedDict(net=nn.Sequential(*parts)))


def resnet_state(blocks=1, filters=2, inputs=3, outputs=3, seed=0):
    """Return a state dict of a ResNet with instance normalizations, without PyTorch."""
    rng = np.random.default_rng(seed)
    up, widest = 10 + blocks, 4 * filters
    shapes = {
        "model.1": (filters, inputs, 7, 7),
        "model.4": (2 * filters, filters, 3, 3),
        "model.7": (widest, 2 * filters, 3, 3),
        **{f"model.{10 + n}.conv_block.{place}": (widest, widest, 3, 3) for n in range(blocks) for place in (1, 5)},
        f"model.{up}": (widest, 2 * filters, 3, 3),
        f"model.{up + 3}": (2 * filters, filters, 3, 3),
        f"model.{up + 7}": (outputs, filters, 7, 7),
    }
    state = {}
    for name, shape in shapes.items():
        state[f"{name}.weight"] = rng.normal(0, 0.1, shape).astype(np.float32)
        biases = shape[1] if name in (f"model.{up}", f"model.{up + 3}") else shape[0]
        state[f"{name}.bias"] = rng.normal(0, 0.1, biases).astype(np.float32)
    return state


def patch_state(layers=3, filters=2, inputs=3, seed=0):
    """Return a state dict of a PatchGAN with instance normalizations, without PyTorch."""
    rng = np.random.default_rng(seed)
    widths = [inputs, *(filters * min(2**layer, 8) for layer in range(layers + 1)), 1]
    state = {}
    for number, (before, after) in enumerate(zip(widths, widths[1:])):
        place = max(3 * number - 1, 0)
        state[f"model.{place}.weight"] = rng.normal(0, 0.1, (after, before, 4, 4)).astype(np.float32)
        state[f"model.{place}.bias"] = rng.normal(0, 0.1, after).astype(np.float32)
    return state


def filled(state):
    """Return (network of this package, its layout) for a state dict."""
    is_generator = "model.1.weight" in state or "model.model.0.weight" in state
    layout = (find_generator if is_generator else find_discriminator)(state)
    networks = Config.from_settings(**layout.settings).networks
    if is_generator:
        network = make_generator(networks, layout.channels_in, layout.channels_out)
    else:
        network = make_discriminator(networks, layout.channels_in)
    TorchNetwork("a file", state, layout).copy_to(network)
    return network, layout
