"""Dispatch to the readers, headers and frames."""

import io
import re
import struct

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageOps

from cyclegan.data import folder_source
from cyclegan.images import reader
from cyclegan.images.image import ImageError
from cyclegan.images.reader import Slice
from tests.images.samples import CHANNELS, VALID, chunk, deep_png, deep_values, middle, save, tiff_of

ENDINGS = ["jpg", "jpeg", "jpe", "jfif", "png", "bmp", "webp", "gif", "tif", "tiff", "JPG", "JFIF", "PNG", "TIFF"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_is_read(tmp_path, ending):
    image = reader.decode(save(tmp_path / f"a.{ending}", (200, 100, 50)))
    assert image.shape == (10, 20, 3) and image.dtype == np.uint8
    assert np.abs(image.astype(int) - [200, 100, 50]).max() <= 6
    assert folder_source.find_images(tmp_path) == [f"a.{ending}"]


def test_format_is_found_by_content(tmp_path):
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    for kind in ("mpo", "tiff", "webp", "gif"):  # phones, scanners and web sites name them .jpg
        first, *others = (frame.copy() for frame in frames)  # saving changes an image's settings
        first.save(tmp_path / f"a.{kind}", save_all=True, append_images=others)
        (tmp_path / f"a.{kind}").rename(tmp_path / f"{kind}.jpg")
        red, green, blue = middle(tmp_path / f"{kind}.jpg")
        assert red > 240 and green < 15 and blue < 15


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.png", "a.tif", "deep.tif"])
def test_each_frame_is_an_image(tmp_path, name):
    frames = [np.full((8, 8, 3), level, np.uint8) for level in (0, 120, 250)]
    path = tmp_path / name
    for count in (1, 3):
        if name == "deep.tif":
            tifffile.imwrite(path, 257 * np.stack(frames[:count]).astype(np.uint16), photometric="rgb")
        else:
            first, *others = map(Image.fromarray, frames[:count])
            first.save(path, save_all=True, append_images=others)
        assert reader.count(path) == reader.check(path).images == count
    slices = [Slice(str(path), number) for number in (2, 0, 1, 0)]  # in any order
    for each in slices:
        np.testing.assert_allclose(reader.decode(each), frames[each.number], atol=3)
        assert reader.check(each)[1:3] == (8, 8) and f"{each}" == f"{path}[{each.number}]"
    assert len({reader.check(each)[4] for each in slices}) == 3 or name.endswith("tif")  # none is a duplicate
    save(path)
    with pytest.raises(ImageError, match="a damaged"):  # the new file has one image
        reader.decode(slices[0])


def test_other_depth_is_scaled():
    values = deep_values(3)
    np.testing.assert_array_equal(reader.decode(deep_png(values), 3, np.uint16), values)
    np.testing.assert_array_equal(reader.decode(deep_png(values)), np.round(values / 257))
    content = io.BytesIO()
    Image.fromarray(values.astype(np.uint8)).save(content, "png")
    image = reader.decode(content.getvalue(), 3, np.uint16)
    assert image.dtype == np.uint16
    np.testing.assert_array_equal(image, 257 * (values % 256))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_to_pixels_and_header(tmp_path, orientation):
    values = np.random.default_rng(0).integers(0, 256, (12, 10, 3)).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(values).save(tmp_path / "a.png", exif=exif)
    with Image.open(tmp_path / "a.png") as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    assert np.array_equal(upright, values) == (orientation == 1)
    Image.fromarray(values).save(tmp_path / "b.tiff", exif=exif)
    deep = deep_png(257 * values.astype(np.uint16))
    late = deep[:-12] + chunk(b"eXIf", exif.tobytes()[6:]) + deep[-12:]  # after the pixels
    early = deep[:33] + chunk(b"eXIf", exif.tobytes()[6:]) + deep[33:]
    five = np.concatenate([values, values[..., :2]], axis=2)
    bands = tiff_of(five, extratags=[(274, "H", 1, orientation, True)])
    for source in (tmp_path / "a.png", tmp_path / "b.tiff", early, late):
        np.testing.assert_array_equal(reader.decode(source), upright)
        assert reader.check(source)[1:3] == upright.shape[:2]
    np.testing.assert_array_equal(reader.decode(bands, 5)[..., :3], upright)
    assert reader.check(bands, 5)[1:3] == upright.shape[:2]


def exif_of(kind, value, count=1):
    """Return EXIF data with one tag, the orientation, of a type of TIFF; `value` has at most 8 bytes."""
    place = value.ljust(4, b"\0") if len(value) <= 4 else struct.pack("<I", 26)
    return b"Exif\0\0II*\0" + struct.pack("<IHHHI", 8, 1, 0x0112, kind, count) + place + bytes(4) + value


ORIENTATIONS = {
    "9": (3, b"\x09\0"),
    "-1": (9, b"\xff\xff\xff\xff"),
    "text": (2, b"6\0", 2),
    "no number": (5, struct.pack("<II", 6, 0)),
    "nan": (11, struct.pack("<f", np.nan)),
}


@pytest.mark.parametrize("name", ORIENTATIONS)
def test_other_orientations_count_as_upright(name):
    values = np.random.default_rng(0).integers(0, 256, (12, 10, 3)).astype(np.uint8)
    exif = exif_of(*ORIENTATIONS[name])
    for format, options in (("jpeg", {}), ("png", {}), ("webp", {"lossless": True})):
        file = io.BytesIO()
        Image.fromarray(values).save(file, format, exif=exif, **options)
        assert reader.check(file.getvalue())[1:3] == (12, 10)
        assert reader.decode(file.getvalue()).shape == values.shape
    deep = deep_png(257 * values.astype(np.uint16))
    early = deep[:33] + chunk(b"eXIf", exif[6:]) + deep[33:]
    np.testing.assert_array_equal(reader.decode(early), values)
    np.testing.assert_array_equal(reader.decode(tiff_of(values, extratags=[(274, "H", 1, 9, True)])), values)


@pytest.fixture
def decoded(monkeypatch):
    """Return a growing list of the sources that are decoded."""
    decode, sources = reader.decode_values, []
    monkeypatch.setattr(reader, "decode_values", lambda source, *how: sources.append(source) or decode(source, *how))
    return sources


@pytest.mark.parametrize("name", VALID)
def test_check_does_not_decode(tmp_path, name, decoded):
    (tmp_path / "a").write_bytes(VALID[name])
    channels = CHANNELS.get(name, 3)
    facts = reader.check(VALID[name], channels)
    assert facts == reader.check(str(tmp_path / "a"), channels) and facts.length == len(VALID[name])
    assert not decoded


@pytest.mark.parametrize("junk", [b"\0" * 3000, b"added by a camera" * 50, b"\n"])
@pytest.mark.parametrize("name", ["jpeg", "progressive jpeg", "png", "palette png"])
def test_trailing_bytes_are_accepted(name, junk, decoded):
    assert reader.check(VALID[name] + junk)[0] == len(VALID[name] + junk) and not decoded
    assert reader.check(VALID[name] + 100 * junk)  # too far from the end: decoded


def camera_file(size):
    """Return a JPEG of noise whose header has a thumbnail with an end marker of its own."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (size, size, 3), np.uint8))
    small, file = io.BytesIO(), io.BytesIO()
    noise.resize((8, 8)).save(small, "jpeg")
    noise.save(file, "jpeg", exif=b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0" + small.getvalue())
    assert file.getvalue().count(b"\xff\xd9") == 2
    return file.getvalue()


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
@pytest.mark.parametrize(
    "whole",
    [camera_file(40), camera_file(100), VALID["png"], VALID["progressive jpeg"]],
    ids=["small", "large", "png", "prog"],
)
def test_check_finds_truncated_files(whole, kept):
    content = whole[: int(len(whole) * kept)]
    with pytest.raises(Exception) as checking:
        reader.check(content)
    with pytest.raises(type(checking.value), match=re.escape(str(checking.value)) if kept > 0.5 else None):
        reader.decode(content)


def test_ends_tell_compressed_files_apart(tmp_path):
    first = save(tmp_path / "a.png", (0, 0, 1))
    same, other = save(tmp_path / "b.png", (0, 0, 1)), save(tmp_path / "c.png", (0, 0, 2))
    bitmap = save(tmp_path / "d.bmp")
    ends = [reader.check(path).end for path in (first, same, other, bitmap)]
    assert ends[0] == ends[1] != ends[2] and ends[3] == 0
