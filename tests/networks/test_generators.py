import numpy as np
import pytest
import tensorflow as tf

from cyclegan.networks.generators import make_generator
from tests.networks.helpers import PAPER, network_config


@pytest.mark.sampled
@pytest.mark.parametrize(
    "settings, count", [({}, 11_383_427), (PAPER, 11_378_179), ({"generator": "resnet_6blocks", **PAPER}, 7_837_699)]
)
def test_parameter_counts_of_generators(settings, count):
    """Compare with the numbers that the Keras example and the paper report."""
    assert make_generator(network_config(**settings)).count_params() == count


@pytest.mark.sampled
@pytest.mark.parametrize("height, width", [(16, 16), (32, 48), (36, 20)])
@pytest.mark.parametrize("form", [{}, PAPER, {"upsample": "resize"}, {"norm": "none"}, {"norm": "batch"}], ids=str)
def test_output_has_the_size_of_the_input_and_is_in_range(height, width, form):
    generator = make_generator(network_config(filters=4, residual_blocks=1, **form))
    x = np.random.default_rng(0).uniform(-1, 1, (2, height, width, 3)).astype(np.float32)
    y = generator(x).numpy()
    assert y.shape == x.shape and y.dtype == np.float32 and np.abs(y).max() <= 1


def test_kernels_start_with_the_spread_of_the_paper():
    kernels = [
        w.numpy()
        for w in make_generator(network_config(filters=32, residual_blocks=2)).trainable_variables
        if len(w.shape) == 4
    ]
    assert abs(np.concatenate([k.ravel() for k in kernels]).std() - 0.02) < 2e-4


def test_scales_start_around_0_or_1():
    for form, middle in (({}, 0.0), ({"norm": "batch"}, 1.0), ({"norm": "batch", **PAPER}, 1.0)):
        generator = make_generator(network_config(filters=16, residual_blocks=4, **form))
        scales = np.concatenate([v.numpy() for v in generator.trainable_variables if "gamma" in v.name])
        assert scales.mean() == pytest.approx(middle, abs=0.004) and scales.std() == pytest.approx(0.02, rel=0.2)


def test_input_and_output_may_have_one_channel():
    generator = make_generator(network_config(filters=4, residual_blocks=0), 1, 1)
    assert generator(tf.zeros([1, 16, 16, 1])).shape == (1, 16, 16, 1)
