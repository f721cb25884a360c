"""Reading of TIFF files with tifffile."""

import io
import struct

import numpy as np
import pytest
import tifffile
from PIL import Image

from cyclegan.images import reader, tiff_format
from cyclegan.images.image import OTHER_TYPES
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
    with pytest.raises(ValueError, match="bands: 5; expected 4 .--channels_x, --channels_y in training"):
        reader.check(content, 4)
    for channels in (1, 3):
        for function in (reader.check, reader.decode):
            with pytest.raises(ValueError, match="bands: 5; expected gray or RGB pixels, or another --channels_x"):
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
        ({"photometric": "cielab", "compression": "jpeg"}, "compression JPEG and colors CIELAB: expected one of"),
    ],
)
def test_other_kinds_of_tiff_are_refused(options, text):
    values = deep_values(3).astype(np.uint8) if "cielab" in options.values() else deep_values(5)
    for function in (reader.check, reader.decode):
        with pytest.raises(ValueError, match=text):
            function(tiff_of(values, **options), values.shape[2])


@pytest.mark.parametrize("dtype", OTHER_TYPES)
def test_values_of_other_types_need_a_range(dtype):
    low = 0 if dtype.startswith("uint") else -100
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


def test_gray_and_opacity_in_planes():
    values = np.stack([np.full((6, 5), 100), np.full((6, 5), 51)]).astype(np.uint8)
    file = io.BytesIO()
    options = {"photometric": "minisblack", "planarconfig": "separate", "extrasamples": ["unassalpha"]}
    tifffile.imwrite(file, values, compression="zlib", **options)
    assert (reader.decode(file.getvalue(), 2) == [100, 51]).all()
    assert (reader.decode(file.getvalue(), 1) == 224).all()  # 100 * 0.2 + 255 * 0.8


def test_bands_of_unknown_meaning_stay_beside_rgb():
    values = deep_values(4).astype(np.uint8)
    content = tiff_of(values, extrasamples=["unspecified"])
    np.testing.assert_array_equal(reader.decode(content, 4), values)
    np.testing.assert_array_equal(reader.decode(content, 3), values[..., :3])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("bits", [8, 16])
def test_palettes_of_8_and_of_16_bits(bits, dtype):
    highest = np.iinfo(dtype).max
    table = np.random.default_rng(0).integers(0, 256, (3, highest + 1)).astype(np.uint16)
    indices = deep_values(1).astype(dtype)
    content = tiff_of(indices, photometric="palette", colormap=table if bits == 8 else table * 257)
    assert not reader.check(content).deep
    np.testing.assert_array_equal(reader.decode(content), table.T[indices[..., 0]])


def gray_with_tags(path, image, extra, **tags):
    """Write gray values [h, w, bands], `extra` tags and other values of tags that have one; return the path."""
    tifffile.imwrite(path, image, photometric="minisblack", planarconfig="contig", extratags=extra, metadata=None)
    with tifffile.TiffFile(path, mode="r+") as file:
        for name, value in tags.items():
            file.pages[0].tags[name].overwrite(value)
    return path


def test_palettes_of_two_colors_and_with_more_bands(tmp_path):
    table = np.random.default_rng(0).integers(1, 256, (3, 256)).astype(np.uint16)
    for highest, kind in ((1, None), (255, 2), (255, 0)):  # 2 is opacity
        indices = np.random.default_rng(0).integers(0, highest + 1, (12, 16))
        image = indices if kind is None else np.dstack([indices, np.full((12, 16), 255 if kind else 3)])
        colors = table[:, : highest + 1] * 257
        tags = {} if kind is None else {"ExtraSamples": kind}
        path = gray_with_tags(
            *(tmp_path / "a.tif", image.astype(bool if kind is None else np.uint8)),
            [(320, 3, colors.size, colors.ravel().tolist(), True)],
            **{"PhotometricInterpretation": 3, **tags},
        )
        np.testing.assert_array_equal(reader.decode(path), table.T[indices])


def test_uncompressed_colors_of_fewer_pixels(tmp_path):
    """Cameras write one Cb and one Cr for two pixels: Y, Y, Cb, Cr."""
    gray = np.random.default_rng(0).integers(0, 256, (8, 16)).astype(np.uint8)
    units = np.dstack([gray.reshape(8, 8, 2), np.full((8, 8, 2), 128, np.uint8)]).reshape(8, 32)
    tags = {"ImageWidth": 16, "SamplesPerPixel": 3, "BitsPerSample": (8, 8, 8), "PhotometricInterpretation": 6}
    path = gray_with_tags(tmp_path / "a.tif", units, [(530, 3, 2, (2, 1), True)], **tags)
    np.testing.assert_array_equal(reader.decode(path, 1)[..., 0], gray)
    path.write_bytes(path.read_bytes().replace(units[4:].tobytes(), b""))
    for function in (reader.check, reader.decode):
        with pytest.raises(ValueError, match="a damaged TIFF file"):
            function(path)


