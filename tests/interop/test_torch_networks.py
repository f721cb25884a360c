"""Networks of one training that are read from several files, and files that do not belong together."""

import numpy as np
import pytest

from cyclegan.errors import UserError
from cyclegan.interop import state_dict
from cyclegan.interop.torch_networks import combined_settings, read_networks
from tests.interop.pytorch_networks import patch_state, resnet_state


@pytest.fixture
def read(monkeypatch):
    """Return `read_networks` for state dicts by the name of the network, each in a file of that name."""

    def read(**states):
        monkeypatch.setattr(state_dict, "load_state_dict", lambda path: states[path[: -len(".pth")]])
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
        **{"discriminator": "patch", "discriminator_layers": 2, "discriminator_norm": "same"},
    }
    assert settings["filters"][1] == "G.pth" and settings["discriminator"][1] == "D_Y.pth"


def test_discriminators_may_be_missing(read):
    assert "discriminator" not in combined_settings(read(G=resnet_state()))
    settings = combined_settings(read(G=resnet_state(), D_Y=patch_state(), D_X=patch_state()))
    assert settings["discriminator_layers"][0] == 3


@pytest.mark.parametrize(
    "states, text",
    [
        (
            {"F": resnet_state(filters=3)},
            r"F\.pth is resnet_1blocks from 3 to 3 .*filters 3.*; expected resnet_1blocks from .*filters 2.* reverse of G",
        ),
        ({"F": resnet_state(inputs=1)}, r"F\.pth is .* from 1 to 3 .*; expected .* from 3 to 3"),
        ({"F": patch_state()}, r"F\.pth: its first tensors are .*; expected latest_net_G_A.pth"),
        ({"D_Y": resnet_state()}, r"D_Y\.pth: its first tensors are .*; expected latest_net_D_A.pth"),
        ({"D_X": patch_state(inputs=1)}, r"D_X\.pth takes images of 1 channels; expected 3, as G\.pth is resnet"),
        (
            {"D_X": patch_state(filters=4)},
            r"D_X\.pth has filters 4; expected 2, as in G\.pth: --filters is the same for all",
        ),
        (
            {"D_Y": {**patch_state(), "model.3.weight": np.ones(4), "model.3.bias": np.ones(4)}},
            r"D_Y\.pth has norm_affine yes; expected no, as in G\.pth",
        ),
        (
            {"D_Y": patch_state(layers=1), "D_X": patch_state(layers=2)},
            r"D_X\.pth is patch .*layers 2.*; expected the same as D_Y\.pth, which is patch .*layers 1",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)
def test_files_that_do_not_belong_together(read, states, text):
    with pytest.raises(UserError, match=text):
        read(G=resnet_state(), **states)
