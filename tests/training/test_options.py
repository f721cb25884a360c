"""Each value of each option trains a few steps and changes the result."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from cyclegan.config import Config
from cyclegan.config.command_line import parse_args
from cyclegan.config.config import SECTIONS
from cyclegan.config.fields import field_types
from cyclegan.config.objective import OBJECTIVES
from cyclegan.config.presets import PRESETS
from cyclegan.data import sources
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.training import schedule
from cyclegan.training.gan import GAN
from cyclegan.training.step import train_step, update
from tests.training.helpers import as_trained, eager_step, flat, weights

BASE = {
    **{
        "filters": 2,
        "residual_blocks": 0,
        "discriminator_layers": 2,
        "norm": "none",
        "image_size": 32,
        "precision": "float32",
        "epochs": 1,
        "pool_size": 2,
    },
    **{"lr": 0.01, "output_dir": "unused"},
}
STEPS = 3
WGAN = {"adversarial": "wgan-gp"}
CHOSEN = {
    "generator": [{"generator": f"resnet_{n}blocks", "residual_blocks": None} for n in (6, 9)]
    + [{"generator": f"unet_{n}", "residual_blocks": None, "image_size": n} for n in (128, 256)],
    "residual_blocks": [1, 2],
    "filters": [3],
    "discriminator": [{"discriminator": "pixel", "discriminator_layers": 3}],
    "discriminator_layers": [1, 3, 4],
    "norm": ["instance", "batch"],
    "discriminator_norm": ["spectral"],
    "norm_affine": [
        {"norm": "instance", "norm_affine": "no"},
        {"norm": "instance", "variant": "paper", "norm_affine": "yes"},
    ],
    "dropout": [{"dropout": 0.5, "residual_blocks": 1}],
    "lr": [0.02],
    "lr_discriminator": [0.02],
    "decay_from": [1],
    "beta_1": [0.9],
    "beta_2": [0.9],
    "epsilon": [0.1],
    "objective": [name for name in OBJECTIVES if name != "cyclegan"],
    "lambda_cycle": [0.0, 1.0],
    "lambda_ssim": [1.0],
    "lambda_identity": [0.0, 1.0],
    "lambda_paired": [{"dataset": "folder", "paired_names": True, "lambda_paired": 1.0}],
    "lambda_gp": [{**WGAN, "lambda_gp": 1.0}],
    "r1": [1.0],
    "label_smoothing": [0.1],
    "pool_size": [0, 50],
    "diffaugment": ["color", "translation", "cutout", "color,translation,cutout"],
    "discriminator_steps": [3],
    "generator_steps": [3],
    "ema": [0.999],
    "clip_norm": [1e-3],
    "weight_decay": [0.1],
    "seed": [1],
}
CHANNELS = [
    {"channels_x": 1},
    {"channels_y": 1},
    {"channels_x": 1, "channels_y": 1},
    {"channels_x": 5, "channels_y": 2},
]


def values(field):
    """Return the settings to try for an option, a list of dicts."""
    choices = next(field_types(cls)[field.name] for cls in SECTIONS.values() if field.name in field_types(cls)).choices
    tried = CHOSEN.get(field.name, [value for value in choices if value not in (field.default, "auto")])
    return [value if isinstance(value, dict) else {field.name: value} for value in tried]


FIELDS = [field for name in ("networks", "objective", "optimization") for field in dataclasses.fields(SECTIONS[name])]
NOT_IN_A_STEP = {"epochs", "batch_size", "max_bad_steps"}  # tested with the trainer
TRIED = [*(value for field in FIELDS for value in values(field)), *CHANNELS, {"precision": "bfloat16"}]


def outcome(options):
    """Return the weights after three steps with some options, with the EMA weights if there are any, as a vector."""
    config = Config.from_settings(**{**BASE, **options})
    gan = as_trained(GAN(1, config))
    rng = np.random.default_rng(0)
    images = (
        rng.integers(0, 256, (STEPS, 1, *config.data.image_shape, channels)).astype(np.uint8)
        for channels in (config.data.channels_x, config.data.channels_y)
    )
    is_pair = tf.ones([1]) if config.uses_pairs else None
    rates = tf.constant(schedule.learning_rates(config.optimization, 0.75), tf.float32)
    for step, (x, y) in enumerate(zip(*images)):
        metrics, gradients, carry = train_step(gan, x, y, tf.ones([1]), step, is_pair=is_pair)
        update(gan, gradients, tf.constant(True), carry, step, rates)
    assert np.isfinite([float(value) for value in metrics.values()]).all()
    trained = flat([*weights(gan), *(weight for network in gan.generators_in_use for weight in network.weights)])
    assert np.isfinite(trained).all()
    return trained


@pytest.fixture(scope="module")
def default_outcome():
    return outcome({})


def test_steps_are_reproducible(default_outcome):
    np.testing.assert_array_equal(outcome({}), default_outcome)


@pytest.mark.sampled
@pytest.mark.parametrize("options", TRIED, ids=lambda options: ",".join(f"{k}={v}" for k, v in options.items()))
def test_every_value_makes_a_difference(options, default_outcome):
    got = outcome(options)
    assert got.shape != default_outcome.shape or np.abs(got - default_outcome).max() > 1e-6


def test_every_option_is_tried():
    missing = {field.name for field in FIELDS if not values(field)} - NOT_IN_A_STEP
    assert not missing
    assert set(CHOSEN) <= {field.name for field in FIELDS}


@pytest.mark.sampled
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_train(preset):
    config = parse_args(["--preset", preset, "--filters", "2", "--image_size", "32", "--discriminator_layers", "2"])
    options = {name: value for name, value in config.settings().items() if name not in ("dataset", "preset")}
    outcome({**options, "pool_size": 1})  # finite


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make a dataset with three images of 40 x 36 pixels in each split."""
    folder = tmp_path_factory.mktemp("images")
    for split in sources.SPLITS:
        (folder / split).mkdir()
        for i in range(3):
            image = np.random.default_rng([i, len(split)]).integers(0, 256, (36, 40, 3)).astype(np.uint8)
            Image.fromarray(image).save(folder / split / f"{i}.png")
    return folder


