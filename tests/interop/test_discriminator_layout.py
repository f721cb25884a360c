import numpy as np
import pytest

from cyclegan.errors import UserError
from cyclegan.interop.discriminator_layout import find_discriminator
from tests.interop.pytorch_networks import patch_state, resnet_state


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


def test_kernels_are_not_divided():
    assert find_discriminator(patch_state()).settings["discriminator_norm"] == "same"
