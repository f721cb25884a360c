"""Files of all formats, and of none: their pixels, or the reason why they are refused."""

import io
import struct
import sys
import types
import zlib

import imagecodecs
import numpy as np
import pytest
from PIL import Image, ImageCms

from cyclegan.data import folder_source
from cyclegan.errors import MissingPackageError
from cyclegan.images import codec_format, reader
from tests.images.samples import VALID, chunk, deep_values, png, swapped_profile, tiff, tiff_of

COLORS = np.random.default_rng(0).integers(0, 256, (12, 10, 3)).astype(np.uint8)
TWELVE = np.random.default_rng(1).integers(0, 4096, (12, 10, 3)).astype(np.uint16)
LOSSLESS = {
    "jpegxl": {"lossless": True},
    "jpeg2k": {"level": 0},
    "avif": {"level": 100},
    "ljpeg": {"bitspersample": 12},
}


def encoded(codec, pixels, **options):
    return getattr(imagecodecs, f"{codec}_encode")(pixels, **LOSSLESS.get(codec, {}), **options)


@pytest.mark.parametrize("codec, name", [("jpegxl", "a.jxl"), ("jpeg2k", "a.jp2"), ("avif", "a.avif")])
def test_newer_formats_of_8_and_16_bits(tmp_path, codec, name):
    for pixels in (COLORS, COLORS[..., 0], deep_values(3), deep_values(1)[..., 0]):
        if codec == "avif" and pixels.dtype == np.uint16:
            continue  # Pillow reduces its 10 and 12 bits to 8
        (tmp_path / name).write_bytes(encoded(codec, pixels))
        channels = np.atleast_3d(pixels).shape[2]
        found = reader.decode(tmp_path / name, channels, pixels.dtype)
        assert np.abs(found.astype(int) - np.atleast_3d(pixels)).max() <= 2 * (codec == "avif")
        facts = reader.check(tmp_path / name, channels)
        assert facts[1:4] == (12, 10, pixels.dtype == np.uint16)
    assert folder_source.find_images(tmp_path) == [name]
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-30])
    with pytest.raises(ValueError, match="^a damaged .* file: "):
        reader.decode(tmp_path / name)


@pytest.mark.parametrize("codec", ["jpeg8", "ljpeg", "jpeg2k"])
def test_12_bits_fill_the_range_of_16(codec):
    gray = TWELVE[..., :1]
    options = {"bitspersample": 12} if codec != "ljpeg" else {}
    content = encoded(
        codec, np.ascontiguousarray(gray[..., 0]), **options, **({"level": 99} if codec == "jpeg8" else {})
    )
    assert codec_format.size_of(content)[:4] == (10, 12, 1, 12) and reader.check(content, 1).deep
    tolerance = 40 if codec == "jpeg8" else 0
    values = reader.decode_values(content, 1).pixels  # as in the file, for a value range
    assert np.abs(values.astype(int) - gray).max() <= tolerance
    levels = reader.decode(content, 1, np.uint16)
    np.testing.assert_array_equal(levels, np.rint(values * (65535 / 4095)))


def test_opacity_of_10_bits():
    values = np.array([[[400, 300, 200, 1023], [400, 300, 200, 0], [400, 300, 200, 512]]], np.uint16)
    image = reader.decode_values(encoded("jpegxl", values, bitspersample=10), 3, any_type=False)
    blended = np.array([[400, 300, 200], [1023] * 3, [711.2, 661.1, 611.1]]) * (65535 / 1023)
    assert np.abs(image.pixels[0] - blended).max() < 65
    np.testing.assert_array_equal(image.opacity[0, :, 0], np.rint(values[0, :, 3] * (65535 / 1023)))


