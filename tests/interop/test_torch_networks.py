"""Networks recognized in state dicts, copied into ours, and files that do not fit or do not belong together."""

import numpy as np
import pytest

from cyclegan.errors import UserError
from cyclegan.interop import torch_networks
from cyclegan.interop.torch_networks import combined_settings, find_discriminator, find_generator, read_networks
from tests.interop.pytorch_networks import filled, patch_state, resnet_state


def test_other_networks_are_refused():
    for name in ("conv1", "model.0", "net.0"):
        with pytest.raises(UserError, match="expected latest_net_D_A.pth or the like"):
            find_discriminator({f"{name}.weight": np.zeros((64, 3, 4, 4))})
    for state in ({}, {"conv1.weight": np.zeros((64, 3, 7, 7))}, patch_state()):
        with pytest.raises(UserError, match="expected latest_net_G_A.pth or the like"):
            find_generator(state)
    with pytest.raises(UserError, match="halves images 1 times; expected 8"):
        find_generator({"model.model.0.weight": np.zeros((64, 3, 4, 4))})


@pytest.fixture
def read(monkeypatch):
    """Return `read_networks` for state dicts by the name of the network, each in a file of that name."""

    def read(**states):
        monkeypatch.setattr(torch_networks, "load_state_dict", lambda path: states[path[: -len(".pth")]])
        return read_networks({name: f"{name}.pth" for name in states})

    return read


def test_settings_of_all_four_networks(read):
    settings = combined_settings(
        read(
            G=resnet_state(inputs=1, outputs=3),
            F=resnet_state(inputs=3, outputs=1),
            D_Y=patch_state(layers=2, inputs=3),
            D_X=patch_state(layers=2, inputs=1),
        )
    )
    assert {name: value for name, (value, _) in settings.items()} == {
        **{"channels_x": 1, "channels_y": 3, "variant": "paper", "generator": "resnet_1blocks", "dropout": 0.0},
        **{"filters": 2, "norm": "instance", "norm_affine": "no", "upsample": "transpose"},
        **{"antialias": False, "discriminator": "patch", "discriminator_layers": 2, "discriminator_norm": "same"},
    }
    assert "discriminator" not in combined_settings(read(G=resnet_state()))
    assert settings["filters"][1] == "G.pth" and settings["discriminator"][1] == "D_Y.pth"


@pytest.mark.parametrize(
    "states, text",
    [
        (
            {"F": resnet_state(filters=3)},
            r"F\.pth has filters 3; expected 2, as G\.pth",
        ),
        ({"F": resnet_state(inputs=1)}, r"F\.pth has channels_y 1; expected 3, as G\.pth has"),
        ({"D_X": patch_state(inputs=1)}, r"D_X\.pth has channels_x 1; expected 3, as G\.pth has"),
        ({"D_X": patch_state(filters=4)}, r"D_X\.pth has filters 4; expected 2, as G\.pth has"),
        (
            {"D_Y": {**patch_state(), "model.3.weight": np.ones(4), "model.3.bias": np.ones(4)}},
            r"D_Y\.pth has norm_affine yes; expected no, as G\.pth has",
        ),
        (
            {"D_Y": patch_state(layers=1), "D_X": patch_state(layers=2)},
            r"D_X\.pth has discriminator_layers 2; expected 1, as D_Y\.pth has",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)
def test_files_that_do_not_belong_together(read, states, text):
    with pytest.raises(UserError, match=text):
        combined_settings(read(G=resnet_state(), **states))


def test_unused_statistics_of_old_files_are_ignored():
    state, x = resnet_state(), np.random.default_rng(1).uniform(-1, 1, (1, 16, 16, 3)).astype(np.float32)
    expected = filled(state)[0](x).numpy()
    old = {**state, "model.2.running_mean": np.ones(2), "model.2.running_var": np.ones(2)}
    old["model.10.conv_block.2.num_batches_tracked"] = np.array(3)
    np.testing.assert_array_equal(filled(old)[0](x).numpy(), expected)
    assert np.std(filled(resnet_state(seed=1))[0](x).numpy() - expected) > 1e-3


@pytest.mark.parametrize(
    "state, change, text",
    [
        (resnet_state(), {"model.20.weight": np.zeros((3, 3))}, "1 tensors too many, for example 'model.20.weight'"),
        (resnet_state(), {"model.4.weight": None}, "it has 7 convolutions, expected 8 of resnet_1blocks from 3 to 3"),
        (resnet_state(), {"model.4.weight": np.zeros(3)}, "it has 7 convolutions, expected 8 of resnet_1blocks"),
        (
            resnet_state(),
            {"model.4.weight": np.zeros((4, 2, 5, 5))},
            r"has shape \(5, 5, 2, 4\) .*; expected \(3, 3, 2, 4\)",
        ),
        (resnet_state(), {"model.4.bias": np.zeros(5)}, r"'model.4.bias' has shape \(5,\)"),
        (resnet_state(), {"model.7.bias": np.array([np.nan] * 8)}, "'model.7.bias' has numbers that are not finite"),
        (resnet_state(), {"model.2.weight": np.ones(2)}, "'model.2.bias' is missing"),
        (patch_state(), {"model.14.weight": np.zeros((3, 3, 4, 4))}, r"'model.11.weight' has shape \(4, 4, 16, 1\)"),
    ],
    ids=lambda value: str(value) if len(value) == 1 else "",
)
def test_weights_that_do_not_fit(state, change, text):
    with pytest.raises(UserError, match=text):
        filled({name: value for name, value in {**state, **change}.items() if value is not None})
