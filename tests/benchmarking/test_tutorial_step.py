"""Compare the plain form of the step with the step of the package."""

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.benchmarking import tutorial_step
from cyclegan.config import Config
from cyclegan.networks import instance_normalization
from cyclegan.networks.convolution import Convolution
from cyclegan.networks.transposed_convolution import TransposedConvolution
from cyclegan.training.gan import GAN
from cyclegan.training.step import compile_train_step


@pytest.fixture
def eager():
    """Run functions as Python, because compiling one step takes longer than a few eager ones."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def check_layers(plain):
    """Check that the convolutions are those of Keras."""
    networks = plain.networks.generators["G"], plain.networks.discriminators["D_X"]
    kinds = {type(layer) for network in networks for layer in network.layers}
    assert {tf.keras.layers.Conv2D, tf.keras.layers.Conv2DTranspose} <= kinds
    assert not {Convolution, TransposedConvolution} & kinds


def test_losses_of_a_first_step_by_hand(strategies, eager):
    """Train networks whose weights are all 0 on white images: only the biases of their last layers learn."""
    config = Config.from_settings(filters=1, residual_blocks=0, discriminator_layers=1, image_size=16)
    plain, function = tutorial_step.make(strategies[1], 2, config)
    check_layers(plain)
    for network in (*plain.networks.generators.values(), *plain.networks.discriminators.values()):
        network.set_weights([np.zeros_like(weight) for weight in network.get_weights()])
    white = tf.fill([1, 2, 16, 16, 3], tf.constant(255, tf.uint8))
    before, after = (float(function((white, white, tf.ones([1, 2])))) for _ in range(2))
    # Outputs and logits are 0, and images are 1: each generator has the losses 1, 10 (cycle) and 5 (identity).
    assert before == pytest.approx(2 * (1 + 10 + 5) + 2 * (0.5 * 1 + 0.5 * 0), abs=1e-5)
    b = 2e-4  # Adam moves each bias by the learning rate, in the direction that helps its own network
    assert after == pytest.approx(2 * ((b - 1) ** 2 + 15 * (1 - b)) + ((b - 1) ** 2 + b**2), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("form", [{}, {"variant": "paper", "discriminator_layers": 1}], ids=str)
def test_plain_form_has_the_losses_of_the_package(form, strategies, make_images, monkeypatch):
    """Compare with the package's step: the same losses with Keras's own convolutions, one input at a time."""
    monkeypatch.setattr(instance_normalization, "LARGE_SAMPLE", 1)  # as for large images
    inputs = (tf.constant(make_images(2, 16, 1))[None], tf.constant(make_images(2, 16, 2))[None], tf.ones([1, 2]))
    form = {"filters": 2, "residual_blocks": 0, "image_size": 16, **form}
    plain, function = tutorial_step.make(strategies[1], 2, Config.from_settings(**form))
    check_layers(plain)
    with strategies[1].scope():
        package = GAN(2, Config.from_settings(pool_size=0, **form))
    step = compile_train_step(strategies[1], package)
    metrics = step(inputs, {}, 1)[2]
    totals = ("loss_G/total", "loss_F/total", "loss_X/loss", "loss_Y/loss")
    losses = [float(function(inputs)) for _ in range(3)]
    assert losses[0] == pytest.approx(sum(float(metrics[name][0]) for name in totals), rel=1e-5)
    assert losses[2] < losses[1] < losses[0]
    operations = function.get_concrete_function(inputs).graph.get_operations()
    convolutions = [node for node in operations if node.type == "Conv2D"]
    assert not [node for node in operations if node.type == "FusedBatchNormV3"]
    assert convolutions and all(node.inputs[0].shape[0] in (2, None) for node in convolutions)  # no joined batches
