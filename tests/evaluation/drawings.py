"""Drawn images for the tests of the scores."""

import numpy as np

from cyclegan.data import stripes


def draw(animal, count, size=16, seed=7):
    """Return drawings of an animal, uint8 [count, size, size, 3]; the same seed gives the same scenes."""
    scenes = (stripes.random_scene(np.random.default_rng([seed, i])) for i in range(count))
    return np.stack([stripes.draw(scene, animal, size) for scene in scenes])
