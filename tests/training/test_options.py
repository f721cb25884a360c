"""Each option of the method or the devices has an effect; the tests of `data` show those of the images."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.config.command_line import PRESETS, parse_args
from cyclegan.distribution import hardware
from cyclegan.training import schedule, setup
from cyclegan.training.step import GAN, Batch, train_step, update
from tests.training.helpers import as_trained, flat, weights

STEPS = 3
BASE = {
    **{"filters": 2, "residual_blocks": 0, "discriminator_layers": 2, "norm": "none", "image_size": 32, "epochs": 1},
    **{"precision": "float32", "pool_size": 2, "lr": 0.01, "output_dir": "unused"},
}
OPTIONS = [
    *({"residual_blocks": None, "generator": "resnet_6blocks"}, {"residual_blocks": 1}, {"filters": 3}, {"seed": 1}),
    *({"residual_blocks": None, "generator": f"unet_{side}", "image_size": side} for side in (128, 256)),
    *({"discriminator_layers": None, "discriminator": "pixel"}, {"discriminator_layers": 3}),
    *({"norm": norm} for norm in ("instance", "batch")),
    *({"discriminator_norm": "spectral"}, {"variant": "paper"}, {"upsample": "resize"}, {"antialias": True}),
    *({"init": init} for init in ("xavier", "kaiming", "orthogonal")),
    *({"lr": 0.02}, {"lr_discriminator": 0.02}, {"lr_schedule": "cosine"}, {"lr_schedule": "constant"}),
    *({"decay_from": 1}, {"beta_1": 0.9}, {"beta_2": 0.9}, {"epsilon": 0.1}, {"ema": 0.999}),
    *({"discriminator_steps": 3}, {"generator_steps": 3}, {"clip_norm": 1e-3}, {"weight_decay": 0.1}),
    *({"objective": name} for name in ("cut", "fastcut", "dclgan")),
    *({"lambda_cycle": 1.0}, {"lambda_ssim": 1.0}),
    *({"lambda_identity": 0.0}, {"pool_size": 0}, {"r1": 1.0}, {"label_smoothing": 0.1}, {"precision": "bfloat16"}),
    {"dataset": "folder", "paired_names": True, "lambda_paired": 1.0},
    *({"adversarial": name} for name in ("bce", "hinge", "wgan-gp")),
    *({"diffaugment": part} for part in ("color", "translation", "cutout")),
    *({"channels_x": 1}, {"channels_y": 1}, {"channels_x": 5, "channels_y": 2}),
]
# Options with others that they need.
WITH_OTHERS = [
    ({"norm_affine": "no"}, {"norm": "instance"}),
    ({"norm_affine": "yes"}, {"norm": "instance", "variant": "paper"}),
    ({"dropout": 0.5}, {"residual_blocks": 1}),
    ({"lambda_gp": 1.0}, {"adversarial": "wgan-gp"}),
    *((option, {"objective": "cut"}) for option in ({"lambda_nce": 2.0}, {"lambda_src": 1.0}, {"nce": "hdce"})),
    ({"lambda_nce": 1.0}, {"objective": "dclgan"}),
    ({"lambda_paired": 1.0}, {"dataset": "folder", "paired_names": True, "objective": "cut"}),
]


@functools.lru_cache(maxsize=4)
def _outcome(options):
    config = Config.from_settings(**{**BASE, **dict(options)})
    gan, rng = as_trained(GAN(1, config)), np.random.default_rng(0)
    images = (
        rng.integers(0, 256, (STEPS, 1, *config.data.image_shape, channels)).astype(np.uint8)
        for channels in (config.data.channels_x, config.data.channels_y)
    )
    is_pair = tf.ones([1]) if config.uses_pairs else None
    rates = tf.constant(schedule.learning_rates(config.optimization, 0.75), tf.float32)
    for step, (x, y) in enumerate(zip(*images)):
        metrics, gradients, carry = train_step(gan, Batch(x, y, tf.ones([1]), is_pair=is_pair), step)
        update(gan, gradients, tf.constant(True), carry, step, rates)
    assert np.isfinite([float(value) for value in metrics.values()]).all()
    trained = flat(
        [*weights(gan), *(weight for network in gan.networks.in_use.generators.values() for weight in network.weights)]
    )
    assert np.isfinite(trained).all()
    return trained


def outcome(options):
    """Return the weights after three steps with some options, with the EMA weights if there are any, as a vector."""
    return _outcome(tuple(options.items()))


@pytest.mark.sampled
@pytest.mark.parametrize("option, others", [*((option, {}) for option in OPTIONS), *WITH_OTHERS], ids=str)
def test_an_option_changes_the_weights(option, others):
    plain, got = outcome(others), outcome({**others, **option})
    assert got.shape != plain.shape or np.abs(got - plain).max() > 1e-6


@pytest.mark.sampled
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_train(preset):
    config = parse_args(["--preset", preset, "--filters", "2", "--image_size", "32", "--discriminator_layers", "2"])
    options = {name: value for name, value in config.settings().items() if name not in ("dataset", "preset")}
    outcome({**options, "pool_size": 1})  # finite


@pytest.mark.parametrize("name, value", [("tf32", "off"), ("deterministic", True)])
def test_an_option_of_the_arithmetic_reaches_tensorflow(monkeypatch, name, value):
    monkeypatch.setenv("TF_DISABLE_SCATTER_OP_DETERMINISM", "1")
    calls = []

    def enable(setting):
        return lambda *arguments: calls.append((setting, *arguments))

    for setting in ("enable_tensor_float_32_execution", "enable_op_determinism"):
        monkeypatch.setattr(tf.config.experimental, setting, enable(setting))
    monkeypatch.setattr(hardware, "measure_peak", lambda precision: calls.append("measured") or {}["the end"])
    for flag in ({}, {name: value}):
        with pytest.raises(KeyError):
            setup.make_trainer(Config.from_settings(precision="float32", **flag), None, None, None)
    plain, changed = calls[: calls.index("measured")], calls[calls.index("measured") + 1 : -1]
    assert plain != changed and calls[-1] == "measured"
