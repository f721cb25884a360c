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

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile, UnidentifiedImageError

from cyclegan import pictures
from cyclegan.errors import UserError, printable

ROOT = pathlib.Path(__file__).resolve().parents[1]


def save(path, colour=(200, 100, 50), size=(20, 10), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, **options)
    return path


@pytest.mark.parametrize("ending", ["jpg", "jpeg", "png", "bmp", "webp", "gif", "JPG", "PNG"])
def test_formats(tmp_path, ending):
    image = pictures.decode(save(tmp_path / f"a.{ending}", (200, 100, 50)))
    assert image.mode == "RGB" and image.size == (20, 10)
    assert np.abs(np.asarray(image).astype(int) - [200, 100, 50]).max() <= 6
    assert pictures.find(tmp_path) == [f"a.{ending}"]


def test_a_gif_gives_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert pictures.decode(tmp_path / "a.gif").getpixel((4, 4)) == (255, 0, 0)


def test_kinds_of_pixels(tmp_path):
    def middle(*args, **options):
        return pictures.decode(save(tmp_path / "a.png", *args, **options)).getpixel((5, 5))

    assert middle(90, mode="L") == (90, 90, 90)
    assert middle(1, mode="1") == (255, 255, 255)
    assert middle((0, 0, 0, 0), mode="RGBA") == (255, 255, 255)  # transparent: the white behind it
    assert middle((200, 0, 0, 255), mode="RGBA") == (200, 0, 0)
    assert middle((10, 128), mode="LA") == (132, 132, 132)
    assert middle(257 * 90, mode="I;16") == (90, 90, 90)
    palette = Image.new("P", (10, 10), 1)
    palette.putpalette([0, 0, 0, 9, 8, 7])
    palette.save(tmp_path / "p.png")
    assert pictures.decode(tmp_path / "p.png").getpixel((5, 5)) == (9, 8, 7)
    palette.save(tmp_path / "t.png", transparency=1)
    assert pictures.decode(tmp_path / "t.png").getpixel((5, 5)) == (255, 255, 255)
    save(tmp_path / "c.jpg", (0, 0, 0, 0), mode="CMYK")
    assert min(pictures.decode(tmp_path / "c.jpg").getpixel((5, 5))) > 250


def test_exif_orientation_is_applied(tmp_path):
    image = Image.new("RGB", (20, 10))
    image.paste("white", (0, 0, 10, 10))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it rotated by 90 degrees
    image.save(tmp_path / "a.jpg", exif=exif)
    upright = pictures.decode(tmp_path / "a.jpg")
    assert upright.size == (10, 20)
    assert upright.getpixel((5, 3))[0] > 200 and upright.getpixel((5, 16))[0] < 50


def test_sub_folders_count_and_hidden_and_other_files_do_not(tmp_path):
    for name in ("b/c.png", "b/d/e.JPG", "a.png", ".hidden.png", ".git/f.png", "__MACOSX/g.png", "b/._c.png"):
        save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "Thumbs.db").write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")  # would never end
    assert pictures.find(tmp_path) == ["a.png", "b/c.png", "b/d/e.JPG"]


def test_linked_folders_are_followed_once(tmp_path):
    save(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "data").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "data" / "link")
    os.symlink(tmp_path / "data", tmp_path / "elsewhere" / "loop")
    assert pictures.find(tmp_path / "data") == ["link/a.png"]


def test_folders_that_are_linked_to_twice_or_in_a_loop_count_once(tmp_path):
    data = tmp_path / "data"
    save(data / "a.png")
    save(data / "sub" / "b.png")
    os.symlink(data, data / "sub" / "up")
    os.symlink(data / "sub", data / "sub" / "self")
    os.symlink("loop.png", data / "loop.png")  # to itself
    os.symlink("loop", data / "loop")
    os.symlink(tmp_path / "nowhere.png", data / "dangling.png")
    os.symlink(tmp_path / "nowhere", data / "dangling")
    assert pictures.find(data) == ["a.png", "sub/b.png"]
    os.symlink(data / "sub", data / "beside")  # whichever of the two is taken
    found = [os.path.realpath(data / name) for name in pictures.find(data)]
    assert sorted(found) == sorted(os.path.realpath(data / name) for name in ("a.png", "sub/b.png"))


