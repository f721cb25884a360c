"""Networks with the weights of state dicts, compared with the same networks in PyTorch."""

import numpy as np
import pytest

from cyclegan.interop.torch_networks import find_generator, load_state_dict
from tests.interop.pytorch_networks import (
    filled,
    pytorch_patch_discriminator,
    pytorch_pixel_discriminator,
    pytorch_resnet,
    pytorch_unet,
    with_random_weights,
)

NORMS = ["instance", "affine", "batch", "none"]


def settings_of(torch, network, sizes, path):
    """Return the settings of the network that is read from a file, after a comparison of its output with PyTorch's."""
    network = with_random_weights(torch, network)
    torch.save(network.state_dict(), path)
    ours, layout = filled(load_state_dict(str(path)))
    for height, width in sizes:
        x = np.random.default_rng(height).uniform(-1, 1, (2, height, width, layout.channels_in)).astype(np.float32)
        with torch.no_grad():
            expected = network(torch.from_numpy(x.transpose(0, 3, 1, 2))).numpy().transpose(0, 2, 3, 1)
        output = ours(x).numpy()
        assert output.shape == expected.shape and expected.std() > 0.05
        blurred = layout.settings.get("antialias") and "generator" in layout.settings
        np.testing.assert_allclose(output, expected, atol=1e-5 if blurred else 1e-4)
    return layout.settings


def check_norm(settings, norm):
    assert settings["variant"] == "paper"
    assert settings["norm"] == {"affine": "instance"}.get(norm, norm)
    assert settings.get("norm_affine") == {"instance": "no", "affine": "yes"}.get(norm)


@pytest.mark.sampled
@pytest.mark.parametrize("blurs", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_resnet_equals_pytorch(torch, norm, blurs, tmp_path):
    """Compare at odd sizes, too, where the output is larger than the input."""
    network = pytorch_resnet(torch, 3, 2, 4, 2, norm, blurs=blurs)
    settings = settings_of(torch, network, [(32, 48), (37, 30), (35, 41)], tmp_path / "net.pth")
    assert settings["generator"] == "resnet_2blocks" and settings["filters"] == 4 and settings["dropout"] == 0
    assert settings["antialias"] == blurs
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
    for blurs in (False, True):
        network = pytorch_resnet(torch, 3, 3, 2, 1, "instance", dropout=True, blurs=blurs)
        assert settings_of(torch, network, [(16, 16)], tmp_path / "net.pth")["dropout"] == 0.5


@pytest.mark.sampled
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("layers, blurs", [(1, False), (2, True), (3, True), (5, False)])
def test_patch_discriminator_equals_pytorch(torch, layers, blurs, norm, tmp_path):
    network = pytorch_patch_discriminator(torch, 2, 3, layers, norm, blurs)
    settings = settings_of(torch, network, [(160, 192), (165, 163)], tmp_path / "net.pth")
    assert (settings["discriminator"], settings["discriminator_layers"], settings["filters"]) == ("patch", layers, 3)
    assert settings["antialias"] == blurs
    check_norm(settings, norm)


@pytest.mark.parametrize("norm", NORMS)
def test_pixel_discriminator_equals_pytorch(torch, norm, tmp_path):
    network = pytorch_pixel_discriminator(torch, 3, 5, norm)
    settings = settings_of(torch, network, [(8, 9)], tmp_path / "net.pth")
    assert settings["discriminator"] == "pixel" and settings["filters"] == 5
    assert "discriminator_layers" not in settings
    check_norm(settings, norm)
