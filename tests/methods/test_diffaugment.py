import numpy as np
import pytest
import tensorflow as tf

from cyclegan.methods.diffaugment import RANDOM_NUMBERS, diffaugment

HALF = 0.5 * np.ones(RANDOM_NUMBERS, np.float32)


def changed(images, parts, *random):
    return diffaugment(tf.constant(images), parts, tf.constant(np.array(random, np.float32))).numpy()


def numbers(**columns):
    names = ("brightness", "saturation", "contrast", "down", "right", "hole_down", "hole_right")
    random = HALF.copy()
    for name, value in columns.items():
        random[names.index(name)] = value
    return random


@pytest.fixture
def images():
    return np.random.default_rng(0).uniform(-1, 1, (2, 16, 24, 3)).astype(np.float32)


def test_colors_by_hand(images):
    np.testing.assert_allclose(changed(images, ("color",), HALF, HALF), images, atol=1e-6)
    random = numbers(brightness=0.75), numbers(saturation=0.0)
    got = changed(images, ("color",), *random)
    np.testing.assert_allclose(got[0], images[0] + 0.25, atol=1e-6)
    np.testing.assert_allclose(got[1], np.repeat(images[1].mean(axis=2, keepdims=True), 3, axis=2), atol=1e-6)
    got = changed(images, ("color",), numbers(contrast=0.0), numbers(saturation=1.0))
    np.testing.assert_allclose(got[0], images[0].mean() + 0.5 * (images[0] - images[0].mean()), atol=1e-6)
    gray = images[1].mean(axis=2, keepdims=True)
    np.testing.assert_allclose(got[1], gray + 2 * (images[1] - gray), atol=1e-6)


@pytest.mark.parametrize("number, shift", [(0.0, -2), (0.5, 0), (0.999, 2)])
def test_translation_by_hand(images, number, shift):
    """Shift by at most an eighth: 2 of 16 pixels and 3 of 24."""
    got = changed(images, ("translation",), numbers(down=number), HALF)
    expected = np.zeros_like(images[0])
    if shift >= 0:
        expected[shift:] = images[0][: 16 - shift]
    else:
        expected[:shift] = images[0][-shift:]
    np.testing.assert_array_equal(got[0], expected)
    np.testing.assert_array_equal(got[1], images[1])
    got = changed(images, ("translation",), numbers(right=0.999), HALF)
    np.testing.assert_array_equal(got[0][:, 3:], images[0][:, :-3])
    assert not got[0][:, :3].any()


def test_cutout_by_hand(images):
    """Cut out half of each side, 8 of 16 pixels and 12 of 24; the center of the hole is anywhere in the image."""
    got = changed(images, ("cutout",), HALF, numbers(hole_down=0.0, hole_right=0.0))
    expected = images.copy()
    expected[0, 4:12, 6:18] = 0
    expected[1, :4, :6] = 0
    np.testing.assert_array_equal(got, expected)


def test_images_have_their_own_random_numbers(images):
    random = np.random.default_rng(1).random((2, RANDOM_NUMBERS)).astype(np.float32)
    both = changed(images, ("color", "translation", "cutout"), *random)
    alone = [changed(images[i : i + 1], ("color", "translation", "cutout"), random[i])[0] for i in (0, 1)]
    np.testing.assert_allclose(both, alone, atol=1e-6)
    np.testing.assert_array_equal(changed(images, (), *random), images)
    one_by_one = changed(changed(changed(images, ("color",), *random), ("translation",), *random), ("cutout",), *random)
    np.testing.assert_allclose(both, one_by_one, atol=1e-6)


@pytest.mark.parametrize("part", ["color", "translation", "cutout"])
def test_gradients_match_finite_differences(images, part):
    random = tf.constant(np.random.default_rng(2).random((2, RANDOM_NUMBERS)), tf.float32)
    weights = tf.constant(np.random.default_rng(3).normal(size=images.shape), tf.float32)
    point, along = tf.constant(images), tf.constant(np.random.default_rng(4).normal(size=images.shape), tf.float32)

    def value(x):
        return tf.reduce_sum(weights * diffaugment(x, (part,), random))

    with tf.GradientTape() as tape:
        tape.watch(point)
        at = value(point)
    slope = tf.reduce_sum(tape.gradient(at, point) * along)
    assert float(slope) == pytest.approx(float(value(point + 0.5 * along) - value(point - 0.5 * along)), rel=1e-3)
