"""Drawings of the embedded datasets."""

import itertools

import numpy as np
import pytest

from cyclegan.config.data import ALIGNED, EMBEDDED
from cyclegan.data import scenes, sources, stripes

HORSES = [stripes.random_scene(np.random.default_rng([9, i])) for i in range(8)]
STREETS = [scenes.random_scene(np.random.default_rng([9, i])) for i in range(12)]


def labels_of(image):
    """Return the index of the label of each pixel; fail if a color is no label."""
    matches = (image[..., None, :] == np.array(list(scenes.LABEL_COLORS.values()))).all(axis=-1)
    assert (matches.sum(axis=-1) == 1).all()
    return matches.argmax(axis=-1)


@pytest.mark.parametrize(
    "draw, some, kinds", [(stripes.draw, HORSES, ("horse", "zebra")), (scenes.draw, STREETS, ("labels", "rendering"))]
)
def test_a_larger_drawing_shows_the_same_scene(draw, some, kinds):
    for scene, kind in itertools.product(some[:3], kinds):
        small, large = (draw(scene, kind, size) for size in (64, 128))
        assert small.shape == (64, 64, 3) and small.dtype == np.uint8
        np.testing.assert_array_equal(small, draw(scene, kind))
        shrunk = large.reshape(64, 2, 64, 2, 3).mean(axis=(1, 3))
        assert kind == "zebra" or np.abs(shrunk - small).mean() < 6


def test_horse_and_zebra_differ_in_the_coat_only():
    for scene in HORSES:
        horse, zebra = (stripes.draw(scene, animal).astype(int) for animal in ("horse", "zebra"))
        differ = (horse != zebra).any(axis=-1)
        assert 0.05 < differ.mean() < 0.4
        coat = np.abs(horse - zebra).max(axis=-1) > 40
        red, green, blue = horse[coat].mean(axis=0)
        assert red > green + 20 > blue + 40  # brown
        assert np.median(np.ptp(zebra[coat], axis=-1)) < 10 and zebra[coat].std() > 60  # black and white


def test_label_maps_have_all_labels_and_no_other_colors():
    found = {int(label) for scene in STREETS for label in np.unique(labels_of(scenes.draw(scene, "labels")))}
    assert found == set(range(len(scenes.LABEL_COLORS)))
    pairs = itertools.combinations(np.array(list(scenes.LABEL_COLORS.values()), float), 2)
    assert min(np.linalg.norm(first - second) for first, second in pairs) >= 95


def test_label_maps_and_renderings_are_aligned():
    """Check that each label has colors of its own in the rendering: labels explain more of it than displaced labels."""
    labels = np.concatenate([labels_of(scenes.draw(scene, "labels")).ravel() for scene in STREETS])
    colors = np.concatenate([scenes.draw(scene, "rendering").reshape(-1, 3) for scene in STREETS]).astype(float)
    means = np.stack([colors[labels == label].mean(axis=0) for label in range(labels.max() + 1)])

    def explained(shift):
        return 1 - np.square(colors - means[np.roll(labels, shift)]).mean() / colors.var(axis=0).mean()

    assert explained(0) > 0.67 and explained(0) > explained(3) + 0.1 and explained(0) > explained(64 * 3) + 0.1


def test_held_out_images_show_the_same_and_training_images_if_aligned():
    """Compare the images with their scenes, and the number of images with the documented one."""
    assert set(sources.SEEDS) == {*EMBEDDED}
    for dataset, seeds in sources.SEEDS.items():
        assert seeds["testA"] == seeds["testB"] not in (seeds["trainA"], seeds["trainB"])
        assert (seeds["trainA"] == seeds["trainB"]) == (dataset in ALIGNED)
    horse = stripes.draw(stripes.random_scene(np.random.default_rng([3, 7])), "horse", 32)
    np.testing.assert_array_equal(sources.draw("stripes", "testA", 7, 32), horse)
    rendering = scenes.draw(scenes.random_scene(np.random.default_rng([1, 5])), "rendering", 32)
    np.testing.assert_array_equal(sources.draw("scenes", "trainB", 5, 32), rendering)
