import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.methods import OBJECTIVES
from cyclegan.methods.cut import CUTObjective
from cyclegan.training.step import GAN, Batch, train_step
from tests.training.helpers import TINIER, TINY


@pytest.mark.parametrize(
    "settings, products",
    [
        ({"pool_size": 0}, 2 * 3 * 3 * 1000 + 2 * (2 * 3 + 1) * 10),
        ({"lambda_identity": 0.0}, 2 * 2 * 3 * 1000 + 2 * (2 * 3 + 2) * 10),  # a pool adds a forward pass
        ({"objective": "cut"}, 2 * 3 * 1000 + 2 * 3 * 400 + (2 * 3 + 1) * 10),
        ({"objective": "fastcut"}, 3 * 1000 + (3 + 1) * 400 + (2 * 3 + 1) * 10),
        ({"objective": "dclgan"}, 2 * (2 * 3 * 1000 + 3 * 400) + 2 * (2 * 3 + 1) * 10),
    ],
)
def test_flops_by_hand(monkeypatch, settings, products):
    """Count with a generator of 1000 MACs, of which the encoder has 400, and a discriminator of 10."""
    gan = GAN(1, Config.from_settings(**{**TINY, **settings}))
    work = {
        **dict.fromkeys(gan.networks.generators.values(), 1000),
        **dict.fromkeys(gan.networks.discriminators.values(), 10),
    }
    count = lambda network, height, width, last=None: 400 if last else work[network]  # noqa: E731
    monkeypatch.setattr("cyclegan.networks.features.count_macs", count)
    assert gan.objective.flops(gan.networks, 4, 5) == 2 * products


def test_a_loss_without_a_name_is_an_error(monkeypatch, make_images):
    """It would be trained, and neither logged nor part of a total."""

    class Forgetful(CUTObjective):
        parts = ("nce_identity",)

    monkeypatch.setitem(OBJECTIVES, "cut", Forgetful)
    gan = GAN(1, Config.from_settings(**{**TINIER, "objective": "cut"}))
    with pytest.raises(
        ValueError, match=r"losses \['loss_G/nce'\] of Forgetful: expected only losses named in its `parts`"
    ):
        train_step(gan, Batch(make_images(1, 16, seed=1), make_images(1, 16, seed=2), tf.ones([1])))


def test_each_total_is_the_sum_of_all_trained_losses(make_images):
    """Take all optional losses; the last sample is padding."""
    options = {"dataset": "folder", "paired_names": True, "lambda_paired": 5.0, "lambda_ssim": 2.0}
    options.update({"adversarial": "wgan-gp", "r1": 0.5, "weight_decay": 0.1})
    gan = GAN(2, Config.from_settings(**{**TINIER, **options}))
    images = make_images(2, 16, seed=1), make_images(2, 16, seed=2)
    metrics, _, _ = train_step(gan, Batch(*images, tf.constant([1.0, 0.0]), is_pair=tf.ones([2])))
    of_generators = ("loss", "cycle", "ssim", "identity", "paired", "weight_decay")
    parts = {**dict.fromkeys("GF", of_generators), **dict.fromkeys("XY", ("loss", "penalty", "weight_decay"))}
    assert set(gan.metric_names["train"]) == {f"loss_{n}/{part}" for n in parts for part in (*parts[n], "total")}
    for network, names in parts.items():
        values = {name: float(metrics[f"loss_{network}/{name}"]) for name in names}
        assert all(values.values())
        assert float(metrics[f"loss_{network}/total"]) == pytest.approx(sum(values.values()), rel=1e-5)
    assert not any("total" in name for name in gan.metric_names["test"] if name.startswith(("loss_X", "loss_Y")))


def test_the_weight_decay_of_a_generator_includes_its_heads(make_images):
    gan = GAN(1, Config.from_settings(**{**TINIER, "objective": "cut", "weight_decay": 0.5}))
    metrics, _, _ = train_step(gan, Batch(make_images(1, 16, seed=1), make_images(1, 16, seed=2), tf.ones([1])))
    trained = [each.numpy() for each in gan.networks.generator_variables if len(each.shape) > 1]
    assert float(metrics["loss_G/weight_decay"]) == pytest.approx(0.25 * sum((w**2).sum() for w in trained), rel=1e-4)