def test_lab_becomes_rgb():
    """Lab has unsigned lightness and signed a and b."""
    lab = np.array([[[128, 0, 0], [136, 81, 70], [224, 177, 81]]], np.uint8)  # gray, red, green
    found = reader.decode(tiff_of(lab, photometric="cielab"))[0].astype(int)
    assert np.abs(found - [[119] * 3, [255, 0, 0], [0, 255, 0]]).max() < 16


def test_values_of_unknown_meaning_are_not_inverted(tmp_path):
    for dtype in (np.uint8, np.float32):
        path = gray_with_tags(tmp_path / "a.tif", deep_values(1).astype(dtype)[..., 0], [])
        content = path.read_bytes().replace(struct.pack("<HHI", 262, 3, 1), struct.pack("<HHI", 65000, 3, 1))
        np.testing.assert_array_equal(reader.decode_values(content, 1).pixels, deep_values(1).astype(dtype))


def test_spot_colors_stay_beside_cmyk():
    ink = np.random.default_rng(0).integers(0, 256, (12, 10, 5)).astype(np.uint8)
    content = tiff_of(ink, photometric="separated", extrasamples=["unspecified"])
    np.testing.assert_array_equal(reader.decode(content), reader.decode(tiff_of(ink[..., :4], photometric="separated")))


@pytest.mark.parametrize("layout", ["contig", "separate"])
def test_other_colors_become_rgb(layout):
    colors = Image.fromarray(np.random.default_rng(0).integers(0, 256, (12, 10, 3)).astype(np.uint8))
    for photometric, mode in (("ycbcr", "YCbCr"), ("separated", "CMYK")):
        pixels = np.asarray(colors.convert(mode))
        file = io.BytesIO()
        planes = pixels if layout == "contig" else np.moveaxis(pixels, 2, 0)
        options = {"subsampling": (1, 1)} if mode == "YCbCr" else {}
        tifffile.imwrite(file, planes, photometric=photometric, planarconfig=layout, metadata=None, **options)
        assert np.abs(reader.decode(file.getvalue()).astype(int) - np.asarray(colors)).max() <= 3


@pytest.mark.parametrize("opacity", [False, True])
def test_ycbcr_of_other_weights(opacity):
    """Compare with ITU-R BT.709."""
    colors, weights = np.random.default_rng(0).integers(0, 256, (12, 10, 3)), np.array([2126, 7152, 722])
    luma = colors @ (weights / 10_000)
    parts = [128 + (colors[..., i] - luma) / (2 - weights[i] / 5000) for i in (2, 0)]
    pixels = np.rint(np.stack([luma, *parts, *[np.full((12, 10), 255)] * opacity], axis=2)).clip(0, 255)
    video = "YCbCr with ReferenceBlackWhite 16, 255, 128, 255, 128, 255: expected 0 to 255, or RGB"
    for divisor, black, text in (
        (10_000, 0, ""),
        (0, 0, "weights .0 0 0. of YCbCr; expected three above 0"),
        (10_000, 16, video),
    ):
        tag = (529, "2I", 3, tuple(part for number in weights.tolist() for part in (number, divisor)), True)
        levels = (532, "2I", 6, (black, 1, 255, 1, 128, 1, 255, 1, 128, 1, 255, 1), True)
        options = {"photometric": "ycbcr", "subsampling": (1, 1), "extrasamples": ["unassalpha"] * opacity}
        content = tiff_of(pixels.astype(np.uint8), extratags=[tag, levels], **options)
        if text:
            with pytest.raises(ValueError, match=text):
                reader.decode(content)
            continue
        assert np.abs(reader.decode(content).astype(int) - colors).max() <= 3
        assert np.abs(reader.decode(content, 1)[..., 0] - colors @ [0.299, 0.587, 0.114]).max() <= 3


