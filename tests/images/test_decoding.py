import io
import os
import pathlib
import pickle
import re
import struct
import subprocess
import sys
import tempfile
import unittest.mock
import zlib

import imagecodecs
import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from cyclegan.data import loading
from cyclegan.errors import UserError
from cyclegan.images import decoding
from tests.data.test_loading import read, refused

ROOT = pathlib.Path(__file__).resolve().parents[2]


def save(path, colour=(200, 100, 50), size=(20, 10), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, **options)
    return path


def middle(path, channels=3):
    """The pixel in the middle, a list."""
    picture = decoding.decode(path, channels)
    return picture[picture.shape[0] // 2, picture.shape[1] // 2].tolist()


@pytest.mark.parametrize("ending", ["jpg", "jpeg", "png", "bmp", "webp", "gif", "tif", "tiff", "JPG", "PNG", "TIFF"])
def test_formats(tmp_path, ending):
    picture = decoding.decode(save(tmp_path / f"a.{ending}", (200, 100, 50)))
    assert picture.shape == (10, 20, 3) and picture.dtype == np.uint8
    assert np.abs(picture.astype(int) - [200, 100, 50]).max() <= 6
    assert loading.find(tmp_path) == [f"a.{ending}"]


def test_a_gif_gives_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert middle(tmp_path / "a.gif") == [255, 0, 0]


def test_kinds_of_pixels(tmp_path):
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


def test_gray_is_that_of_pillow(tmp_path):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 7, 3)).astype(np.uint8))
    noise.save(tmp_path / "a.png")
    np.testing.assert_array_equal(decoding.decode(tmp_path / "a.png", 1)[..., 0], np.asarray(noise.convert("L")))
    assert middle(save(tmp_path / "b.png", (0, 0, 0, 0), mode="RGBA"), 1) == [255]
    assert middle(save(tmp_path / "c.png", 90, mode="L"), 1) == [90]
    assert middle(save(tmp_path / "d.png", (10, 20), mode="LA"), 2) == [10, 20]
    assert middle(save(tmp_path / "e.png", (1, 2, 3, 4), mode="RGBA"), 4) == [1, 2, 3, 4]


def deep_values(bands, height=12, width=10):
    """uint16 [h, w, bands], of which neighbours differ in their low byte only."""
    low = np.random.default_rng(bands).integers(0, 256, (height, width, bands))
    return (0x1200 + low + 0x1000 * np.arange(bands)).astype(np.uint16)


def deep_png(picture):
    return imagecodecs.png_encode(np.ascontiguousarray(picture.squeeze()))


