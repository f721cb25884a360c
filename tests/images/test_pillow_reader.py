"""Reading with Pillow, and of PNG files."""

import struct

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from cyclegan.images import pillow_format, reader
from tests.images.samples import chunk, deep_png, deep_values, middle, save


def test_every_mode_becomes_rgb(tmp_path):
    def saved(*args, **options):
        return middle(save(tmp_path / "a.png", *args, **options))

    assert saved(90, mode="L") == [90, 90, 90]
    assert saved(1, mode="1") == [255, 255, 255]
    assert saved((0, 0, 0, 0), mode="RGBA") == [255, 255, 255]  # transparent: the white behind it
    assert saved((200, 0, 0, 255), mode="RGBA") == [200, 0, 0]
    assert saved((10, 128), mode="LA") == [132, 132, 132]
    assert saved(257 * 90, mode="I;16") == [90, 90, 90]
    palette = Image.new("P", (10, 10), 1)
    palette.putpalette([0, 0, 0, 9, 8, 7])
    palette.save(tmp_path / "p.png")
    assert middle(tmp_path / "p.png") == [9, 8, 7]
    palette.save(tmp_path / "t.png", transparency=1)
    assert middle(tmp_path / "t.png") == [255, 255, 255]
    save(tmp_path / "c.jpg", (0, 0, 0, 0), mode="CMYK")
    assert min(middle(tmp_path / "c.jpg")) > 250


@pytest.mark.parametrize("mode", ["P", "L"])
def test_the_screen_around_the_first_frame_of_a_gif_is_transparent(tmp_path, mode):
    frames = [Image.fromarray(np.full((6, 5), level, np.uint8)) for level in (90, 200)]
    frames[0].convert(mode).save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    content = bytearray((tmp_path / "a.gif").read_bytes())
    content[6:10] = struct.pack("<HH", 9, 8)  # size of the screen
    first = content.index(b",\0\0\0\0")
    content[first + 1 : first + 5] = struct.pack("<HH", 2, 1)  # place of the frame
    expected = np.full((8, 9), 255)
    expected[1:7, 2:7] = 90
    for channels in (1, 3):
        image = reader.decode_values(bytes(content), channels)
        assert (image.pixels == expected[..., None]).all() and (image.opacity[..., 0] == 255 * (expected == 90)).all()
    assert reader.check(bytes(content), 3)[1:3] == (8, 9)
    assert reader.decode(tmp_path / "a.gif", 1).max() == 90


def test_gray_equals_pillow(tmp_path):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 7, 3)).astype(np.uint8))
    noise.save(tmp_path / "a.png")
    np.testing.assert_array_equal(reader.decode(tmp_path / "a.png", 1)[..., 0], np.asarray(noise.convert("L")))
    assert middle(save(tmp_path / "b.png", (0, 0, 0, 0), mode="RGBA"), 1) == [255]
    assert middle(save(tmp_path / "c.png", 90, mode="L"), 1) == [90]
    assert middle(save(tmp_path / "d.png", (10, 20), mode="LA"), 2) == [10, 20]
    assert middle(save(tmp_path / "e.png", (1, 2, 3, 4), mode="RGBA"), 4) == [1, 2, 3, 4]


def test_float_images_are_refused():
    with pytest.raises(ValueError, match="a Pillow image of mode F: expected 8 or 16 bits"):
        pillow_format.from_pillow(Image.new("F", (4, 4)), 1)


def test_lab_has_no_opacity():
    image = pillow_format.from_pillow(Image.new("RGB", (4, 4), "red").convert("LAB"))
    assert image.opacity is None and image.pixels.shape == (4, 4, 3)


def test_orientation_in_the_xmp_of_a_tiff_counts_nowhere(tmp_path):
    """Pillow would turn the pixels by it when they are decoded, but the size is known before."""
    levels = np.random.default_rng(0).integers(0, 256, (10, 20, 3)).astype(np.uint8)
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    tifffile.imwrite(tmp_path / "a.tif", levels, photometric="rgb", extratags=[(700, 1, len(xmp), xmp, True)])
    header = reader.check(tmp_path / "a.tif", 3)
    assert (header.height, header.width) == (10, 20)
    np.testing.assert_array_equal(reader.decode(tmp_path / "a.tif", 3), levels)


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