def test_a_box_may_have_a_length_of_8_bytes():
    """Photoshop writes such boxes into JPEG 2000 files."""
    content = encoded("jpeg2k", COLORS)
    start = content.index(b"jp2c") - 4
    longer = b"\0\0\0\1jp2c" + (len(content) - start + 8).to_bytes(8, "big")
    np.testing.assert_array_equal(reader.decode(content[:start] + longer + content[start + 8 :]), COLORS)


def test_a_lossless_jpeg_of_8_bits():
    content = imagecodecs.jpeg8_encode(COLORS, lossless=True)
    assert reader.check(content)[1:4] == (12, 10, False)
    np.testing.assert_array_equal(reader.decode(content), COLORS)


@pytest.mark.parametrize("bands", [2, 4])
def test_the_last_band_of_jpeg_2000_is_opacity_only_if_the_file_says_so(tmp_path, bands):
    values = deep_values(bands).astype(np.uint8)
    for content, is_opacity in ((encoded("jpeg2k", values), False), (tmp_path / "a.jp2", True)):
        if is_opacity:
            Image.fromarray(values).save(content)
        np.testing.assert_array_equal(reader.decode(content, bands), values)
        if is_opacity:
            assert reader.decode_values(content, bands - 1).opacity is not None
            continue
        with pytest.raises(ValueError, match=f"bands: {bands}; expected gray or RGB"):
            reader.check(content, bands - 1)


def test_a_jpeg_xl_file_has_the_size_of_its_header():
    assert codec_format.size_of(bytes.fromhex("ff0a01840582e29600000107"))[:2] == (8, 24)  # stored lying
    for shape in ((12, 10, 3), (13, 300), (256, 256, 4), (1000, 700, 3), (72, 128, 3), (9, 16)):
        for dtype in (np.uint8, np.uint16):
            size = codec_format.size_of(encoded("jpegxl", np.zeros(shape, dtype), effort=1))
            assert (size.height, size.width, size.bits) == (*shape[:2], 8 * np.dtype(dtype).itemsize)
            assert size.bands == {(): 3, (3,): 3, (4,): 4}[shape[2:]]
    huge = bytearray(encoded("jpegxl", np.zeros((1000, 700, 3), np.uint8)))
    huge[2:7] = (0b1 | 0b11 << 1 | (2**30 - 1) << 3).to_bytes(5, "little")
    with pytest.raises(ValueError, match="pixels"):
        reader.check(bytes(huge))


