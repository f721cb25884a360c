import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.methods import OBJECTIVES, losses
from cyclegan.methods.adversarial import DiscriminatorInput
from cyclegan.methods.cut import CUTSettings
from cyclegan.methods.metric_names import GRADIENTS, SAMPLES
from cyclegan.methods.objective import Generated, Objective
from cyclegan.run.summaries import SummaryWriter
from cyclegan.training import step as step_module
from cyclegan.training.callbacks import load_samples, translate_samples, write_samples
from cyclegan.training.gan import GAN
from tests.training.helpers import FEW_LAYERS, TINY, eager_step, state_values


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


class OneWay(Objective):
    """Objective of a generator G: X -> Y that keeps the images of Y, and its discriminator."""

    Settings = CUTSettings
    loss_names = ("loss_G/loss", "loss_G/identity", "loss_G/total", "loss_Y/loss")
    test_names = ()
    generator_passes = 2

    def generate(self, networks, x, y, weight, noise):
        """Return the fakes and the identity loss."""
        fake_y, same_y = networks.apply_to_two(networks["G"], x, y, True)
        return Generated((y,), (fake_y,), {"loss_G/identity": self.mean(weight, losses.mae(y, same_y))})

    def test(self, networks, x, y, weight):
        """Return the losses."""
        images = DiscriminatorInput((y,), (networks["G"](x),))
        of_generator, of_discriminator = self.adversarial.compute_losses(networks, images, weight)
        identity = {"loss_G/identity": self.mean(weight, losses.mae(y, networks["G"](y)))}
        return self.collect({**of_generator, **identity, **of_discriminator}, weight)

    def translate_samples(self, networks, x, y):
        """Return G(x)."""
        return (networks["G"](x),), ()


def test_objective_of_one_generator(make_images, monkeypatch, tmp_path):
    """Train with other networks and other losses than the CycleGAN's."""
    monkeypatch.setitem(OBJECTIVES, "cut", OneWay)
    options = {"objective": "cut"}
    options |= {"pool_size": 2, "adversarial": "wgan-gp", "diffaugment": "color", "ema": 0.5}
    gan = GAN(2, Config.from_settings(**{**TINY, **FEW_LAYERS, **options}))
    own = {"G", "D_Y", "G_ema", "pool_y", "generator_optimizer", "discriminator_optimizer", "loss_scale"}
    assert set(gan.state()) == own and len(gan.generators_in_use) == 1 and gan.flops(32, 32) > 0
    x, y = make_images(2, seed=1), make_images(2, seed=2)
    before = state_values(gan)
    metrics = eager_step(gan, x, y)
    assert set(metrics) == {*gan.metric_names["train"], SAMPLES, *GRADIENTS}
    assert gan.metric_names["train"] == (*OneWay.loss_names, "loss_Y/penalty")
    assert metrics["loss_G/total"] == pytest.approx(metrics["loss_G/loss"] + metrics["loss_G/identity"])
    assert not any(np.array_equal(old, new) for old, new in zip(before, state_values(gan)) if old.ndim == 4)
    assert set(step_module.test_step(gan, x, y, tf.ones([2]))) == {*OneWay.loss_names, SAMPLES}
    dataset = UnpairedDataset(x, y, 2, (32, 32))
    write_samples(translate_samples(gan, *load_samples(dataset)), dataset, SummaryWriter(tmp_path), 1)
    assert all((tmp_path / "samples" / each).exists() for each in ("epoch_001.png", "epoch_001/fake_y_2.png"))


def test_a_loss_without_a_name_is_an_error():
    """It would be trained, and neither logged nor part of a total."""

    class Forgetful(OneWay):
        loss_names = tuple(name for name in OneWay.loss_names if name != "loss_G/identity")

    objective = Forgetful(Config.from_settings(objective="cut").objective, 1)
    parts = {name: tf.constant(1.0) for name in OneWay.loss_names if name != "loss_G/total"}
    with pytest.raises(ValueError, match=r"losses \['loss_G/identity'\] of Forgetful: expected them in loss_names"):
        objective.collect(parts, tf.ones([1]))