def tiff_of(picture, **options):
    """A TIFF of [h, w, bands], which are bands of a pixel and not pages."""
    file = io.BytesIO()
    options = {"photometric": "rgb" if picture.shape[2] in (3, 4) else "minisblack", **options}
    tifffile.imwrite(file, picture, planarconfig="contig" if picture.shape[2] > 1 else None, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", [deep_png, tiff_of])
@pytest.mark.parametrize("bands", [1, 3])
def test_16_bits_keep_their_depth(kind, bands):
    values = deep_values(bands)
    content = kind(values)
    assert decoding.check(content, bands) == (len(content), 12, 10, True)
    picture = decoding.decode(content, bands, np.uint16)
    assert picture.dtype == np.uint16
    np.testing.assert_array_equal(picture, values)
    assert len(np.unique(picture[..., 0] >> 8)) == 1 < len(np.unique(picture[..., 0]))


TIFFS = {
    "as it is": {},
    "packed": {"compression": "lzw", "predictor": True},
    "in tiles": {"compression": "zlib", "tile": (16, 16)},
    "big": {"compression": "zstd", "bigtiff": True},
    "in strips": {"rowsperstrip": 5},
    "big-endian": {"byteorder": ">"},
}


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("kind", [*TIFFS, "in planes"])
def test_a_tiff_of_five_bands(kind, dtype):
    values = deep_values(5).astype(dtype)
    if kind == "in planes":
        file = io.BytesIO()
        tifffile.imwrite(file, np.moveaxis(values, 2, 0), photometric="minisblack", planarconfig="separate")
        content = file.getvalue()
    else:
        content = tiff_of(values, **TIFFS[kind])
    assert decoding.check(content, 5) == (len(content), 12, 10, dtype == np.uint16)
    np.testing.assert_array_equal(decoding.decode(content, 5, dtype), values)
    with pytest.raises(ValueError, match="bands: 5; expected 4 .--channels_x, --channels_y"):
        decoding.check(content, 4)
    for channels in (1, 3):
        for function in (decoding.check, decoding.decode):
            with pytest.raises(ValueError, match="bands: 5; expected gray or RGB pixels, or another --channels_x"):
                function(content, channels)


def test_colours_of_16_bits_become_gray_and_gray_becomes_colours():
    values = deep_values(3)
    for content in (deep_png(values), tiff_of(values)):
        gray = decoding.decode(content, 1, np.uint16)
        np.testing.assert_allclose(gray[..., 0], values @ [0.299, 0.587, 0.114], atol=0.6)
    for content in (deep_png(deep_values(1)), tiff_of(deep_values(1))):
        np.testing.assert_array_equal(decoding.decode(content, 3, np.uint16), np.repeat(deep_values(1), 3, axis=2))
    for channels in (2, 4):
        with pytest.raises(ValueError, match=f"bands: 3; expected {channels}"):
            decoding.decode(deep_png(values), channels)


@pytest.mark.parametrize("kind", ["png", "unassalpha", "assocalpha"])
@pytest.mark.parametrize("bands", [2, 4])
def test_what_is_transparent_of_16_bits_is_put_on_white(kind, bands):
    values = deep_values(bands)
    values[..., -1] = np.where(np.arange(10) < 5, 65535, 13107)  # opaque, and a fifth
    stored = values.copy()
    if kind == "assocalpha":
        stored[:, 5:, :-1] = np.rint(0.2 * values[:, 5:, :-1])
    content = deep_png(values) if kind == "png" else tiff_of(stored, extrasamples=[kind])
    picture = decoding.decode_whole(content, bands - 1)
    np.testing.assert_array_equal(picture.pixels[:, :5], values[:, :5, :-1])
    atol = 1.01 if kind == "assocalpha" else 0.51  # what is stored has been rounded before
    np.testing.assert_allclose(picture.pixels[:, 5:], 0.2 * values[:, 5:, :-1] + 0.8 * 65535, atol=atol)
    np.testing.assert_array_equal(picture.opacity, values[..., -1:])
    np.testing.assert_array_equal(decoding.decode(content, bands, np.uint16), stored)


@pytest.mark.parametrize("bands", [2, 4])
def test_multiplied_colours_of_8_bits_are_put_on_white_too(bands):
    stored = np.full((6, 6, bands), 40, np.uint8)
    stored[..., -1] = 51  # a fifth
    stored[0, 0, 0] = 90  # more than there can be: white
    picture = decoding.decode(tiff_of(stored, extrasamples=["assocalpha"]), bands - 1)
    assert picture[1:].min() == picture[1:].max() == 40 + 204 and picture[0, 0, 0] == 255


@pytest.mark.parametrize("bands", [1, 3])
def test_a_transparent_colour_of_16_bits_is_white(bands):
    values, content = deep_values(bands), deep_png(deep_values(bands))
    key = chunk(b"tRNS", values[2, 3].astype(">u2").tobytes())
    picture = decoding.decode(content[:33] + key + content[33:], bands, np.uint16)
    clear = (values == values[2, 3]).all(axis=-1)
    assert (picture[clear] == 65535).all()
    np.testing.assert_array_equal(picture[~clear], values[~clear])


def test_the_other_depth_is_scaled():
    values = deep_values(3)
    np.testing.assert_array_equal(decoding.decode(deep_png(values)), np.round(values / 257))
    content = io.BytesIO()
    Image.fromarray(values.astype(np.uint8)).save(content, "png")
    picture = decoding.decode(content.getvalue(), 3, np.uint16)
    assert picture.dtype == np.uint16
    np.testing.assert_array_equal(picture, 257 * (values % 256))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_and_known_beforehand(tmp_path, orientation):
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
        np.testing.assert_array_equal(decoding.decode(source), upright)
        assert decoding.check(source)[1:3] == upright.shape[:2]
    np.testing.assert_array_equal(decoding.decode(bands, 5)[..., :3], upright)
    assert decoding.check(bands, 5)[1:3] == upright.shape[:2]


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.png", "a.tif", "deep.tif"])
def test_frames_after_the_first_are_seen(tmp_path, name):
    frames = [np.full((8, 8, 3), level, np.uint8) for level in (0, 120, 250)]
    for count in (1, 3):
        if name == "deep.tif":
            tifffile.imwrite(tmp_path / name, np.stack(frames[:count]).astype(np.uint16), photometric="rgb")
        else:
            first, *others = map(Image.fromarray, frames[:count])
            first.save(tmp_path / name, save_all=True, append_images=others)
        assert decoding.has_more(tmp_path / name) == (count > 1)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:30])
    assert not decoding.has_more(tmp_path / name)