@pytest.mark.parametrize(
    "content, text",
    [
        (b"", "an empty file"),
        (b"\n<!DOCTYPE html><html>404</html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS pointer"),
        (bytes(100), "only zeros"),
        (b'{"a": 1}', "a text"),
        (b"\xef\xbb\xbf<!-- a page --><html>", "HTML"),
        (b"P5 8 8 255 " + bytes(64), "a PNM file"),
        ("<!DOCTYPE html><html>".encode("utf-16"), "HTML, not an image"),
        (b"\xfe\xff" + "\n<html>".encode("utf-16-be"), "HTML, not an image"),
        (b"\xff\xfe\xd8\xd8" + bytes(100), "not an image"),
        (b"DDS |\0\0\0" + bytes(100), "a DDS file, not an image"),
        (b"v/1\1\2\0\0\0" + bytes(100), "an OpenEXR file, not an image"),
        (b"icns\0\0\1\0" + bytes(100), "an ICNS file, not an image"),
        (b"\0\0\0\x18ftypcrx " + bytes(64), "a raw photo"),
        (b"\x93NUMPY\1\0", "a damaged NPY file: truncated"),
        (b"PK\3\4" + bytes(26) + b"arr_0.npy", "a damaged NPZ file: its header cannot be decoded"),
        (b"PK\3\4" + bytes(26) + b"photos/1.jpg", "a ZIP archive, not an image"),
        (b"SIMPLE  =                    T", "a FITS file, not an image"),
        (b"#?RADIANCE\n", "a Radiance HDR file"),
        (b"ZISRAWFILE" + bytes(9), "a CZI file"),
        (b"\xda\xce\xbe\n" + bytes(9), "an ND2 file"),
        (b"\x70\0\0\0" + bytes(9), "a LIF file"),
        (b"\x89HDF\r\n\x1a\n" + bytes(9), "an HDF5 file"),
        (b"II\xbc\1" + bytes(9), "a JPEG XR file"),
        (b"IIRO" + bytes(9), r"a raw photo .ORF."),
        (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "a WMV film"),
        (b"\x08\0\5\0CS\x0a\0ISO_IR 100", "perhaps DICOM without a preamble"),
        (b"\x1f\x8b\x08", "a gzip file, not an image"),
        (b"RIFF\x10\0\0\0WAVEfmt ", "a RIFF file, such as a WAV file, not an image"),
        (b"GIF89a", "a damaged GIF file: its header cannot be decoded"),
        (VALID["jpeg"][: len(VALID["jpeg"]) // 2], "a damaged JPEG file: truncated"),
        (VALID["16 bit png"][:200], "a damaged PNG file: "),
        (b"\xff\x4f\xff\x51", "a damaged JPEG2000 file: its header cannot be decoded"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "a damaged JPEGXL file: its header cannot be decoded"),
        (VALID["bmp"][:30] + b"\2" + VALID["bmp"][31:], "a BMP file with run-length encoding"),
        (VALID["bmp"][:28] + b"\2" + VALID["bmp"][29:], "a BMP file of a kind that cannot be decoded"),
        (tiff(0, 5), "TIFF, a damaged file, whose header says 0 x "),
        (tiff(5, 0), "TIFF, a damaged file, whose header says 5 x 0 pixels"),
        (tiff_of(deep_values(3).astype(np.float32)), r"TIFF, 32 bits .float32.: expected a flat image of 8 or 16 bits"),
        (b"\xff\x4f\xff\x51" + bytes(37) + b"\1\7", "JPEG2000, a damaged file, whose header says 0 x 0 pixels"),
        (VALID["five bands"], "TIFF, bands: 5; expected gray or RGB"),
    ],
)
def test_the_reason_names_what_was_found(content, text):
    with pytest.raises(ValueError, match=f"^{text}"):
        reader.decode(content)


@pytest.mark.parametrize("brands", [b"heic\0\0\0\0mif1heic", b"mif1\0\0\0\0mif1unci"])
def test_heic_needs_a_package(brands):
    with pytest.raises(MissingPackageError, match="a HEIC file, which needs the package pillow-heif"):
        reader.check(b"\0\0\0\x18ftyp" + brands + bytes(100))


def test_damaged_exif_does_not_matter(capfd):
    text = chunk(b"tEXt", b"Raw profile type exif\0\nexif\n  8\nno hexadecimal number")
    content = VALID["png"][:33] + text + VALID["png"][33:]
    np.testing.assert_array_equal(reader.decode(content), reader.decode(VALID["png"]))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["png", "tiff", "webp"])
def test_colors_are_converted_to_srgb(kind):
    def saved(pixels, profile, **options):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, kind, icc_profile=profile, **options)
        return file.getvalue()

    lossless = {"lossless": True} if kind == "webp" else {}
    image = reader.decode_values(saved(COLORS, swapped_profile(), **lossless))
    assert np.abs(image.pixels.astype(int) - COLORS[..., [1, 0, 2]]).max() <= 2
    assert not image.metadata.profile  # which would no longer be true
    alpha = np.full((12, 10, 1), 255, np.uint8)
    clear = reader.decode_values(saved(np.concatenate([COLORS, alpha], axis=2), swapped_profile(), **lossless))
    np.testing.assert_array_equal(clear.pixels, image.pixels)
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    same = reader.decode_values(saved(COLORS, srgb, **lossless))
    np.testing.assert_array_equal(same.pixels, COLORS)
    assert same.metadata.profile == srgb


