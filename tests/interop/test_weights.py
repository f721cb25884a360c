"""Networks with the weights of state dicts, compared with the same networks in PyTorch."""

import numpy as np
import pytest

from cyclegan.errors import UserError
from cyclegan.interop.generator_layout import find_generator
from cyclegan.interop.state_dict import load_state_dict
from tests.interop.filled_networks import filled
from tests.interop.pytorch_networks import (
    patch_state,
    pytorch_patch_discriminator,
    pytorch_pixel_discriminator,
    pytorch_resnet,
    pytorch_unet,
    resnet_state,
    with_random_weights,
)

NORMS = ["instance", "affine", "batch", "none"]


def settings_of(torch, network, sizes, path, legacy=False):
    """Return the settings of the network that is read from a file, after a comparison of its output with PyTorch's."""
    network = with_random_weights(torch, network)
    torch.save(network.state_dict(), path, _use_new_zipfile_serialization=not legacy)
    ours, layout = filled(load_state_dict(str(path)))
    for height, width in sizes:
        x = np.random.default_rng(height).uniform(-1, 1, (2, height, width, layout.channels_in)).astype(np.float32)
        with torch.no_grad():
            expected = network(torch.from_numpy(x.transpose(0, 3, 1, 2))).numpy().transpose(0, 2, 3, 1)
        output = ours(x).numpy()
        assert output.shape == expected.shape and expected.std() > 0.1
        np.testing.assert_allclose(output, expected, atol=1e-4)
    return layout.settings


def check_norm(settings, norm):
    assert settings["variant"] == "paper"
    assert settings["norm"] == {"affine": "instance"}.get(norm, norm)
    assert settings.get("norm_affine") == {"instance": "no", "affine": "yes"}.get(norm)


@pytest.mark.sampled
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("norm", NORMS)
def test_resnet_equals_pytorch(torch, norm, legacy, tmp_path):
    """Compare at odd sizes, too, where the output is larger than the input."""
    network = pytorch_resnet(torch, 3, 2, 4, 2, norm)
    settings = settings_of(torch, network, [(32, 48), (37, 30), (35, 41)], tmp_path / "net.pth", legacy)
    assert settings["generator"] == "resnet_2blocks" and settings["filters"] == 4 and settings["dropout"] == 0
    check_norm(settings, norm)


@pytest.mark.sampled
@pytest.mark.parametrize("norm", ["instance", "affine", "batch"])
def test_unet_equals_pytorch(torch, norm, tmp_path):
    # Instance normalization of a single pixel is 0, so the size is twice the smallest.
    settings = settings_of(torch, pytorch_unet(torch, 1, 3, 2, 7, norm), [(256, 256)], tmp_path / "net.pth")
    assert settings["generator"] == "unet_128" and settings["filters"] == 2


def test_eight_halvings_and_dropout_are_found(torch, tmp_path):
    state = {name: value.numpy() for name, value in pytorch_unet(torch, 3, 3, 2, 8, "batch").state_dict().items()}
    assert find_generator(state).settings["generator"] == "unet_256"
    network = pytorch_resnet(torch, 3, 3, 2, 1, "instance", dropout=True)
    assert settings_of(torch, network, [(16, 16)], tmp_path / "net.pth")["dropout"] == 0.5


@pytest.mark.sampled
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("layers", [1, 2, 3, 5])
def test_patch_discriminator_equals_pytorch(torch, layers, norm, tmp_path):
    network = pytorch_patch_discriminator(torch, 2, 3, layers, norm)
    sizes = [(160, 192), (165, 163)]
    settings = settings_of(torch, network, sizes, tmp_path / "net.pth", legacy=layers == 2)
    assert (settings["discriminator"], settings["discriminator_layers"], settings["filters"]) == ("patch", layers, 3)
    check_norm(settings, norm)


@pytest.mark.parametrize("norm", NORMS)
def test_pixel_discriminator_equals_pytorch(torch, norm, tmp_path):
    network = pytorch_pixel_discriminator(torch, 3, 5, norm)
    settings = settings_of(torch, network, [(8, 9)], tmp_path / "net.pth")
    assert settings["discriminator"] == "pixel" and settings["filters"] == 5
    assert "discriminator_layers" not in settings
    check_norm(settings, norm)


def test_batch_normalization_trains_as_in_pytorch(torch):
    """Compare the outputs while training, and the running statistics afterwards."""
    from cyclegan.networks.normalization import BatchNormalization

    theirs, ours = torch.nn.BatchNorm2d(5), BatchNormalization()
    for number in range(3):
        x = np.random.default_rng(number).normal(number, 2, (2, 3, 4, 5)).astype(np.float32)
        expected = theirs(torch.from_numpy(x.transpose(0, 3, 1, 2))).detach().numpy().transpose(0, 2, 3, 1)
        if not number:
            ours.build(x.shape)
            ours.gamma.assign(np.ones(5))
        np.testing.assert_allclose(ours(x, training=True).numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(ours.moving_mean.numpy(), theirs.running_mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(ours.moving_variance.numpy(), theirs.running_var.numpy(), rtol=1e-5)


def test_unused_statistics_of_old_files_are_ignored():
    state, x = resnet_state(), np.random.default_rng(1).uniform(-1, 1, (1, 16, 16, 3)).astype(np.float32)
    expected = filled(state)[0](x).numpy()
    old = {**state, "model.2.running_mean": np.ones(2), "model.2.running_var": np.ones(2)}
    old["model.10.conv_block.2.num_batches_tracked"] = np.array(3)
    np.testing.assert_array_equal(filled(old)[0](x).numpy(), expected)
    assert np.std(filled(resnet_state(seed=1))[0](x).numpy() - expected) > 1e-3


@pytest.mark.parametrize(
    "change, text",
    [
        ({"model.20.weight": np.zeros((3, 3))}, "1 tensors too many, for example 'model.20.weight'"),
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
def test_generator_that_does_not_fit(change, text):
    state = {name: value for name, value in {**resnet_state(), **change}.items() if value is not None}
    layout_of = find_generator if "model.1.weight" not in state else filled
    with pytest.raises(UserError, match=text):
        layout_of(state)


@pytest.mark.parametrize(
    "change, text",
    [
        ({"model.20.weight": np.zeros((3, 3))}, "1 tensors too many, for example 'model.20.weight'"),
        ({"model.14.weight": np.zeros((3, 3, 4, 4))}, "'model.11.weight' has 256 numbers"),
        ({"model.5.weight": None}, "'model.5.weight' is missing"),
        ({"model.2.weight": np.zeros(3)}, r"shape \(3,\), expected four dimensions"),
        ({"model.2.weight": np.zeros((4, 2, 3, 3))}, r"'model.2.weight' has 72 numbers, .*; expected \(4, 4, 2, 4\)"),
        ({"model.11.bias": np.zeros(2)}, r"'model.11.bias' has 2 numbers, \(2,\)"),
        ({"model.8.bias": np.array([np.inf] * 16)}, "'model.8.bias' has numbers that are not finite"),
        ({"model.3.weight": np.ones(4)}, "'model.3.bias' is missing"),
    ],
    ids=str,
)
def test_discriminator_that_does_not_fit(change, text):
    state = {name: value for name, value in {**patch_state(), **change}.items() if value is not None}
    with pytest.raises(UserError, match=text):
        filled(state)
