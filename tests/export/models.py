"""Models to export."""

import numpy as np

from cyclegan.config import Config
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