@pytest.mark.parametrize("extra", [["unspecified"], ["unspecified"] * 2, ["unspecified", "unassalpha"]])
def test_bands_beside_the_colors_of_a_profile(extra):
    other = np.full((12, 10, len(extra)), 255 if "unassalpha" in extra else 0, np.uint8)
    content = tiff_of(
        np.concatenate([COLORS, other], axis=2), photometric="rgb", extrasamples=extra, iccprofile=swapped_profile()
    )
    image = reader.decode_values(content)
    assert np.abs(image.pixels.astype(int) - COLORS[..., [1, 0, 2]]).max() <= 2 and not image.metadata.profile
    assert (image.opacity is None) == ("unassalpha" not in extra)


def test_the_profile_of_a_jpeg_2000_file():
    content = encoded("jpeg2k", COLORS)
    colors = content.index(b"colr") - 4
    length = int.from_bytes(content[colors : colors + 4], "big")
    image = reader.decode_values(with_box(content, b"colr", b"\2\0\0" + swapped_profile(), length))
    assert np.abs(image.pixels.astype(int) - COLORS[..., [1, 0, 2]]).max() <= 2 and not image.metadata.profile


def with_box(content, name, data, replaced=0):
    """Return a JPEG 2000 file with a box in front of the one of its color space, or instead of its bytes."""
    colors, header, box = content.index(b"colr") - 4, content.index(b"jp2h") - 4, name + data
    size = int.from_bytes(content[header : header + 4], "big") + len(box) + 4 - replaced
    parts = content[:header], size.to_bytes(4, "big"), content[header + 4 : colors], (len(box) + 4).to_bytes(4, "big")
    return b"".join([*parts, box, content[colors + replaced :]])


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("order", [(2, 1, 0), (1, 2, 0), (0, 1, 2), (3, 0, 1, 2), (1, 0)])
def test_exchanged_bands_of_a_jpeg_2000_file(order, deep):
    """`order` has the color of each band, 0 for red; the last one of 2 and of 4 is opacity."""
    bands = deep_values(len(order)) if deep else deep_values(len(order)).astype(np.uint8)
    content = encoded("jpeg2k", np.ascontiguousarray(bands[..., order]))
    opacity = {1: 1, 3: 3}.get(len(order) - 1)
    kinds = [(i, 1, 0) if color == opacity else (i, 0, color + 1) for i, color in enumerate(order)]
    entries = b"".join(struct.pack(">3H", *each) for each in kinds)
    if b"cdef" in content:  # says that the last band is opacity
        start = content.index(b"cdef") + 6
        whole = content[:start] + entries + content[start + len(entries) :]
    else:
        whole = with_box(content, b"cdef", struct.pack(">H", len(order)) + entries)
    np.testing.assert_array_equal(reader.decode(whole, len(order), bands.dtype), bands)


def test_exchanged_bands_of_a_palette_or_of_cmyk_are_refused():
    palette = with_box(encoded("jpeg2k", COLORS[..., 0]), b"pclr", struct.pack(">HB3B3B", 1, 3, 7, 7, 7, 1, 2, 3))
    cmyk = encoded("jpeg2k", deep_values(4).astype(np.uint8)).replace(b"colr\1\0\0\0\0\0\x10", b"colr\1\0\0\0\0\0\x0c")
    for order, is_exchanged in (((0, 1, 2, 3), False), ((2, 1, 0, 3), True)):
        mapping = b"".join(struct.pack(">HBB", 0, 1, column) for column in order[:3])
        entries = b"".join(struct.pack(">3H", band, 0, color + 1) for band, color in enumerate(order))
        for whole in (with_box(palette, b"cmap", mapping), with_box(cmyk, b"cdef", b"\0\4" + entries)):
            assert codec_format._has_exchanged_bands(whole) == is_exchanged
            if is_exchanged:
                with pytest.raises(ValueError, match="a JPEG2000 file of exchanged bands with a palette or in CMYK"):
                    reader.check(whole)


