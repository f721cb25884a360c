"""Reading of PNG files."""

import imagecodecs
import numpy as np
import pytest

from cyclegan.images import reader
from tests.images.samples import chunk, deep_png, deep_values


@pytest.mark.parametrize("bands, kind", [(3, np.uint8), (1, np.uint8), (1, np.uint16), (3, np.uint16)])
def test_damaged_png_is_refused(bands, kind):
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, bands)).repeat(8, axis=0).repeat(8, axis=1).astype(kind)
    content = imagecodecs.png_encode(pixels)
    np.testing.assert_array_equal(reader.decode(content, bands, kind), pixels)
    for place in range(60, len(content) - 60, 20):
        with pytest.raises((OSError, SyntaxError, ValueError, imagecodecs.PngError)):
            reader.decode(content[:place] + bytes(20) + content[place + 20 :], bands, kind)


@pytest.mark.parametrize("bands", [1, 3])
def test_transparent_color_is_white(bands):
    values, content = deep_values(bands), deep_png(deep_values(bands))
    key = chunk(b"tRNS", values[2, 3].astype(">u2").tobytes())
    image = reader.decode(content[:33] + key + content[33:], bands, np.uint16)
    clear = (values == values[2, 3]).all(axis=-1)
    assert (image[clear] == 65535).all()
    np.testing.assert_array_equal(image[~clear], values[~clear])
