"""Reading of TIFF files with tifffile."""

import io
import struct

import numpy as np
import pytest
import tifffile
from PIL import Image

from cyclegan.images import reader, tiff_format
from tests.images.samples import TIFFS, deep_values, tiff, tiff_of


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("kind", [*TIFFS, "in planes"])
def test_five_bands(kind, dtype):
    values = deep_values(5).astype(dtype)
    if kind == "in planes":
        file = io.BytesIO()
        tifffile.imwrite(file, np.moveaxis(values, 2, 0), photometric="minisblack", planarconfig="separate")
        content = file.getvalue()
    else:
        content = tiff_of(values, **TIFFS[kind])
    assert reader.check(content, 5)[:4] == (len(content), 12, 10, dtype == np.uint16)
    np.testing.assert_array_equal(reader.decode(content, 5, dtype), values)
    with pytest.raises(ValueError, match="bands: 5; expected 4 .--channels_x, --channels_y of training"):
        reader.check(content, 4)
    for channels in (1, 3):
        for function in (reader.check, reader.decode):
            with pytest.raises(ValueError, match="bands: 5; expected gray or RGB pixels, or other channels .--channels_x"):
                function(content, channels)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_white_is_the_highest_level(dtype):
    """TIFF may store white as 0, as scanners do."""
    values, highest = deep_values(1).astype(dtype), np.iinfo(dtype).max
    np.testing.assert_array_equal(
        reader.decode(tiff_of(values, photometric="miniswhite"), 1, dtype)[..., 0], (highest - values)[..., 0]
    )


@pytest.mark.parametrize("name", ["as it is", "packed", "in tiles", "in strips"])
def test_check_finds_truncated_tiff(name):
    whole = tiff_of(deep_values(5, 40, 40), **TIFFS[name])
    reader.check(whole, 5)
    with pytest.raises(ValueError, match="truncated, it has fewer pixels than its header promises"):
        reader.check(whole[:-300], 5)


def test_check_finds_strips_with_too_few_bytes():
    counts = [struct.pack("<HHII", 279, 4, 1, count) for count in (640, 64)]
    for function in (reader.check, reader.decode):
        with pytest.raises(ValueError, match="truncated"):
            function(tiff(8, 80).replace(*counts), 1)


@pytest.mark.parametrize("compression", ["jpeg", "tiff_lzw", "tiff_adobe_deflate", "packbits", "group4", None])
def test_check_finds_every_truncated_tiff_of_pillow(compression):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8))
    file = io.BytesIO()
    (noise.convert("1") if compression == "group4" else noise).save(file, "tiff", compression=compression)
    whole = file.getvalue()
    reader.check(whole)
    refused = 0
    for length in (*range(len(whole) - 200, len(whole), 7), len(whole) // 2):
        try:
            reader.decode(whole[:length])
        except Exception:
            refused += 1
            with pytest.raises(Exception):  # noqa: B017  the libraries raise almost anything
                reader.check(whole[:length])
    assert refused


@pytest.mark.parametrize(
    "options, text",
    [
        ({"compression": "lzma"}, "compression LZMA and colors MINISBLACK: expected one of NONE, LZW"),
        ({"photometric": "linear_raw"}, "compression NONE and colors LINEAR_RAW: expected one of"),
    ],
)
def test_other_kinds_of_tiff_are_refused(options, text):
    for function in (reader.check, reader.decode):
        with pytest.raises(ValueError, match=text):
            function(tiff_of(deep_values(5), **options), 5)


@pytest.mark.parametrize("dtype", tiff_format.OTHER_TYPES)
def test_values_of_other_types_need_a_range(dtype):
    low = 0 if dtype == "uint32" else -100
    values = np.random.default_rng(0).integers(low, 100, (12, 10, 3)).astype(dtype)
    for bands in (1, 2, 3, 5):
        expected = np.resize(values, (12, 10, bands))
        content = tiff_of(expected)
        assert reader.check(content, bands, has_range=True)[:4] == (len(content), 12, 10, True)
        image = reader.decode_values(content, bands)
        assert (image.pixels == expected).all() and image.fractional == dtype.startswith("float")
        levels = reader.decode(content, bands, np.uint16, (low, 100))
        assert levels.dtype == np.uint16 and np.abs(levels / 65535 * (100 - low) + low - expected).max() < 0.01
        for look in (reader.check, reader.decode):
            with pytest.raises(ValueError, match="expected a flat image of 8 or 16 bits, unsigned"):
                look(content, bands)
    gray = reader.decode_values(tiff_of(values), 1).pixels
    assert np.abs(gray[..., 0] - values @ [0.299, 0.587, 0.114]).max() < 0.1
    assert (reader.decode_values(tiff_of(values[..., :1]), 3).pixels == values[..., :1]).all()