@pytest.mark.parametrize("tile", [None, (32, 32)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_gray_jpeg_xl(dtype, tile):
    levels = deep_values(1, 48, 40).astype(dtype)
    content = tiff_of(
        levels, compression="jpegxl", compressionargs={"lossless": True}, photometric="minisblack", tile=tile
    )
    np.testing.assert_array_equal(reader.decode(content, 1, dtype), levels)


@pytest.mark.parametrize("compression", ["jpeg", "jpeg2000", "webp", "jpegxl", "lerc", "zstd"])
def test_compressions(compression):
    smooth = np.indices((64, 48)).sum(axis=0)[..., None] * np.array([1, 2, 2])
    content = tiff_of(smooth.astype(np.uint8), compression=compression, tile=(32, 32))
    assert reader.check(content).deep is False
    np.testing.assert_allclose(reader.decode(content), smooth.astype(np.uint8), atol=25 if compression == "jpeg" else 4)


def test_a_tile_has_the_size_of_the_header():
    """Otherwise a small file could take any amount of memory."""
    small, large = (tiff_of(np.zeros((side, side, 3), np.uint8), compression="jpeg") for side in (16, 4000))
    page = tifffile.TiffFile(io.BytesIO(small)).pages[0]
    start, strip = len(small), large[tifffile.TiffFile(io.BytesIO(large)).pages[0].dataoffsets[0] :]
    swaps = ((page.tags[273].valueoffset, start), (page.tags[279].valueoffset, len(strip)))
    content = bytearray(small + strip)
    for place, value in swaps:
        struct.pack_into("<I" if len(strip) > 65535 or place == swaps[0][0] else "<H", content, place, value)
    with pytest.raises(ValueError, match="a strip or tile has another size than its header promises"):
        reader.decode(bytes(content))


@pytest.mark.parametrize("bits", [1, 3, 4, 10, 12, 14])
def test_packed_bits(bits):
    values = np.random.default_rng(0).integers(0, 2**bits, (6, 8)).astype(np.uint16)
    packed = np.packbits((values[..., None] >> np.arange(bits - 1, -1, -1)) & 1)
    content = tiff(8, 6).replace(struct.pack("<HHII", 258, 4, 1, 8), struct.pack("<HHII", 258, 4, 1, bits))
    for tag, value in ((273, len(content)), (279, packed.nbytes)):
        old = 8 if tag == 273 else 48
        content = content.replace(struct.pack("<HHII", tag, 4, 1, old), struct.pack("<HHII", tag, 4, 1, value))
    content += packed.tobytes()
    levels = np.rint(values * ((255 if bits < 8 else 65535) / (2**bits - 1)))
    np.testing.assert_array_equal(reader.decode(content, 1, np.uint8 if bits < 8 else np.uint16)[..., 0], levels)
    if bits > 8:
        np.testing.assert_array_equal(reader.decode_values(content, 1).pixels[..., 0], values)


def test_overviews_are_no_pages_and_channels_are_bands(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as writer:
        writer.write(np.zeros((32, 32), np.uint8), photometric="minisblack")
        writer.write(np.zeros((16, 16), np.uint8), photometric="minisblack", subfiletype=1)
    assert reader.count(tmp_path / "a.tif") == 1
    for below in (False, True):  # a preview in front of its image, or with its image below it, as in DNG
        with tifffile.TiffWriter(tmp_path / "b.tif") as writer:
            options = {"photometric": "minisblack", "metadata": None}
            writer.write(np.zeros((16, 16), np.uint8), subfiletype=1, subifds=int(below), **options)
            writer.write(np.full((32, 24), 7, np.uint8), **options)
        assert reader.check(tmp_path / "b.tif")[1:3] == (32, 24) and reader.count(tmp_path / "b.tif") == 1
        assert (reader.decode(tmp_path / "b.tif", 1) == np.full((32, 24, 1), 7)).all()
    values = np.moveaxis(deep_values(4), 2, 0)
    for name, options in (("a.ome.tif", {"ome": True}), ("b.tif", {"imagej": True})):
        path = tmp_path / name
        tifffile.imwrite(path, values, photometric="minisblack", metadata={"axes": "CYX"}, **options)
        np.testing.assert_array_equal(reader.decode(path, 4, np.uint16), deep_values(4))
        np.testing.assert_array_equal(reader.decode(path, 1, np.uint16), deep_values(4)[..., :1])
        assert reader.count(path) == 1


@pytest.mark.parametrize("kind", [*TIFFS, "in planes", "in pages", "as jpeg"])
def test_rows_are_decoded_by_themselves(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(tiff_format, "LARGE_PIXELS", 1000)
    path, values = tmp_path / "a.tif", deep_values(3, 90, 70)
    if kind == "in planes":
        planes = np.moveaxis(values, 2, 0)
        tifffile.imwrite(
            path, planes, photometric="rgb", planarconfig="separate", tile=(16, 32), compression="zlib", predictor=True
        )
    elif kind == "in pages":
        options = {"photometric": "minisblack", "rowsperstrip": 7, "compression": "zlib"}
        tifffile.imwrite(path, np.moveaxis(values, 2, 0), ome=True, metadata={"axes": "CYX"}, **options)
    elif kind == "as jpeg":
        path.write_bytes(tiff_of((values >> 8).astype(np.uint8), compression="jpeg", tile=(32, 16)))
    else:
        path.write_bytes(tiff_of(values, **TIFFS[kind]))
    whole = reader.decode_values(path, 3).pixels
    with reader.open_rows(path, 3, any_type=False) as image:
        assert (image.header.height, image.header.width) == (90, 70)
        for start, stop in ((0, 90), (0, 1), (15, 17), (31, 70), (89, 90)):
            np.testing.assert_array_equal(image.read(slice(start, stop)).pixels, whole[start:stop])


@pytest.mark.parametrize("compression", [None, "zlib", "jpeg"])
def test_empty_tiles_have_the_value_of_missing_data(tmp_path, monkeypatch, compression):
    """GDAL leaves out such tiles with SPARSE_OK."""
    path, full = tmp_path / "a.tif", np.full((32, 32), 200, np.uint8)
    tags = [(tiff_format.GDAL_NODATA, "s", 0, "7", True)]
    options = {"photometric": "minisblack", "tile": (32, 32), "extratags": tags, "compression": compression}
    tifffile.imwrite(path, iter([full, None, None, full]), shape=(64, 64), dtype=np.uint8, **options)
    expected = np.kron([[200, 7], [7, 200]], np.ones((32, 32)))
    reader.check(path, 1)
    np.testing.assert_array_equal(reader.decode(path, 1)[..., 0], expected)
    monkeypatch.setattr(tiff_format, "LARGE_PIXELS", 1000)
    with reader.open_rows(path, 1, any_type=False) as image:
        np.testing.assert_array_equal(image.read(slice(20, 50)).pixels[..., 0], expected[20:50])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="truncated"):
        reader.check(path, 1)


def test_a_file_of_any_size_is_read_by_the_tiles_that_hold_the_rows(tmp_path, monkeypatch):
    """Memory is bounded: few tiles are read, and images of other sizes and kinds are not read in this way."""
    path, side, read, original = tmp_path / "a.tif", 20_480, [], tiff_format.TiffReader._read_segment
    empty = np.zeros((1024, 1024, 3), np.uint8)
    tifffile.imwrite(
        path, (empty for _ in range(400)), shape=(side, side, 3), dtype=np.uint8, tile=(1024, 1024), compression="zlib",
        photometric="rgb", maxworkers=1,
    )  # fmt: skip
    monkeypatch.setattr(tiff_format.TiffReader, "_read_segment", lambda *args: read.append(args[2]) or original(*args))
    reader.check(path, by_rows=True)
    with reader.open_rows(path, 3, any_type=False) as image:
        assert image.read(slice(3000, 3100)).pixels.shape == (100, side, 3)
    assert read == [*range(40, 80)]
    with pytest.raises(ValueError, match="20480 x 20480 pixels: expected at most 180 million"):
        reader.check(path)
    path.write_bytes(tiff_of(deep_values(3)))
    with reader.open_rows(path, 3, any_type=False) as image:
        assert image is None


def test_pages_have_no_other_axis(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((5, 8, 9), np.uint8), photometric="minisblack")
    assert reader.count(tmp_path / "a.tif", 1, 0) == 5
    with pytest.raises(ValueError, match="a TIFF file of several images, which has no --slice_axis 1"):
        reader.count(tmp_path / "a.tif", 1, 1)


def test_a_chain_of_pages_that_returns_ends():
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as tif:
        for _ in range(3):
            tif.write(np.zeros((4, 4), np.uint8), photometric="minisblack", metadata=None)
    content = bytearray(file.getvalue())
    first = struct.unpack_from("<I", content, 4)[0]
    with tifffile.TiffFile(io.BytesIO(content)) as tif:
        last = tif.pages[2].offset
    struct.pack_into("<I", content, last + 2 + 12 * struct.unpack_from("<H", content, last)[0], first)
    assert reader.check(bytes(content), 1).images == 3