def test_resizing_is_that_of_pillow_in_every_depth():
    values = np.random.default_rng(0).integers(60, 196, (40, 30, 5)).astype(np.uint8)
    for size in ((12, 20), (50, 31), (40, 31)):
        expected = np.asarray(Image.fromarray(values[..., :3]).resize(size[::-1], Image.BICUBIC)).astype(int)
        np.testing.assert_array_equal(decoding.resize(values[..., :3], size), expected)
        for picture, scale in ((values, 1), (values.astype(np.uint16) * 257, 257)):
            resized = decoding.resize(picture, size)
            assert resized.dtype == picture.dtype and resized.shape == (*size, 5)
            difference = resized[..., :3] / scale - expected
            assert np.abs(difference).max() <= 1.1  # of 8 bits, Pillow rounds between rows and columns too
    stripes = np.zeros((64, 64, 2), np.uint16)
    stripes[:, ::2] = 60000
    assert (
        np.abs(decoding.resize(stripes, (8, 8)).astype(int) - 30000).max() < 1500
    )  # no aliasing, which would give 0 or 60000
    edge = np.zeros((8, 8, 1), np.uint16)
    edge[:, 4:] = 65535
    assert np.unique(decoding.resize(edge, (8, 32))[0, [0, 15, 16, 31], 0].astype(int) // 32768).tolist() == [0, 1]
    assert decoding.resize(values, (40, 30)) is values


@pytest.mark.parametrize("name", ["as it is", "packed", "in tiles", "in strips"])
def test_a_tiff_that_is_cut_off_is_noticed_by_looking(name):
    whole = tiff_of(deep_values(5, 40, 40), **TIFFS[name])
    decoding.check(whole, 5)
    with pytest.raises(ValueError, match="truncated: it has less pixels than its header says"):
        decoding.check(whole[:-300], 5)
    small = VALID["tiff"]
    with pytest.raises(OSError):
        decoding.check(small[: len(small) // 2])


@pytest.mark.parametrize(
    "options, text",
    [
        ({"compression": "lzma"}, "compression 34925, photometric .*: expected 1 or 2 and one of LZW, deflate"),
        ({"photometric": "miniswhite"}, "photometric interpretation 0: expected 1 or 2"),
    ],
)
def test_a_tiff_of_another_kind_is_refused(options, text):
    for function in (decoding.check, decoding.decode):
        with pytest.raises(ValueError, match=text):
            function(tiff_of(deep_values(5), **options), 5)


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint32])
def test_bands_of_other_numbers_are_refused(dtype):
    with pytest.raises(ValueError, match=r"bits .*: expected a flat picture of 8 or 16 bits, no signs"):
        decoding.check(tiff_of(deep_values(5).astype(dtype)), 5)


def test_what_only_its_contents_tell(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    for kind in ("mpo", "tiff", "webp"):  # as phones, scanners and web sites name them
        first, *others = (frame.copy() for frame in frames)  # because saving leaves settings behind
        first.save(tmp_path / f"a.{kind}", save_all=True, append_images=others)
        (tmp_path / f"a.{kind}").rename(tmp_path / f"{kind}.jpg")
        red, green, blue = middle(tmp_path / f"{kind}.jpg")
        assert red > 240 and green < 15 and blue < 15


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, *chunks, pixels=b"", bits=8):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def tiff(width, height, bands=1):
    size = min(width * height * bands, 2**32 - 1)
    tags = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: bands, 278: height, 279: size, 284: 1}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)


SIDE = 40_000
HUGE = {
    "png": png(SIDE, SIDE, pixels=zlib.compress(bytes(1000))),
    "bmp": b"BM" + struct.pack("<IIIIiiHHIIIIII", 1000, 0, 54, 40, SIDE, SIDE, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(1000),
    "gif": b"GIF89a"
    + struct.pack("<HHBBB", SIDE, SIDE, 0, 0, 0)
    + b","
    + struct.pack("<HHHHBB", 0, 0, SIDE, SIDE, 0, 8),
    "tiff": tiff(SIDE, SIDE),
    "tiff of five bands": tiff(SIDE, SIDE, 5),
    "16 bit png": png(SIDE, SIDE, pixels=zlib.compress(bytes(1000)), bits=16),
}
HUGE["gif in a small one"] = b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0, 0, 0) + HUGE["gif"][13:]


