"""Our networks against the same ones written in PyTorch; and what state dicts are refused."""

import numpy as np
import pytest

from cyclegan.config import Config
from cyclegan.errors import UserError
from cyclegan.interop import torch_file, torch_weights
from cyclegan.networks import generators


def pytorch_normalization(torch, norm):
    """(function from channels to a module, whether convolutions before it have biases)."""
    if norm == "batch":
        return torch.nn.BatchNorm2d, False
    if norm == "none":
        return (lambda channels: torch.nn.Identity()), False
    return (lambda channels: torch.nn.InstanceNorm2d(channels, affine=norm == "affine")), True


def pytorch_resnet(torch, inputs, outputs, filters, blocks, norm, dropout=False):
    """The generator of Zhu et al. 2017 with modules in the places that the published weights name them by."""
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
        parts += [nn.Conv2d(width, 2 * width, 3, 2, 1, bias=bias), normalize(2 * width), nn.ReLU()]
    parts += [Block(4 * filters) for _ in range(blocks)]
    for width in (4 * filters, 2 * filters):
        enlarge = nn.ConvTranspose2d(width, width // 2, 3, 2, padding=1, output_padding=1, bias=bias)
        parts += [enlarge, normalize(width // 2), nn.ReLU()]
    parts += [nn.ReflectionPad2d(3), nn.Conv2d(filters, outputs, 7), nn.Tanh()]

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = nn.Sequential(*parts)

        def forward(self, x):
            return self.model(x)

    return Generator()


def pytorch_unet(torch, inputs, outputs, filters, halvings, norm):
    """The U-Net of Isola et al. 2017, likewise; its skips are nested."""
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

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = level

        def forward(self, x):
            return self.model(x)

    return Generator()


def with_random_weights(torch, network):
    """Weights as after some training, and running statistics unlike those at the start; for use, not for training."""
    torch.manual_seed(0)
    for name, value in network.state_dict().items():
        if value.ndim == 4:
            value.normal_(0, (2 / value[0].numel()) ** 0.5)
        elif value.ndim == 1:
            value.uniform_(0.5, 1.5) if "var" in name or "weight" in name else value.normal_(0, 0.3)
    return network.eval()


def assert_agree(torch, network, state, sizes):
    """Our network with the weights of `state` gives what PyTorch's gives."""
    fields, inputs, outputs = torch_weights.settings(state)
    ours = generators.make_generator(Config.from_settings(**fields).networks, inputs, outputs)
    torch_weights.fill(ours, state)
    for height, width in sizes:
        x = np.random.default_rng(height).uniform(-1, 1, (2, height, width, inputs)).astype(np.float32)
        with torch.no_grad():
            expected = network(torch.from_numpy(x.transpose(0, 3, 1, 2))).numpy().transpose(0, 2, 3, 1)
        got = ours(x).numpy()
        assert got.shape == expected.shape and expected.std() > 0.1
        np.testing.assert_allclose(got, expected, atol=1e-4)
    return fields


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("norm", ["instance", "affine", "batch", "none"])
def test_a_resnet_is_pytorch_s(norm, legacy, tmp_path):
    """At even and at odd sizes, where the output is larger than the input."""
    torch = pytest.importorskip("torch")
    network = with_random_weights(torch, pytorch_resnet(torch, 3, 2, 4, 2, norm))
    torch.save(network.state_dict(), tmp_path / "net.pth", _use_new_zipfile_serialization=not legacy)
    fields = assert_agree(torch, network, torch_file.load(tmp_path / "net.pth"), [(32, 48), (37, 30), (35, 41)])
    assert fields["generator"] == "resnet_2blocks" and fields["filters"] == 4 and fields["variant"] == "paper"
    assert fields["norm"] == {"affine": "instance"}.get(norm, norm) and fields["dropout"] == 0
    assert fields.get("norm_affine") == {"instance": "no", "affine": "yes"}.get(norm)


@pytest.mark.parametrize("norm", ["instance", "affine", "batch"])
def test_a_u_net_is_pytorch_s(norm):
    torch = pytest.importorskip("torch")
    network = with_random_weights(torch, pytorch_unet(torch, 1, 3, 2, 7, norm))
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    # Instance normalization of a single pixel is nothing, so the size is twice the smallest.
    fields = assert_agree(torch, network, state, [(256, 256)])
    assert fields["generator"] == "unet_128" and fields["filters"] == 2


def test_a_u_net_of_eight_halvings_and_dropout_are_found():
    torch = pytest.importorskip("torch")
    state = {name: value.numpy() for name, value in pytorch_unet(torch, 3, 3, 2, 8, "batch").state_dict().items()}
    assert torch_weights.settings(state)[0]["generator"] == "unet_256"
    network = with_random_weights(torch, pytorch_resnet(torch, 3, 3, 2, 1, "instance", dropout=True))
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    assert assert_agree(torch, network, state, [(16, 16)])["dropout"] == 0.5


def test_batch_normalization_trains_as_pytorch_s():
    """Outputs while training, and the running statistics after it."""
    torch = pytest.importorskip("torch")
    from cyclegan.networks import batch_normalization

    theirs, ours = torch.nn.BatchNorm2d(5), batch_normalization.BatchNormalization()
    for number in range(3):
        x = np.random.default_rng(number).normal(number, 2, (2, 3, 4, 5)).astype(np.float32)
        expected = theirs(torch.from_numpy(x.transpose(0, 3, 1, 2))).detach().numpy().transpose(0, 2, 3, 1)
        if not number:
            ours.build(x.shape)
            ours.gamma.assign(np.ones(5))
        np.testing.assert_allclose(ours(x, training=True).numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(ours.moving_mean.numpy(), theirs.running_mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(ours.moving_variance.numpy(), theirs.running_var.numpy(), rtol=1e-5)


def resnet_state(blocks=1, filters=2, inputs=3, outputs=3, seed=0):
    """A state dict of a generator with instance normalizations, without PyTorch."""
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


def filled(state):
    fields, inputs, outputs = torch_weights.settings(state)
    network = generators.make_generator(Config.from_settings(**fields).networks, inputs, outputs)
    torch_weights.fill(network, state)
    return network


def test_names_of_several_gpus_and_statistics_of_old_versions_change_nothing():
    state, x = resnet_state(), np.random.default_rng(1).uniform(-1, 1, (1, 16, 16, 3)).astype(np.float32)
    expected = filled(state)(x).numpy()
    np.testing.assert_array_equal(
        filled({f"module.{name}": value for name, value in state.items()})(x).numpy(), expected
    )
    old = {**state, "model.2.running_mean": np.ones(2), "model.2.running_var": np.ones(2)}
    old["model.10.conv_block.2.num_batches_tracked"] = np.array(3)
    np.testing.assert_array_equal(filled(old)(x).numpy(), expected)
    assert np.std(filled(resnet_state(seed=1))(x).numpy() - expected) > 1e-3


@pytest.mark.parametrize(
    "change, text",
    [
        ({"model.20.weight": np.zeros((3, 3))}, "1 tensors more than such a generator, 'model.20.weight'"),
        ({"model.2.filt": np.zeros((2, 1, 3, 3))}, "'model.2.filt'"),
        ({"model.4.weight": None}, "'model.4.weight' is missing"),
        ({"model.4.weight": np.zeros(3)}, r"shape \(3,\), expected four dimensions"),
        ({"model.4.weight": np.zeros((4, 2, 5, 5))}, r"'model.4.weight' has 200 numbers, .*; expected \(3, 3, 2, 4\)"),
        ({"model.4.bias": np.zeros(5)}, r"'model.4.bias' has 5 numbers, \(5,\)"),
        ({"model.7.bias": np.array([np.nan] * 8)}, "'model.7.bias' has numbers that are not finite"),
        ({"model.1.weight": None}, "its first tensors are 'model.1.bias', 'model.4.weight'"),
        ({"model.2.weight": np.ones(2)}, "'model.2.bias' is missing"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named(change, text):
    state = {name: value for name, value in {**resnet_state(), **change}.items() if value is not None}
    with pytest.raises(UserError, match=text):
        filled(state)


def test_networks_of_others_are_refused():
    for state in ({}, {"conv1.weight": np.zeros((64, 3, 7, 7))}, {"model.0.weight": np.zeros((64, 3, 4, 4))}):
        with pytest.raises(UserError, match="expected latest_net_G_A.pth or such"):
            torch_weights.settings(state)
    with pytest.raises(UserError, match="halves pictures 1 times; expected 8"):
        torch_weights.settings({"model.model.0.weight": np.zeros((64, 3, 4, 4))})