def test_what_only_its_contents_tell(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    for kind in ("mpo", "tiff", "webp"):  # as phones, scanners and web sites name them
        first, *others = (frame.copy() for frame in frames)  # because saving leaves settings behind
        first.save(tmp_path / f"a.{kind}", save_all=True, append_images=others)
        (tmp_path / f"a.{kind}").rename(tmp_path / f"{kind}.jpg")
        red, green, blue = pictures.decode(tmp_path / f"{kind}.jpg").getpixel((4, 4))
        assert red > 240 and green < 15 and blue < 15


NAMES = [
    "two\nlines.png",
    'it\'s a "quote".png',
    "zèbre 馬.png",
    "\x1b[31mred\x07.png",
    b"caf\xe9 \xff.png".decode(errors="surrogateescape"),
    "photo\u202egnp.png",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_file_may_have_any_name(tmp_path, name):
    save(tmp_path / "a.png").rename(tmp_path / name)
    assert pictures.find(tmp_path) == [name]
    images = pictures.read({"a": [str(tmp_path / name)]}, {"a": 8})[0]["a"]
    assert images.shape == (1, 8, 8, 3) and (images == [200, 100, 50]).all()


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("content", [b"no picture", b"\x89PNG\r\n\x1a\n", None])
def test_a_broken_file_is_named_in_one_printable_line_whatever_its_name(tmp_path, name, content):
    path = tmp_path / name
    if content:
        path.write_bytes(content)  # without any, it has disappeared since it was found
    text = refused(path)
    assert f"{printable(path)} (" in text and text.startswith("1 of 1 pictures do not decode; repair or remove them: ")


def refused(path):
    """The text of the UserError that reading a file raises."""
    with pytest.raises(UserError) as error:
        pictures.read({"a": [str(path)]}, {"a": 8})
    text = str(error.value)
    assert text.isprintable() and text.encode()
    return text


def test_at_most_ten_broken_files_are_named(tmp_path):
    paths = [str(tmp_path / f"{i:02d}.png") for i in range(12)]
    good = str(save(tmp_path / "good.png"))
    with pytest.raises(UserError) as error:
        pictures.read({"a": paths, "b": [good]}, {"a": 8, "b": 8})
    text = str(error.value)
    assert text.startswith("12 of 13 pictures do not decode") and text.endswith(" and 2 more")
    assert all(path in text for path in paths[:10]) and paths[10] not in text and good not in text


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, *chunks, pixels=b""):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def tiff(width, height):
    tags = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: width * height}
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
}
HUGE["gif in a small one"] = b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0, 0, 0) + HUGE["gif"][13:]


