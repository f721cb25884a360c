"""Sizes, colors and opacity of decoded images."""

import numpy as np
import pytest

from cyclegan.images import image, reader
from cyclegan.images.image import Bands, check_size, convert, row_blocks
from tests.images.samples import deep_png, deep_values, swapped_profile, tiff_of


@pytest.mark.parametrize(
    "size, text",
    [
        ((18_000, 10_001), "18000 x 10001 pixels: expected at most 180 million"),
        ((0, 8), "0 x 8 pixels: expected at least 1"),
        ((9, 8, 2_010_000_000), "9 x 8 pixels, which take 2.01 GB of memory to decode: expected at most 2 GB"),
    ],
)
def test_other_sizes_are_refused(size, text):
    check_size(18_000, 10_000, 2_000_000_000)
    with pytest.raises(ValueError, match=text):
        check_size(*size)


def test_row_blocks_cover_all_rows_once():
    for shape in ((10, 100_000, 3), (1, 1), (7, 600_000), (4, 0), (0, 5)):
        rows = [row for block in row_blocks(shape) for row in range(shape[0])[block]]
        assert rows == list(range(shape[0]))
    assert [block.stop for block in row_blocks((10, 100_000))] == [5, 10]


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
    image = reader.decode_values(content, bands - 1)
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


def test_conversion_by_hand():
    faint_red = Bands(np.uint8([[[255, 0, 0, 51]]]), has_opacity=True)  # a fifth of red on white
    image = convert(faint_red, 3)
    assert image.pixels.tolist() == [[[255, 204, 204]]] and image.opacity.tolist() == [[[51]]]
    assert convert(faint_red, 1).pixels.tolist() == [[[219]]]  # 0.299 * 255 + 0.701 * 204
    assert convert(faint_red, 4).pixels.tolist() == faint_red.values.tolist()


def test_premultiplied_colors_are_divided_before_their_profile_is_applied():
    """The profile exchanges red and green."""
    stored = np.full((4, 4, 4), [102, 51, 0, 102], np.uint8)  # full red, half green, with the opacity 0.4
    content = tiff_of(stored, extrasamples=["assocalpha"], iccprofile=swapped_profile())
    expected = 0.4 * np.array([128, 255, 0]) + 0.6 * 255
    assert np.abs(reader.decode(content).astype(int) - expected).max() <= 3


def test_16_bits_with_another_profile_are_reported_once(caplog):
    content = tiff_of(deep_values(3), iccprofile=swapped_profile())
    image._report_kept.cache_clear()
    with caplog.at_level("INFO"):
        for _ in range(2):
            assert (reader.decode(content, 3, np.uint16) == deep_values(3)).all()
    assert len(caplog.records) == 1
    assert caplog.messages[0].startswith("Images of 16 bits keep the colors of their profile (sRGB")
