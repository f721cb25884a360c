"""Compare the plain form of the step with the step of the package."""

import pytest
import tensorflow as tf

from cyclegan.benchmarking import tutorial_step
from cyclegan.config import Config
from cyclegan.networks import instance_normalization
from cyclegan.networks.convolution import Convolution
from cyclegan.networks.transposed_convolution import TransposedConvolution
from cyclegan.training.compiled_steps import compile_train_step
from cyclegan.training.gan import GAN


@pytest.mark.slow
@pytest.mark.parametrize("form", [{}, {"variant": "paper", "discriminator_layers": 1}], ids=str)
def test_plain_form_has_the_losses_of_the_package(form, strategies, make_images, monkeypatch):
    """Compare with the package's step: the same losses with Keras's own convolutions, one input at a time."""
    monkeypatch.setattr(instance_normalization, "LARGE_SAMPLE", 1)  # as for large images
    inputs = (tf.constant(make_images(2, 16, 1))[None], tf.constant(make_images(2, 16, 2))[None], tf.ones([1, 2]))
    form = {"filters": 2, "residual_blocks": 0, "image_size": 16, **form}
    plain, function = tutorial_step.make(strategies[1], 2, Config.from_settings(**form))
    networks = plain.networks.generators["G"], plain.networks.discriminators["D_X"]
    kinds = {type(layer) for network in networks for layer in network.layers}
    assert {tf.keras.layers.Conv2D, tf.keras.layers.Conv2DTranspose} <= kinds
    assert not {Convolution, TransposedConvolution} & kinds
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