def seen(folder, options):
    """Train up to three steps; return (height, width), the images of an epoch and the weights."""
    config = Config.from_settings(**{**BASE, "dataset": str(folder), "load_size": 36, **options})
    domains = sources.load_domains(config.data, config.networks.multiple)
    pairs = UnpairedDataset(
        domains.train_x.images, domains.train_y.images, 1, domains.size, 0, flip=not config.data.no_flip
    )
    if domains.pairs is not None:
        pairs.set_pairs(domains.pairs, config.data.paired_share)
    gan = GAN(1, config, domains.size)
    for pair in range(min(STEPS, pairs.epoch_size)):
        eager_step(gan, *(part[0] for part in pairs.batches(0, pair, 1)[:3]))
    trained = flat(weights(gan))
    assert np.isfinite(trained).all()
    images = [pairs.image(d, 0, pair).tobytes() for d in (0, 1) for pair in range(pairs.epoch_size)]
    return domains.size, images, trained.tobytes()


IMAGE_OPTIONS = [
    *({"preprocess": way} for way in ("crop", "scale_width", "scale_width_and_crop", "none")),
    *({"no_flip": True}, {"max_dataset_size": 2}, {"load_size": 40}, {"image_width": 36}, {"image_size": 28}),
    *({"channels_x": 1}, {"channels_y": 1}),
    *({"value_range_x": "10:200"}, {"value_range_y": "10:200"}),
    *({"paired_names": True}, {"paired_names": True, "paired_share": 0.5}),
]
SAME_IMAGES = [
    {"cache": "ram"},
    {"cache": "disk"},
    {"cache": "none"},
    {"cache_gb": 0.0},
    {"preprocess": "resize_and_crop"},
]


@pytest.mark.sampled
@pytest.mark.parametrize("options", IMAGE_OPTIONS, ids=str)
def test_every_image_option_makes_a_difference(folder, options):
    got, plain = seen(folder, options), seen(folder, {})
    assert got[:2] != plain[:2] and got[2] != plain[2]


@pytest.mark.sampled
@pytest.mark.parametrize("options", SAME_IMAGES, ids=str)
def test_the_cache_makes_no_difference(folder, options):
    assert seen(folder, options) == seen(folder, {})


def test_every_image_option_is_tried():
    tried = {name for options in (*IMAGE_OPTIONS, *SAME_IMAGES) for name in options}
    image_options = {field.name for field in dataclasses.fields(SECTIONS["data"])}
    assert image_options == tried | {"dataset", "data_dir"}
