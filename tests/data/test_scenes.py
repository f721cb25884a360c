import itertools

import numpy as np
import pytest

from cyclegan.data import scenes, stripes


@pytest.fixture(scope="module")
def some():
    return [scenes.random_scene(np.random.default_rng([9, i])) for i in range(12)]


def labels_of(image):
    """Return the index of the label of each pixel; fail if a color is no label."""
    matches = (image[..., None, :] == np.array(list(scenes.LABEL_COLORS.values()))).all(axis=-1)
    assert (matches.sum(axis=-1) == 1).all()
    return matches.argmax(axis=-1)


def test_label_colors_are_far_apart():
    pairs = itertools.combinations(np.array(list(scenes.LABEL_COLORS.values()), float), 2)
    assert min(np.linalg.norm(first - second) for first, second in pairs) >= 95


@pytest.mark.parametrize("domain", ["labels", "rendering"])
@pytest.mark.parametrize("size", [64, 128])
def test_drawing_is_a_function_of_the_scene(some, domain, size):
    image = scenes.draw(some[0], domain, size)
    assert image.shape == (size, size, 3) and image.dtype == np.uint8
    np.testing.assert_array_equal(image, scenes.draw(some[0], domain, size))
    assert not np.array_equal(image, scenes.draw(some[1], domain, size))


def test_label_maps_have_all_labels_and_no_other_colors(some):
    found = {int(label) for scene in some for label in np.unique(labels_of(scenes.draw(scene, "labels")))}
    assert found == set(range(len(scenes.LABEL_COLORS)))


def test_both_domains_are_aligned(some):
    """Check that each label has colors of its own in the rendering: labels explain more of it than displaced labels."""
    labels = np.concatenate([labels_of(scenes.draw(scene, "labels")).ravel() for scene in some])
    colors = np.concatenate([scenes.draw(scene, "rendering").reshape(-1, 3) for scene in some]).astype(float)
    means = np.stack([colors[labels == label].mean(axis=0) for label in range(labels.max() + 1)])

    def explained(shift):
        return 1 - np.square(colors - means[np.roll(labels, shift)]).mean() / colors.var(axis=0).mean()

    assert explained(0) > 0.67 and explained(0) > explained(3) + 0.1 and explained(0) > explained(64 * 3) + 0.1


def test_mirrored_scenes_are_mirrored_images(some):
    mirrored = [
        scenes.Part(part.label, (1 - part.box[2], part.box[1], 1 - part.box[0], part.box[3]), part.shape)
        for part in some[2]
    ]
    for domain in ("labels", "rendering"):  # so --no_flip is not needed
        image = scenes.draw(some[2], domain).astype(int)
        differ = np.abs(scenes.draw(mirrored, domain)[:, ::-1] - image).max(axis=-1) > 2
        assert differ.mean() < 0.01


def test_both_sizes_show_the_same(some):
    for scene in some[:3]:
        small, large = (scenes.draw(scene, "rendering", size).astype(float) for size in (64, 128))
        assert np.abs(large.reshape(64, 2, 64, 2, 3).mean(axis=(1, 3)) - small).mean() < 6


def test_there_is_more_texture_than_in_stripes(some):
    def roughness(images):
        return np.abs(np.diff(np.stack(images).astype(float), axis=1)).mean()

    animals = [stripes.draw(stripes.random_scene(np.random.default_rng([9, i])), "zebra") for i in range(12)]
    assert roughness([scenes.draw(scene, "rendering") for scene in some]) > 1.5 * roughness(animals)
