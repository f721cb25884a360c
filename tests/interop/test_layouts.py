"""State dicts that belong to no network of pytorch-CycleGAN-and-pix2pix."""

import numpy as np
import pytest

from cyclegan.errors import UserError
from cyclegan.interop.discriminator_layout import find_discriminator
from cyclegan.interop.generator_layout import find_generator
from tests.interop.pytorch_networks import patch_state, resnet_state


def test_other_generators_are_refused():
    for state in ({}, {"conv1.weight": np.zeros((64, 3, 7, 7))}, {"model.0.weight": np.zeros((64, 3, 4, 4))}):
        with pytest.raises(UserError, match="expected latest_net_G_A.pth or the like"):
            find_generator(state)
    with pytest.raises(UserError, match="halves images 1 times; expected 8"):
        find_generator({"model.model.0.weight": np.zeros((64, 3, 4, 4))})


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"conv1.weight": np.zeros((64, 3, 7, 7))},
        {"model.0.weight": np.zeros((64, 3, 4, 4))},
        {"model.0.weight": np.zeros((64, 3, 4, 4)), "model.2.weight": np.zeros((1, 64, 4, 4))},
        {"net.0.weight": np.zeros((64, 3, 1, 1))},
        resnet_state(),
    ],
    ids=lambda state: " ".join([*state][:2]),
)
def test_other_discriminators_are_refused(state):
    with pytest.raises(UserError, match="expected latest_net_D_A.pth or the like"):
        find_discriminator(state)


def test_a_layout_describes_the_network():
    resnet, patch = find_generator(resnet_state(outputs=1)), find_discriminator(patch_state(layers=2))
    assert str(resnet) == (
        "resnet_1blocks from 3 to 1 channels with dropout 0.0, filters 2, norm instance, norm_affine no, upsample transpose"
    )
    assert str(patch) == (
        "patch from 3 to 1 channels with discriminator_layers 2, filters 2, norm instance, norm_affine no"
    )