def test_other_colors_of_a_jpeg_xl_file(monkeypatch):
    headers = {  # cjxl's for sRGB, an ICC profile, and primaries by numbers
        "ff0a4f40407121080201008c": True,
        "ff0a4f40086f0d0312e60190": False,
        "ff0a4f404242d227d1ef4904": False,
    }
    for header, is_srgb in headers.items():
        assert codec_format.size_of(bytes.fromhex(header)) == (64, 64, 3, 8, 0, is_srgb)
    content = encoded("jpegxl", COLORS)
    assert codec_format.size_of(content).is_srgb and codec_format.size_of(encoded("jpegxl", COLORS[..., 0])).is_srgb
    size = codec_format.size_of(content)._replace(is_srgb=False)
    monkeypatch.setattr(codec_format, "size_of", lambda data: size)
    monkeypatch.setitem(sys.modules, "pillow_jxl.JpegXLImagePlugin", None)
    with pytest.raises(MissingPackageError, match="a JPEG XL file of other colors than sRGB.* pillow-jxl-plugin"):
        reader.check(content)
    found = types.SimpleNamespace(info={"icc_profile": swapped_profile()})
    plugin = types.SimpleNamespace(JXLImageFile=lambda file: found)
    monkeypatch.setitem(sys.modules, "pillow_jxl.JpegXLImagePlugin", plugin)
    assert np.abs(reader.decode(content).astype(int) - COLORS[..., [1, 0, 2]]).max() <= 2


def test_a_jpeg_xl_file_of_several_boxes():
    """As cjxl writes it from a JPEG: a few bytes of the header are in a box of their own."""
    content = encoded("jpegxl", COLORS)
    file = b"\0\0\0\x0cJXL \r\n\x87\n" + b"\0\0\0\x14ftypjxl \0\0\0\0jxl "
    for number, part in ((0, content[:5]), (0x80000001, content[5:])):
        file += struct.pack(">I4sI", 12 + len(part), b"jxlp", number) + part
    np.testing.assert_array_equal(reader.decode(file), COLORS)


ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]


@pytest.mark.parametrize("bands, color_type", [(1, 0), (2, 4), (3, 2), (4, 6)])
def test_interlaced_16_bits_without_a_line_of_libpng(bands, color_type, capfd):
    values = deep_values(bands, 9, 11)
    parts = [values[top::down, left::right].astype(">u2") for top, left, down, right in ADAM7]
    rows = b"".join(b"\0" + row.tobytes() for part in parts for row in part)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 11, 9, 16, color_type, 0, 0, 1))
    content = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    np.testing.assert_array_equal(reader.decode_values(content, bands).pixels, values)
    assert capfd.readouterr() == ("", "")


def test_16_bits_keep_their_profile():
    profile = swapped_profile()  # holds the time
    content = png(10, 12, chunk(b"iCCP", b"a\0\0" + zlib.compress(profile)), bits=16)
    pixels = imagecodecs.png_encode(deep_values(3))
    image = reader.decode_values(content[: content.index(b"IDAT") - 4] + pixels[33:])
    np.testing.assert_array_equal(image.pixels, deep_values(3))
    assert image.metadata.profile == profile


def test_damage_that_libtiff_only_prints_is_an_error():
    noise = Image.fromarray(np.random.default_rng(0).random((64, 64)) < 0.5)
    file = io.BytesIO()
    noise.save(file, "tiff", compression="group4")
    content = file.getvalue()
    np.testing.assert_array_equal(reader.decode(content, 1)[..., 0], np.asarray(noise) * 255)
    end = b"\x00\x10\x01"  # a fax may end early, and the rest of the pixels would be as they are in memory
    for damaged in (content[:200] + end + content[203:], content[:200] + b"\xff" * 9 + content[209:]):
        for function in (reader.check, reader.decode):
            with pytest.raises(ValueError, match="a damaged TIFF file: its fax"):
                function(damaged, 1)
