"""Conversion of colors and opacity."""

import numpy as np
import pytest

from cyclegan.images import reader
from cyclegan.images.image import convert_bands
from tests.images.samples import deep_png, deep_values, tiff_of


def test_rgb_and_gray_of_16_bits():
    values = deep_values(3)
    for content in (deep_png(values), tiff_of(values)):
        gray = reader.decode(content, 1, np.uint16)
        np.testing.assert_allclose(gray[..., 0], values @ [0.299, 0.587, 0.114], atol=0.6)
    for content in (deep_png(deep_values(1)), tiff_of(deep_values(1))):
        np.testing.assert_array_equal(reader.decode(content, 3, np.uint16), np.repeat(deep_values(1), 3, axis=2))
    for channels in (2, 4):
        with pytest.raises(ValueError, match=f"bands: 3; expected {channels}"):
            reader.decode(deep_png(values), channels)


@pytest.mark.parametrize("kind", ["png", "unassalpha", "assocalpha"])
@pytest.mark.parametrize("bands", [2, 4])
def test_opacity_of_16_bits_blends_with_white(kind, bands):
    values = deep_values(bands)
    values[..., -1] = np.where(np.arange(10) < 5, 65535, 13107)  # opaque, and a fifth
    stored = values.copy()
    if kind == "assocalpha":
        stored[:, 5:, :-1] = np.rint(0.2 * values[:, 5:, :-1])
    content = deep_png(values) if kind == "png" else tiff_of(stored, extrasamples=[kind])
    image = reader.decode_whole(content, bands - 1)
    np.testing.assert_array_equal(image.pixels[:, :5], values[:, :5, :-1])
    atol = 1.01 if kind == "assocalpha" else 0.51  # the stored values were rounded, too
    np.testing.assert_allclose(image.pixels[:, 5:], 0.2 * values[:, 5:, :-1] + 0.8 * 65535, atol=atol)
    np.testing.assert_array_equal(image.opacity, values[..., -1:])
    np.testing.assert_array_equal(reader.decode(content, bands, np.uint16), stored)


@pytest.mark.parametrize("bands", [2, 4])
def test_premultiplied_colors_blend_with_white(bands):
    stored = np.full((6, 6, bands), 40, np.uint8)
    stored[..., -1] = 51  # a fifth
    stored[0, 0, 0] = 90  # more than the opacity allows: white
    image = reader.decode(tiff_of(stored, extrasamples=["assocalpha"]), bands - 1)
    assert image[1:].min() == image[1:].max() == 40 + 204 and image[0, 0, 0] == 255


def test_convert_bands_by_hand():
    faint_red = np.uint8([[[255, 0, 0, 51]]])  # a fifth of red on white
    pixels, opacity = convert_bands(faint_red, 3, has_opacity=True)
    assert pixels.tolist() == [[[255, 204, 204]]] and opacity.tolist() == [[[51]]]
    gray, _ = convert_bands(faint_red, 1, has_opacity=True)
    assert gray.tolist() == [[[219]]]  # 0.299 * 255 + 0.701 * 204
    assert convert_bands(faint_red, 4, has_opacity=True)[0] is faint_red
