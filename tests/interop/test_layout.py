import numpy as np
import pytest

from cyclegan.interop.discriminator_layout import find_discriminator
from cyclegan.interop.generator_layout import find_generator
from cyclegan.interop.layout import following, normalization_settings
from tests.interop.pytorch_networks import patch_state, resnet_state


def test_a_layout_describes_the_network():
    resnet, patch = find_generator(resnet_state(outputs=1)), find_discriminator(patch_state(layers=2))
    assert str(resnet) == (
        "resnet_1blocks from 3 to 1 channels with dropout 0.0, filters 2, norm instance, norm_affine no, upsample transpose"
    )
    assert str(patch) == (
        "patch from 3 to 1 channels with discriminator_layers 2, filters 2, discriminator_norm same, norm instance,"
        " norm_affine no"
    )


def test_names_of_following_modules():
    assert following("model.10.conv_block.1", 5) == "model.10.conv_block.6"
    assert following("net.3", -1) == "net.2"


@pytest.mark.parametrize(
    "tensors, expected",
    [
        ("2.weight", {"norm": "none"}),
        ("2.weight 2.bias", {"norm": "instance", "norm_affine": "no"}),
        ("2.weight 2.bias 3.weight 3.bias", {"norm": "instance", "norm_affine": "yes"}),
        ("2.weight 2.bias 3.weight 3.bias 3.running_var", {"norm": "instance", "norm_affine": "yes"}),  # and statistics
        ("2.weight 3.weight 3.bias 3.running_var", {"norm": "batch"}),
    ],
)
def test_normalization_is_known_by_its_tensors(tensors, expected):
    state = {f"model.{name}": np.zeros(1) for name in tensors.split()}
    assert normalization_settings(state, "model.3") == expected
