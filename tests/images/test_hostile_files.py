"""Files that are damaged, too large, or no images."""

import os
import pathlib
import pickle
import re
import struct
import subprocess
import sys
import unittest.mock
import zlib

import imagecodecs
import numpy as np
import pytest
from PIL import Image, ImageFile

from cyclegan.images import reader
from tests.data.test_loading import refused
from tests.images.samples import chunk, deep_png, png, tiff, tiff_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIDE = 40_000
HUGE = {
    "png": png(SIDE, SIDE, pixels=zlib.compress(bytes(1000))),
    "bmp": b"BM" + struct.pack("<IIIIiiHHIIIIII", 1000, 0, 54, 40, SIDE, SIDE, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(1000),
    "gif": struct.pack("<6sHHBBBcHHHHBB", b"GIF89a", SIDE, SIDE, 0, 0, 0, b",", 0, 0, SIDE, SIDE, 0, 8),
    "tiff": tiff(SIDE, SIDE),
    "tiff of five bands": tiff(SIDE, SIDE, 5),
    "16 bit png": png(SIDE, SIDE, pixels=zlib.compress(bytes(1000)), bits=16),
}
HUGE["gif in a small one"] = b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0, 0, 0) + HUGE["gif"][13:]


@pytest.mark.parametrize("kind", HUGE)
def test_huge_header_is_refused(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(ImageFile.ImageFile, "load", unittest.mock.Mock(side_effect=AssertionError("it was decoded")))
    path = tmp_path / "a.png"
    path.write_bytes(HUGE[kind])
    name = {"tiff of": "TIFF", "16 bit": "PNG"}.get(kind[:7].strip(), kind.upper())
    reason = "a damaged GIF file" if "in a small" in kind else f"{name}, 40000 x 40000 pixels: expected at most 180"
    assert re.search(f"{path} .{reason}", refused(path))
    for function in (reader.decode, reader.check):
        with pytest.raises(Exception, match=reason):
            function(path)


def test_a_jpeg_that_needs_much_memory_is_refused_by_its_header(tmp_path, monkeypatch):
    """Check progressive JPEGs, whose coefficients stay in memory: RGB takes 1.7 GB, CMYK 2.03 GB."""
    monkeypatch.setattr(ImageFile.ImageFile, "load", unittest.mock.Mock(side_effect=AssertionError("it was decoded")))
    path = tmp_path / "a.jpg"
    for mode in ("RGB", "CMYK"):
        Image.new(mode, (8, 8)).save(path, progressive=True)
        content = bytearray(path.read_bytes())
        struct.pack_into(">HH", content, content.index(b"\xff\xc2") + 5, 13_000, 13_000)
        path.write_bytes(content)
        if mode == "RGB":
            assert reader.check(path)[1:3] == (13_000, 13_000)
    reason = "JPEG, 13000 x 13000 pixels, which take 2.03 GB of memory to decode: expected at most 2 GB"
    for function in (reader.check, reader.decode):
        with pytest.raises(ValueError, match=reason):
            function(path)
    assert f"{path} ({reason}" in refused(path)


READ_AND_MEASURE = """
import pathlib, sys, time
from cyclegan.images import reader

def peak():
    return int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024

reader.decode(sys.argv[1])
for path in sys.argv[2:]:
    before, begun = peak(), time.process_time()
    try:
        answer = str(reader.decode(path).shape)
    except Exception:  # decoders raise almost anything; what is measured is what it cost
        answer = "refused"
    print(pathlib.Path(path).stem, answer, peak() - before, time.process_time() - begun, sep="|")
"""


def test_decompression_bombs_take_little_memory(tmp_path):
    packer = zlib.compressobj(1)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()  # 200 MiB of zeros
    pixels, deep = zlib.compress(bytes(8 * 25)), zlib.compress(bytes(8 * 49))
    bombs = {
        "itxt": png(8, 8, chunk(b"iTXt", b"comment\0\1\0\0\0" + bomb), pixels=pixels),
        "iccp": png(8, 8, chunk(b"iCCP", b"profile\0\0" + bomb), pixels=pixels),
        "idat": png(8, 8, pixels=bomb),
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


MEASURE_AND_COMPARE = """
import pathlib, sys
from cyclegan.images import codec_format, pillow_format, reader, tiff_format

estimates = [0]
for module in (codec_format, pillow_format, tiff_format, reader):
    module.check_size = lambda width, height, memory=0: estimates.append(memory / 1e6)

def peak():
    return int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1e3

for path in sys.argv[1:]:
    channels = 5 if "five" in path else 3
    for value_range in (None, (0, 1000)):
        for turn in range(2):  # the first one loads libraries
            pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            before = peak()
            estimates.clear()
            reader.decode(path, channels, value_range=value_range)
        print(pathlib.Path(path).name, value_range, peak() - before, max(estimates), sep="|")
"""


@pytest.mark.slow
def test_memory_limit_holds_for_what_decoding_takes(tmp_path):
    """Compare the memory that decoding takes with the estimate that `check_size` gets, for the greediest files."""
    side = 3000
    rgb = Image.new("RGB", (side, side))
    for name, image, options in (
        ("progressive.jpg", rgb, {"progressive": True, "subsampling": 0}),
        ("cmyk.jpg", rgb.convert("CMYK"), {"progressive": True}),
        ("rgba.png", rgb.convert("RGBA"), {}),
        ("gray.png", Image.fromarray(np.zeros((side, side), np.uint16)), {}),
        ("palette.gif", rgb.quantize(4), {"transparency": 0}),
        ("rgba.webp", rgb.convert("RGBA"), {"lossless": True}),
        ("rgba.tiff", rgb.convert("RGBA"), {"compression": "tiff_lzw"}),
        ("jpeg.tiff", rgb, {"compression": "jpeg"}),
    ):
        image.save(tmp_path / name, **options)
    deep = np.zeros((side, side, 4), np.uint16)
    (tmp_path / "deep.png").write_bytes(deep_png(deep))
    (tmp_path / "deep.tiff").write_bytes(tiff_of(deep, compression="zlib", extrasamples=["unassalpha"]))
    five = np.zeros((side, side, 5), np.uint8)
    rgb = deep[..., :3].astype(np.uint8)
    for compression in ("jpeg", "jpeg2000"):
        content = tiff_of(rgb, compression=compression, rowsperstrip=side)
        (tmp_path / f"{compression}.tif").write_bytes(content)
    for name, codec, pixels in (
        ("a.jp2", "jpeg2k", rgb),
        ("deep.jp2", "jpeg2k", deep[..., :3]),
        ("a.jxl", "jpegxl", rgb),
        ("deep.jxl", "jpegxl", deep),
        ("a.avif", "avif", rgb),
    ):
        (tmp_path / name).write_bytes(getattr(imagecodecs, f"{codec}_encode")(pixels))
    (tmp_path / "five bands.tiff").write_bytes(tiff_of(five, compression="lzw", rowsperstrip=side))
    command = [sys.executable, "-c", MEASURE_AND_COMPARE, *sorted(map(str, tmp_path.iterdir()))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line.split("|") for line in done.stdout.splitlines()]
    print(done.stdout)
    assert len(lines) == 36
    for name, value_range, megabytes, estimate in lines:
        assert float(megabytes) < float(estimate) + 12, (name, value_range)  # 12 for blocks of rows


class _Trap:
    """Make a folder when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("kind", ["eps", "pdf", "pickle", "svg", "ppm", "empty"])
def test_other_files_are_neither_run_nor_read(tmp_path, kind, monkeypatch):
    content = {
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n",
        "pdf": b"%PDF-1.4\n1 0 obj <</Type /Catalog>> endobj\ntrailer <</Root 1 0 R>>\n%%EOF\n",
        "pickle": pickle.dumps(_Trap(str(tmp_path / "trap"))),
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"></svg>',
        "ppm": b"P6 8 8 255\n" + bytes(192),  # Pillow would open it without a list of formats
        "empty": b"",
    }[kind]
    run = unittest.mock.Mock(side_effect=AssertionError("a program was started"))
    monkeypatch.setattr(subprocess, "Popen", run)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.png"
    path.write_bytes(content)
    names = {"eps": "a PostScript file", "pdf": "a PDF file", "svg": "an SVG file", "ppm": "a PNM file (PGM, PPM)"}
    text = f"{names[kind]}, not an image" if kind in names else "an empty file" if kind == "empty" else "not an image"
    assert f"{path} ({text}" in refused(path)
    assert not (tmp_path / "trap").exists() and not run.called