@pytest.mark.parametrize("kind", HUGE)
def test_a_header_that_promises_too_many_pixels_is_enough_to_refuse(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(ImageFile.ImageFile, "load", unittest.mock.Mock(side_effect=AssertionError("it was decoded")))
    path = tmp_path / "a.png"
    path.write_bytes(HUGE[kind])
    assert f"{path} (40000 x 40000 pixels: expected at most 180 million)" in refused(path)
    for function in (pictures.decode, pictures.check):
        with pytest.raises(ValueError, match="40000 x 40000 pixels"):
            function(path)


def test_the_most_pixels_that_are_decoded(tmp_path, monkeypatch):
    path = save(tmp_path / "a.png", size=(20, 10))
    monkeypatch.setattr(pictures, "LARGEST", 200)
    assert pictures.decode(path).size == (20, 10)
    monkeypatch.setattr(pictures, "LARGEST", 199)
    assert "20 x 10 pixels" in refused(path)


READ_AND_MEASURE = """
import pathlib, sys, time
from cyclegan import pictures
from cyclegan.errors import UserError

def peak():
    return int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024

pictures.read({"a": [sys.argv[1]]}, {"a": 8})
for path in sys.argv[2:]:
    before, begun = peak(), time.process_time()
    try:
        answer = str(pictures.read({"a": [path]}, {"a": 8})[0]["a"].shape)
    except UserError as error:
        answer = "refused"
    print(pathlib.Path(path).stem, answer, peak() - before, time.process_time() - begun, sep="|")
"""


def test_small_files_that_would_inflate_to_a_lot_do_not(tmp_path):
    packer = zlib.compressobj(1)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()  # 200 MiB of zeros
    pixels = zlib.compress(bytes(8 * 25))
    bombs = {
        "ztxt": png(8, 8, chunk(b"zTXt", b"comment\0\0" + bomb), pixels=pixels),
        "itxt": png(8, 8, chunk(b"iTXt", b"comment\0\1\0\0\0" + bomb), pixels=pixels),
        "iccp": png(8, 8, chunk(b"iCCP", b"profile\0\0" + bomb), pixels=pixels),
        "idat": png(8, 8, pixels=bomb),
    }
    paths = [tmp_path / "small.png", *(tmp_path / f"{name}.png" for name in bombs)]
    for path, content in zip(paths, (png(8, 8, pixels=pixels), *bombs.values())):
        path.write_bytes(content)
        assert len(content) < 2_000_000
    done = subprocess.run(
        [sys.executable, "-c", READ_AND_MEASURE, *paths], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = [line.split("|") for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == list(bombs)
    for name, answer, mebibytes, seconds in lines:
        assert answer in ("(1, 8, 8, 3)", "refused"), name
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
        ("float tiff", Image.fromarray(colours[..., 0].astype(np.float32)), {}),
    ):
        file = io.BytesIO()
        picture.copy().save(file, name.split()[-1], **options)
        files[name] = file.getvalue()
    return files


VALID = valid_files()


@pytest.fixture
def decoded(monkeypatch):
    """What is decoded from here on, a list of paths or bytes."""
    decode, sources = pictures.decode, []
    monkeypatch.setattr(pictures, "decode", lambda source: sources.append(source) or decode(source))
    return sources


@pytest.mark.parametrize("name", VALID)
def test_looking_at_a_whole_picture_does_not_decode_it(tmp_path, name, decoded):
    (tmp_path / "a").write_bytes(VALID[name])
    assert pictures.check(VALID[name]) == pictures.check(str(tmp_path / "a")) == len(VALID[name])
    assert not decoded


@pytest.mark.parametrize("junk", [b"\0" * 3000, b"added by a camera" * 50, b"\n"])
@pytest.mark.parametrize("name", ["jpeg", "progressive jpeg", "png", "palette png"])
def test_what_follows_the_end_of_a_picture_does_not_matter(name, junk, decoded):
    assert pictures.check(VALID[name] + junk) == len(VALID[name] + junk) and not decoded
    assert pictures.check(VALID[name] + 100 * junk)  # decoded, to know


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
        pictures.check(content)
    with pytest.raises(type(looking.value), match=re.escape(str(looking.value)) if kept > 0.5 else None):
        pictures.decode(content)


FUZZ = settings(max_examples=250, deadline=None, derandomize=True, database=None)


@st.composite
def damaged(draw):
    """A valid file with some bytes overwritten, a part taken out or said twice, or its end missing."""
    content = bytearray(draw(st.sampled_from(list(VALID.values()))))
    for _ in range(draw(st.integers(0, 4))):
        # The interesting bytes are those of the header.
        place = draw(st.integers(0, min(120, len(content) - 1)) | st.integers(0, len(content) - 1))
        content[place] = draw(st.integers(0, 255) | st.sampled_from([0, 1, 127, 128, 255]))
    start, end = sorted((draw(st.integers(0, len(content))), draw(st.integers(0, len(content)))))
    change = draw(st.sampled_from(["nothing", "cut", "take out", "twice"]))
    if change == "cut":
        return bytes(content[:end])
    if change == "take out":
        return bytes(content[:start] + content[end:])
    return bytes(content[:end] + content[start:] if change == "twice" else content)


def reads_or_refuses(content):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.png")
        with open(path, "wb") as file:
            file.write(content)
        # Small, so that a damaged size does not cost seconds and gigabytes.
        with unittest.mock.patch.object(pictures, "LARGEST", 1_000_000):
            agrees_with_decoding(content)
            try:
                images = pictures.read({"a": [path]}, {"a": 8})[0]["a"]
            except UserError as error:
                assert path in str(error) and str(error).isprintable()
                return False
    assert images.shape == (1, 8, 8, 3) and images.dtype == np.uint8
    return True


def agrees_with_decoding(content):
    """Looking at a picture refuses it for the reason for which it would not decode, or it accepts it."""
    try:
        assert pictures.check(content) == len(content)
    except AssertionError:
        raise
    except Exception as error:
        with pytest.raises(type(error)) as decoding:
            pictures.decode(content)
        assert decoding.value.args == error.args or isinstance(error, UnidentifiedImageError)


@pytest.mark.parametrize("name", VALID)
def test_the_files_that_are_about_to_be_damaged_decode(name):
    assert reads_or_refuses(VALID[name])


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's on what it could decode nevertheless
@FUZZ
@given(damaged())
def test_a_damaged_file_decodes_or_is_refused(content):
    reads_or_refuses(content)


@pytest.mark.filterwarnings("ignore::UserWarning")
@FUZZ
@given(st.sampled_from([b"", *{content[:16] for content in VALID.values()}]), st.binary(max_size=200))
def test_random_bytes_are_refused(start, content):
    reads_or_refuses(start + content)
