"""Models to export."""

import numpy as np
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.export.formats import INPUT
from cyclegan.networks import generators

TINY = {"image_size": 32, "load_size": 32, "filters": 4, "residual_blocks": 1, "precision": "float32"}
UNET = {"residual_blocks": None, "filters": 2}


def make_generator(inputs=3, outputs=3, **changes):
    """Return a generator in which every weight changes the output, which is spread over [-1, 1]."""
    generator = generators.make_generator(Config.from_settings(**{**TINY, **changes}).networks, inputs, outputs)
    rng = np.random.default_rng(0)
    for layer in generator.layers:
        weights = layer.get_weights()
        if weights and len(weights[0].shape) == 4:
            weights[0] = rng.normal(0, np.prod(weights[0].shape[:3]) ** -0.5, weights[0].shape)
        elif len(weights) == 4:
            weights[3] = rng.uniform(0.5, 2, weights[3].shape)  # a variance
        for place in {0, 1, 2} & set(range(len(weights))):
            if len(weights[place].shape) == 1:
                weights[place] = rng.uniform(0.5, 1.5, weights[place].shape) - place / 2
        layer.set_weights(weights)
    return generator


def weighted_sum():
    """Return a model [N, H, W, 3] -> [N, H, W, 1] that computes x0 + 2 x1 - 3 x2 + 0.5, and dropout for training."""
    image = tf.keras.Input((None, None, 3), name=INPUT)
    convolution = tf.keras.layers.Conv2D(1, 1)
    model = tf.keras.Model(image, tf.keras.layers.Dropout(0.9)(convolution(image)))
    convolution.set_weights([np.float32([1, 2, -3]).reshape(1, 1, 3, 1), np.float32([0.5])])
    return model


PICTURES = np.float32([[[[1, 0, 0], [0, 1, 0]]], [[[0, 0, 1], [0.5, 0.25, -1]]]])  # [2, 1, 2, 3]
SUMS = np.float32([[[[1.5], [2.5]]], [[[-2.5], [4.5]]]])  # by hand
