import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.methods.cut import CUTObjective
from cyclegan.training.gan import GAN
from tests.training.helpers import TINY


@pytest.mark.parametrize("identity, passes", [(5.0, 3), (0.0, 2)])
@pytest.mark.parametrize("pool_size, back", [(0, 1), (50, 2)])
def test_flops_by_hand(monkeypatch, identity, passes, pool_size, back):
    """Count with networks of 1000 and of 10 MACs: three products for each pass, one or two for the gradients of the fakes."""
    gan = GAN(1, Config.from_settings(lambda_identity=identity, pool_size=pool_size, **TINY))
    work = {
        **dict.fromkeys(gan.networks.generators.values(), 1000),
        **dict.fromkeys(gan.networks.discriminators.values(), 10),
    }
    monkeypatch.setattr(
        "cyclegan.networks.features.count_macs", lambda network, height, width: work[network] * height * width
    )
    assert gan.flops(4, 5) == 2 * 20 * (2 * passes * 3 * 1000 + 2 * (2 * 3 + back) * 10)


def test_a_loss_without_a_name_is_an_error():
    """It would be trained, and neither logged nor part of a total."""

    class Forgetful(CUTObjective):
        loss_names = tuple(name for name in CUTObjective.loss_names if name != "loss_G/nce")

    objective = Forgetful(Config.from_settings(objective="cut").objective, 1)
    parts = {name: tf.constant(1.0) for name in CUTObjective.loss_names if name != "loss_G/total"}
    with pytest.raises(ValueError, match=r"losses \['loss_G/nce'\] of Forgetful: expected them in loss_names"):
        objective.collect(parts, tf.ones([1]))