@pytest.mark.parametrize("kind", HUGE)
def test_a_header_that_promises_too_many_pixels_is_enough_to_refuse(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(ImageFile.ImageFile, "load", unittest.mock.Mock(side_effect=AssertionError("it was decoded")))
    path = tmp_path / "a.png"
    path.write_bytes(HUGE[kind])
    assert f"{path} (40000 x 40000 pixels" in refused(path) and ": expected at most 180 million)" in refused(path)
    for function in (decoding.decode, decoding.check):
        with pytest.raises(ValueError, match="40000 x 40000 pixels"):
            function(path)


def test_the_most_pixels_that_are_decoded(tmp_path, monkeypatch):
    path = save(tmp_path / "a.png", size=(20, 10))
    monkeypatch.setattr(decoding, "LARGEST", 200)
    assert decoding.decode(path).shape == (10, 20, 3)
    monkeypatch.setattr(decoding, "LARGEST", 199)
    assert "20 x 10 pixels" in refused(path)
    five = tiff_of(deep_values(5, 10, 20))
    monkeypatch.setattr(decoding, "LARGEST", 250)
    assert decoding.decode(five, 5).shape == (10, 20, 5)
    monkeypatch.setattr(decoding, "LARGEST", 249)
    with pytest.raises(ValueError, match="20 x 10 pixels of 5 bands: expected at most"):
        decoding.decode(five, 5)


READ_AND_MEASURE = """
import pathlib, sys, time
from cyclegan.data import loading
from cyclegan.images import decoding

def peak():
    return int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024

decoding.decode(sys.argv[1])
for path in sys.argv[2:]:
    before, begun = peak(), time.process_time()
    try:
        answer = str(decoding.decode(path).shape)
    except Exception:  # decoders raise almost anything; what is measured is what it cost
        answer = "refused"
    print(pathlib.Path(path).stem, answer, peak() - before, time.process_time() - begun, sep="|")
"""


def test_small_files_that_would_inflate_to_a_lot_do_not(tmp_path):
    packer = zlib.compressobj(1)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()  # 200 MiB of zeros
    pixels, deep = zlib.compress(bytes(8 * 25)), zlib.compress(bytes(8 * 49))
    bombs = {
        "ztxt": png(8, 8, chunk(b"zTXt", b"comment\0\0" + bomb), pixels=pixels),
        "itxt": png(8, 8, chunk(b"iTXt", b"comment\0\1\0\0\0" + bomb), pixels=pixels),
        "iccp": png(8, 8, chunk(b"iCCP", b"profile\0\0" + bomb), pixels=pixels),
        "idat": png(8, 8, pixels=bomb),
        "deep ztxt": png(8, 8, chunk(b"zTXt", b"comment\0\0" + bomb), pixels=deep, bits=16),
        "deep iccp": png(8, 8, chunk(b"iCCP", b"profile\0\0" + bomb), pixels=deep, bits=16),
        "deep idat": png(8, 8, pixels=bomb, bits=16),
    }
    paths = [tmp_path / f"{name}.png" for name in ("small", *bombs)]
    for path, content in zip(paths, (png(8, 8, pixels=deep, bits=16), *bombs.values())):
        path.write_bytes(content)
        assert len(content) < 2_000_000
    done = subprocess.run(
        [sys.executable, "-c", READ_AND_MEASURE, *paths], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = [line.split("|") for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == list(bombs)
    for name, answer, mebibytes, seconds in lines:
        assert answer in ("(8, 8, 3)", "refused"), name
        assert float(mebibytes) < 30 and float(seconds) < 1, name


class _Trap:
    """What unpickles by making a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("kind", ["eps", "pdf", "psd", "pickle", "svg", "ppm", "python", "empty"])
def test_what_is_no_picture_is_neither_run_nor_read(tmp_path, kind, monkeypatch):
    content = {
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n",
        "pdf": b"%PDF-1.4\n1 0 obj <</Type /Catalog>> endobj\ntrailer <</Root 1 0 R>>\n%%EOF\n",
        "psd": b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 8, 8, 8, 3) + bytes(500),
        "pickle": pickle.dumps(_Trap(str(tmp_path / "trap"))),
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"></svg>',
        "ppm": b"P6 8 8 255\n" + bytes(192),  # of those that Pillow looks for by itself
        "python": b"import os; os.mkdir('trap')",
        "empty": b"",
    }[kind]
    run = unittest.mock.Mock(side_effect=AssertionError("a program was started"))
    monkeypatch.setattr(subprocess, "Popen", run)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.png"
    path.write_bytes(content)
    assert f"{path} (not a picture)" in refused(path)
    assert not (tmp_path / "trap").exists() and not run.called


def test_the_trap_would_have_worked(tmp_path):
    pickle.loads(pickle.dumps(_Trap(str(tmp_path / "trap"))))
    assert (tmp_path / "trap").exists()


def valid_files():
    """Small whole files of every kind, by name."""
    colours = np.random.default_rng(0).integers(0, 255, (12, 10, 3), np.uint8)
    image, files = Image.fromarray(colours), {}
    exif = Image.Exif()
    exif[0x0112] = 6
    for name, picture, options in (  # each saved from a copy, because saving leaves settings behind
        ("jpeg", image, {"exif": exif}),
        ("progressive jpeg", image, {"progressive": True}),
        ("mpo", image, {"save_all": True, "append_images": [image]}),
        ("png", image, {"exif": exif}),
        ("palette png", image.quantize(4), {"transparency": 0}),
        ("16 bit png", Image.fromarray(colours[..., 0].astype(np.uint16) * 257), {}),
        ("gif", image, {"save_all": True, "append_images": [image.rotate(90)]}),
        ("bmp", image, {}),
        ("webp", image, {"lossless": True, "exif": exif}),
        ("lossy webp", image, {}),
        ("tiff", image, {}),
        ("packed tiff", image, {"compression": "tiff_lzw"}),
        ("gray tiff", Image.fromarray(colours[..., 0]), {}),
    ):
        file = io.BytesIO()
        picture.copy().save(file, name.split()[-1], **options)
        files[name] = file.getvalue()
    deep = deep_values(3)
    return {
        **files,
        "deep png": deep_png(deep),
        "deep tiff": tiff_of(deep),
        "five bands": tiff_of(deep_values(5)),
        "five bands, packed": tiff_of(deep_values(5), **TIFFS["packed"]),
        "five bands in tiles": tiff_of(deep_values(5), **TIFFS["in tiles"]),
    }


VALID = valid_files()
CHANNELS = {name: 5 for name in VALID if name.startswith("five")}


@pytest.fixture
def decoded(monkeypatch):
    """What is decoded from here on, a list of paths or bytes."""
    decode, sources = decoding.decode, []
    monkeypatch.setattr(decoding, "decode", lambda source, *how: sources.append(source) or decode(source, *how))
    return sources


@pytest.mark.parametrize("name", VALID)
def test_looking_at_a_whole_picture_does_not_decode_it(tmp_path, name, decoded):
    (tmp_path / "a").write_bytes(VALID[name])
    channels = CHANNELS.get(name, 3)
    looked = decoding.check(VALID[name], channels)
    assert looked == decoding.check(str(tmp_path / "a"), channels) and looked[0] == len(VALID[name])
    assert not decoded


@pytest.mark.parametrize("junk", [b"\0" * 3000, b"added by a camera" * 50, b"\n"])
@pytest.mark.parametrize("name", ["jpeg", "progressive jpeg", "png", "palette png"])
def test_what_follows_the_end_of_a_picture_does_not_matter(name, junk, decoded):
    assert decoding.check(VALID[name] + junk)[0] == len(VALID[name] + junk) and not decoded
    assert decoding.check(VALID[name] + 100 * junk)  # decoded, to know


def camera_file(size):
    """A JPEG of noise, with a thumbnail in its header, that has an end of its own."""
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
def test_a_picture_without_its_end_is_found_by_looking(whole, kept):
    content = whole[: int(len(whole) * kept)]
    with pytest.raises(Exception) as looking:
        decoding.check(content)
    with pytest.raises(type(looking.value), match=re.escape(str(looking.value)) if kept > 0.5 else None):
        decoding.decode(content)


@pytest.mark.parametrize("bands, kind", [(3, np.uint8), (1, np.uint8), (1, np.uint16), (3, np.uint16)])
def test_a_png_is_refused_wherever_it_is_damaged(bands, kind):
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, bands)).repeat(8, axis=0).repeat(8, axis=1).astype(kind)
    content = imagecodecs.png_encode(pixels)
    np.testing.assert_array_equal(decoding.decode(content, bands, kind), pixels)
    for place in range(60, len(content) - 60, 20):
        with pytest.raises((OSError, SyntaxError, ValueError, imagecodecs.PngError)):
            decoding.decode(content[:place] + bytes(20) + content[place + 20 :], bands, kind)


FUZZ = settings(max_examples=250, deadline=None, derandomize=True, database=None)


@st.composite
def damaged(draw):
    """A valid file with some bytes overwritten, a part taken out or said twice, or its end missing; and its channels."""
    name = draw(st.sampled_from(list(VALID)))
    content, channels = bytearray(VALID[name]), CHANNELS.get(name, 3)
    for _ in range(draw(st.integers(0, 4))):
        # The interesting bytes are those of the header.
        place = draw(st.integers(0, min(120, len(content) - 1)) | st.integers(0, len(content) - 1))
        content[place] = draw(st.integers(0, 255) | st.sampled_from([0, 1, 127, 128, 255]))
    start, end = sorted((draw(st.integers(0, len(content))), draw(st.integers(0, len(content)))))
    change = draw(st.sampled_from(["nothing", "cut", "take out", "twice"]))
    if change == "cut":
        return bytes(content[:end]), channels
    if change == "take out":
        return bytes(content[:start] + content[end:]), channels
    return bytes(content[:end] + content[start:] if change == "twice" else content), channels


def reads_or_refuses(content, channels=3):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.png")
        with open(path, "wb") as file:
            file.write(content)
        # Small, so that a damaged size does not cost seconds and gigabytes.
        with unittest.mock.patch.object(decoding, "LARGEST", 1_000_000):
            agrees_with_decoding(content, channels)
            try:
                images = read(path, channels=channels)
            except UserError as error:
                assert path in str(error) and str(error).isprintable()
                return False
    assert images.shape == (1, 8, 8, channels) and images.dtype == np.uint8
    return True


def agrees_with_decoding(content, channels):
    """Looking at a picture refuses it for the reason for which it would not decode, or it accepts it."""
    try:
        assert decoding.check(content, channels)[0] == len(content)
    except AssertionError:
        raise
    except Exception as error:  # whatever looking raises, decoding raises too
        with pytest.raises(type(error)) as decode:
            decoding.decode(content, channels)
        assert decode.value.args == error.args or isinstance(error, UnidentifiedImageError)


@pytest.mark.parametrize("name", VALID)
def test_the_files_that_are_about_to_be_damaged_decode(name):
    assert reads_or_refuses(VALID[name], CHANNELS.get(name, 3))


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's on what it could decode nevertheless
@FUZZ
@given(damaged())
def test_a_damaged_file_decodes_or_is_refused(damaged_file):
    reads_or_refuses(*damaged_file)


@pytest.mark.filterwarnings("ignore::UserWarning")
@FUZZ
@given(st.sampled_from([b"", *{content[:16] for content in VALID.values()}]), st.binary(max_size=200))
def test_random_bytes_are_refused(start, content):
    reads_or_refuses(start + content)


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.int8, np.int16, np.int32, np.uint32], ids=lambda dtype: dtype.__name__
)
@pytest.mark.parametrize("bands", [1, 3])
def test_numbers_that_are_no_levels_are_refused_and_not_cut(dtype, bands):
    levels = np.arange(-8 * 6 * bands // 2, 8 * 6 * bands // 2).reshape(8, 6, bands)
    file = io.BytesIO()
    levels = (levels[..., 0] if bands == 1 else levels).astype(dtype)
    tifffile.imwrite(file, levels, photometric="minisblack" if bands == 1 else "rgb")
    for look in (decoding.check, decoding.decode):
        with pytest.raises(ValueError, match="expected a flat picture of 8 or 16 bits, no signs"):
            look(file.getvalue(), bands)


def test_pillow_images_of_floats_are_refused():
    with pytest.raises(ValueError, match="a Pillow image of mode F: expected 8 or 16 bits"):
        decoding.of_pillow(Image.new("F", (4, 4)), 1)


def test_the_a_of_lab_is_no_opacity():
    picture = decoding.of_pillow(Image.new("RGB", (4, 4), "red").convert("LAB"))
    assert picture.opacity is None and picture.pixels.shape == (4, 4, 3)
