"""Compare portable copies of generators with the generators, for each option."""

import re

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.export.exporter import make_portable
from tests.export.models import UNET, make_generator


def image(channels=3, size=(32, 32), count=1):
    return np.random.default_rng(1).uniform(-1, 1, (count, *size, channels)).astype(np.float32)


OPTIONS = [
    {},
    {"variant": "paper"},
    {"variant": "paper", "norm_affine": "yes", "upsample": "resize"},
    {"norm": "batch", "dropout": 0.5},
    {"variant": "paper", "antialias": True},
    {"variant": "paper", "norm": "none", "residual_blocks": 0},
    {"norm_affine": "no", "adversarial": "wgan-gp", "residual_blocks": 0},
    {"generator": "unet_128", "image_size": 128, "load_size": 128, "variant": "paper", "dropout": 0.5, **UNET},
    pytest.param(
        {"generator": "unet_256", "image_size": 256, "load_size": 256, "upsample": "resize", **UNET},
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.sampled
@pytest.mark.parametrize("changes", OPTIONS, ids=str)
def test_same_output_in_keras_layers(changes):
    generator = make_generator(1, 2, **changes)
    copy = make_portable(generator)
    side = changes.get("image_size", 32)
    x = image(1, (side, side + side // 8 * 8), 2)
    expected = generator(x, training=False).numpy()
    assert expected.std() > 0.1 and abs(expected).max() > 0.3
    np.testing.assert_allclose(copy(x, training=False).numpy(), expected, atol=2e-5)
    used = set(re.findall(r'"(?:module|registered_name|class_name)": "(\w+)', copy.to_json()))
    assert "Conv2D" in used and not used & {"cyclegan", "tensorflow_addons", "Lambda", "InstanceNormalization"}


@pytest.fixture(scope="module")
def generator():
    return make_generator()


def test_uint8_output_is_rounded_to_the_nearest_level(generator):
    levels = np.random.default_rng(2).integers(0, 256, (2, 32, 40, 3)).astype(np.uint8)
    translated = make_portable(generator, uint8=True)(levels)
    assert translated.dtype == tf.uint8
    exact = (generator(levels / np.float32(127.5) - 1).numpy() + 1) * 127.5
    assert np.abs(translated.numpy() - exact).max() <= 0.501
    assert translated.numpy().min() < 20 and translated.numpy().max() > 235


def test_black_and_white_do_not_wrap_around():
    generator = make_generator(residual_blocks=0)
    last = generator.layers[-2]
    for bias, level in ((100, 255), (-100, 0)):
        last.set_weights([last.get_weights()[0], np.full(3, bias)])
        translated = make_portable(generator, uint8=True)(np.zeros((1, 32, 32, 3), np.uint8))
        assert np.unique(translated) == [level]
