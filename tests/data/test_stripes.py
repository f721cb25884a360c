"""Drawings of the embedded dataset."""

import numpy as np
import pytest

from cyclegan.data import stripes


def scenes(count):
    return [stripes.random_scene(np.random.default_rng([9, i])) for i in range(count)]


@pytest.mark.parametrize("size", [32, 64, 96])
def test_drawing_is_deterministic_at_any_size(size):
    (one,) = scenes(1)
    image = stripes.draw(one, "zebra", size)
    assert image.shape == (size, size, 3) and image.dtype == np.uint8
    np.testing.assert_array_equal(image, stripes.draw(one, "zebra", size))


def test_a_larger_drawing_shows_the_same_scene():
    for one in scenes(4):
        small, large = stripes.draw(one, "horse", 64), stripes.draw(one, "horse", 128)
        shrunk = large.reshape(64, 2, 64, 2, 3).mean(axis=(1, 3))
        assert np.abs(shrunk - small).mean() < 6


def test_horse_and_zebra_differ_in_the_coat_only():
    for one in scenes(8):
        horse, zebra = stripes.draw(one, "horse"), stripes.draw(one, "zebra")
        coat = (horse != zebra).any(axis=-1)
        assert 0.05 < coat.mean() < 0.4
        rows, columns = np.where(coat)
        x, y = one.center[0] * 64, one.center[1] * 64
        assert abs(np.median(columns) - x) < 14 and abs(np.median(rows) - y) < 14


def test_horses_are_brown_and_zebras_black_and_white():
    for one in scenes(8):
        horse, zebra = (stripes.draw(one, animal).astype(int) for animal in ("horse", "zebra"))
        coat = np.abs(horse - zebra).max(axis=-1) > 40
        red, green, blue = horse[coat].mean(axis=0)
        assert red > green + 20 > blue + 40
        colour = zebra[coat].max(axis=-1) - zebra[coat].min(axis=-1)
        assert np.median(colour) < 10 and zebra[coat].std() > 60


def test_scenes_vary():
    many = scenes(60)
    for field in ("size", "tilt", "shading", "horizon", "neck_angle", "stripe_phase"):
        assert len({getattr(one, field) for one in many}) == 60
    assert {one.facing for one in many} == {-1, 1}
