import pytest

from tests.config.helpers import refusal_of


@pytest.mark.parametrize(
    "flags, text",
    [
        (
            "--generator resnet",
            "--generator resnet: expected auto, resnet_9blocks (or another number), unet_256, unet_128",
        ),
        ("--generator unet_512", "--generator unet_512: expected auto"),
        (
            "--generator resnet_6blocks --residual_blocks 9",
            "--residual_blocks 9: expected 6, as --generator resnet_6blocks has: drop one of the flags",
        ),
        ("--generator unet_256 --residual_blocks 9", "--residual_blocks 9: --generator unet_256 has none"),
        ("--dropout 1", "--dropout 1.0: expected at least 0 and less than 1"),
        ("--discriminator_layers 0", "--discriminator_layers 0: expected at least 1"),
        ("--filters 2000", "--filters 2000: expected fewer: generators would have more than 10,000,000,000 weights"),
        ("--filters 1000000000", "--filters 1000000000: expected fewer"),
        ("--filters 900 --generator unet_256", "--filters 900: expected fewer"),
    ],
)
def test_impossible_values_are_refused(flags, text):
    assert text in refusal_of(flags)
