"""Writing of image files, which the readers read back."""

import numpy as np
import pytest
import tifffile
from PIL import Image

from cyclegan.errors import UserError
from cyclegan.images import formats, reader
from cyclegan.images.image import DecodedImage, Metadata
from cyclegan.inference import conversions


def noise(shape, dtype=np.uint8, seed=0):
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max + 1, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("ending", [".png", ".tif", ".tiff"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("clear", [False, True])
def test_lossless_formats_keep_every_bit(tmp_path, dtype, ending, channels, clear):
    pixels = noise((5, 7, channels), dtype)
    opacity = noise((5, 7, 1), dtype, 1) if clear else None
    path = tmp_path / "new" / f"a{ending}"
    formats.write(path, DecodedImage(pixels, opacity))
    found = reader.decode_values(path, channels)
    assert found.pixels.dtype == dtype
    np.testing.assert_array_equal(reader.decode(path, channels + clear, dtype)[..., :channels], pixels)
    np.testing.assert_array_equal(found.opacity, opacity)
    opaque = opacity.astype(np.float64) / np.iinfo(dtype).max if clear else 1
    over_white = pixels * opaque + np.iinfo(dtype).max * (1 - opaque)
    assert np.abs(found.pixels - over_white).max() <= 1
    assert [other.name for other in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("channels", [2, 4, 5])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_other_channels(tmp_path, channels, dtype):
    pixels = noise((4, 6, channels), dtype)
    for name in ("a.tif", "a.png") if channels < 5 else ("a.tif",):
        formats.write(tmp_path / name, DecodedImage(pixels))
        np.testing.assert_array_equal(reader.decode(tmp_path / name, channels, dtype), pixels)
    for name in ("b.jpg",) if channels < 5 else ("b.jpg", "b.png"):
        end = " or png" if channels < 5 else ""
        text = f"^{channels} channels don't fit into {formats.format_of(name)}: expected --format tiff{end}$"
        with pytest.raises(UserError, match=text):
            formats.write(tmp_path / name, DecodedImage(pixels))
    if channels < 5:  # a translation keeps the kind of the last channel
        formats.write(tmp_path / "c.tif", reader.decode_values(tmp_path / "a.png", channels))
        with tifffile.TiffFile(tmp_path / "c.tif") as tif:
            kinds = tif.pages[0].photometric.name, tif.pages[0].extrasamples
        assert kinds == ("RGB" if channels == 4 else "MINISBLACK", (tifffile.EXTRASAMPLE.UNASSALPHA,))


@pytest.mark.parametrize("name", ["a.jpg", "a.jpeg", "a.webp", "a.bmp", "a.gif"])
@pytest.mark.parametrize("channels", [1, 3])
def test_8_bit_formats_keep_the_upper_half(tmp_path, name, channels):
    ramp = np.linspace(0, 65535, 32).astype(np.uint16)
    pixels = np.broadcast_to(ramp[:, None, None], (32, 32, channels)).copy()
    opacity = np.full((32, 32, 1), 65535, np.uint16)
    opacity[:8] = 0
    formats.write(tmp_path / name, DecodedImage(pixels, opacity))
    found = reader.decode_values(tmp_path / name, channels)
    with Image.open(tmp_path / name) as image:
        assert image.format == {"a.jpg": "JPEG", "a.jpeg": "JPEG"}.get(name, name[2:].upper())
    opaque = slice(8, None)
    assert np.abs(found.pixels[opaque] - pixels[opaque] / 257).max() <= 5
    if name in ("a.webp", "a.gif"):
        np.testing.assert_array_equal(found.opacity, np.rint(opacity / 257))
    else:
        assert found.opacity is None


def test_limits_of_the_written_formats(tmp_path):
    wide = DecodedImage(np.zeros((1, 70_000, 1), np.uint8))
    for name in ("a.jpg", "a.webp", "a.gif"):
        with pytest.raises(UserError, match="^70000 x 1 pixels don't fit into .* expected --format png"):
            formats.write(tmp_path / name, wide)
    formats.write(tmp_path / "b.jpg", DecodedImage(noise((4, 4, 3)), metadata=Metadata(xmp=b"x" * 100_000)))
    assert reader.decode_values(tmp_path / "b.jpg").metadata.xmp == b""


def test_color_profile_is_kept(tmp_path):
    profile = b"an ICC profile, as far as anyone here looks" * 4
    types = {"a.png": np.uint8, "b.png": np.uint16, "a.jpg": np.uint8, "a.tif": np.uint8, "b.tif": np.uint16}
    for name, dtype in types.items():
        formats.write(tmp_path / name, DecodedImage(noise((8, 8, 3), dtype), None, Metadata(profile)))
        assert reader.decode_values(tmp_path / name).metadata.profile == profile, name


def test_failure_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    formats.write(path, DecodedImage(noise((4, 4, 3))))
    before = path.read_bytes()

    def full(self, file, format, **options):
        with open(file, "wb") as opened:
            opened.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(OSError, match="No space"):
        formats.write(path, DecodedImage(noise((4, 4, 3), seed=1)))
    assert path.read_bytes() == before
    assert [other.name for other in tmp_path.iterdir()] == ["a.png"]


def test_rows_are_made_only_for_a_file_that_can_be_written(tmp_path):
    (tmp_path / "out").write_bytes(b"")
    made = []
    with pytest.raises(OSError, match="out"):
        formats.write_rows(tmp_path / "out" / "a.tif", 1, (made.append(1) for _ in range(1)))
    assert not made


def test_metadata_is_kept(tmp_path):
    tags = Image.Exif()
    tags[0x010F], tags[0x0112] = "a camera", 6
    tags.get_ifd(0x8769).update({0xA002: 12, 0xA003: 8, 0x829A: 0.5})  # width and height in pixels, exposure
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    tags.update({0x011A: 300.0, 0x011B: 150.0, 0x0128: 2})
    Image.fromarray(noise((8, 12, 3))).save(tmp_path / "a.webp", lossless=True, exif=tags)
    assert reader.decode_values(tmp_path / "a.webp").metadata.resolution == (150, 300)
    Image.fromarray(noise((8, 12, 3))).save(tmp_path / "a.jpg", exif=tags, xmp=xmp, dpi=(300, 150))
    image = reader.decode_values(tmp_path / "a.jpg")
    assert image.pixels.shape == (12, 8, 3)
    extra = [(274, "H", 1, 6, True), (700, 1, len(xmp), xmp, True)]
    tifffile.imwrite(tmp_path / "a.tif", noise((8, 12, 3)), photometric="rgb", extratags=extra)
    assert reader.decode_values(tmp_path / "a.tif").metadata.xmp == image.metadata.xmp
    deep = DecodedImage(image.pixels * np.uint16(257), metadata=image.metadata)
    for name, source in (("b.jpg", image), ("b.png", image), ("b.webp", image), ("deep.png", deep), ("b.tif", image)):
        formats.write(tmp_path / name, source)
        assert reader.decode(tmp_path / name).shape == (12, 8, 3)
        with Image.open(tmp_path / name) as written:
            found = written.info.get("xmp", b"")
            assert b'tiff:Orientation="1"' in (found if isinstance(found, bytes) else found.encode()), name
            assert written.getexif().get(0x0112, 1) == 1 and (
                name == "b.tif" or written.getexif()[0x010F] == "a camera"
            )
            details = dict(written.getexif().get_ifd(0x8769))
            assert name == "b.tif" or details == {0xA002: 8, 0xA003: 12, 0x829A: 0.5}, name  # as it was turned
            found = [] if name == "b.webp" else [written.info["dpi"]]
            found += [[written.getexif()[tag] for tag in (0x011A, 0x011B)]]  # turned, too
            assert np.abs(np.array(found, float) - (150, 300)).max() < 0.1, name


@pytest.mark.parametrize("size", [(12, 8), (24, 4)])
def test_a_tiff_keeps_its_place_and_its_scale(tmp_path, size):
    geo = [(33550, "d", 3, (10.0, 20.0, 0.0), True), (33922, "d", 6, (0.0, 0.0, 0.0, 500.0, 700.0, 0.0), True)]
    numbers = [0.1, 0.1, 3.5, 5.5, 40.0, 9.0, 300.0, 4.0, 6.0, 0.1, 0.1, 500.0, *map(float, range(80))]
    keys = [(34735, "H", 4, (1, 1, 0, 0), True), (50844, "d", 92, numbers, True)]
    tifffile.imwrite(tmp_path / "a.tif", noise((8, 12)), extratags=geo + keys, resolution=(4, 2), resolutionunit=3)
    options = {"PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.25, "PhysicalSizeYUnit": "µm"}
    tifffile.imwrite(tmp_path / "a.ome.tif", noise((8, 12)), ome=True, metadata={"axes": "YX", **options})
    tifffile.imwrite(tmp_path / "j.tif", noise((8, 12)), imagej=True, resolution=(4, 2), metadata={"unit": "um"})
    wider, higher = size[0] / 12, size[1] / 8
    for name in ("a.tif", "a.ome.tif", "j.tif"):
        image = conversions.resize(reader.decode_values(tmp_path / name, 1), size)
        formats.write(tmp_path / "out" / name, image)
    with tifffile.TiffFile(tmp_path / "out" / "a.tif") as file:
        tags = file.pages[0].tags
        assert tags[33550].value == (10 / wider, 20 / higher, 0) and tags[33922].value == geo[1][3]
        assert tags[34735].value == keys[0][3]
        numbers[2:4], numbers[7:9] = (4 * higher - 0.5, 6 * wider - 0.5), (4 * higher, 6 * wider)
        assert tags[50844].value == pytest.approx(numbers)
        assert (tags[282].value[0] / tags[282].value[1], tags[296].value) == (4 * wider, 3)
    with tifffile.TiffFile(tmp_path / "out" / "a.ome.tif") as file:
        assert f'PhysicalSizeX="{0.5 / wider}"' in file.ome_metadata and "µm" in file.ome_metadata
    with tifffile.TiffFile(tmp_path / "out" / "j.tif") as file:
        assert file.imagej_metadata["unit"] == "um" and file.pages[0].tags[282].value[0] == 4 * wider
