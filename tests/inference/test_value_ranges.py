"""Translation with value ranges: files hold the values of the range of their domain."""

import pathlib
import sys
import types
import unittest.mock

import imagecodecs
import numpy as np
import pytest
import tensorflow as tf
import tifffile
from PIL import Image

from cyclegan.config import Config
from cyclegan.errors import UserError
from cyclegan.images import codec_format, formats, reader
from cyclegan.images.image import DecodedImage
from cyclegan.inference.conversions import TILE
from cyclegan.inference.model import Model
from cyclegan.inference.translate_files import translate
from tests.images.dicom_samples import dicom, in_items, twelve_bits
from tests.images.samples import deep_png


class SameImage(Model):
    """A model whose networks return their input."""

    def __init__(self, channels=1, **settings):
        image = tf.keras.Input((None, None, channels))
        self.generators = dict.fromkeys(("x2y", "y2x"), tf.keras.Model(image, image))
        self.config = Config.from_settings(channels_x=channels, channels_y=channels, **settings)
        self.path, self.tile, self._device, self._functions = pathlib.Path("runs/ct"), TILE, None, {}
        self.checkpoint = self.path / "checkpoints" / "epoch_0002"
        self.train_state = types.SimpleNamespace(epoch=2)


def both(text):
    return {"value_range_x": text, "value_range_y": text}


@pytest.fixture
def folder(tmp_path):
    """Make an image of 12 bits as PNG and TIFF; return the folder around it."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(deep_png(twelve_bits()[..., None]))
    tifffile.imwrite(tmp_path / "in" / "b.tif", twelve_bits())
    return tmp_path


def test_values_of_12_bits_return_exactly(folder):
    report = translate(SameImage(**both("0:4095")), folder / "in", folder / "out", html=True)
    assert report.done == 2 and not report.failed
    for name in ("a.png", "b.tif"):
        found = reader.decode_values(folder / "out" / name, 1).pixels
        assert found.dtype == np.uint16
        np.testing.assert_array_equal(found[..., 0], twelve_bits())
    shown = reader.decode(folder / "out" / "index_files" / "000001_output.png", 1)
    assert shown.max() > 240 and report.page  # the page shows the range


@pytest.mark.parametrize("kind", [np.float32, np.int16])
def test_values_of_tiff_return_within_half_a_level(tmp_path, kind):
    values = np.random.default_rng(0).uniform(-1000, 2000, (16, 20)).astype(kind)
    (tmp_path / "in").mkdir()
    tifffile.imwrite(tmp_path / "in" / "a.tif", values)
    translate(SameImage(**both("-1000:2000")), tmp_path / "in", tmp_path / "out")
    found = tifffile.imread(tmp_path / "out" / "a.tif")
    assert found.dtype == (np.int16 if kind == np.int16 else np.float32)
    assert np.abs(found - values).max() <= 0.51 * 3000 / 65535


def test_each_direction_writes_the_range_of_its_target(folder):
    model = SameImage(value_range_x="0:4095", value_range_y="-1:1")
    translate(model, folder / "in" / "b.tif", folder / "x2y.tif")
    np.testing.assert_allclose(tifffile.imread(folder / "x2y.tif"), twelve_bits() / 4095 * 2 - 1, atol=2e-5)
    translate(model, folder / "x2y.tif", folder / "back.png", "y2x")
    np.testing.assert_array_equal(reader.decode_values(folder / "back.png", 1).pixels[..., 0], twelve_bits())
    plain = SameImage(value_range_x="0:4095")  # the other domain has all values of 16 bits
    translate(plain, folder / "in" / "a.png", folder / "plain.png")
    expected = np.rint(twelve_bits() / 4095 * 65535)
    np.testing.assert_array_equal(reader.decode_values(folder / "plain.png", 1).pixels[..., 0], expected)
    Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)).save(folder / "eight.png")
    translate(plain, folder / "eight.png", folder / "twelve.png", "y2x")
    expected = np.rint(np.arange(256).reshape(16, 16) / 255 * 4095)
    np.testing.assert_array_equal(reader.decode_values(folder / "twelve.png", 1).pixels[..., 0], expected)


def test_jpeg_xl_is_written_with_8_bits_only(folder):
    """Because imagecodecs labels 16 bits as linear light."""
    for settings, name in (({}, "a.png"), ({"value_range_x": "0:4095"}, "b.tif")):
        report = translate(SameImage(**settings), folder / "in" / name, folder / "out.jxl")
        reason = "16 bits, which are not written as JPEG XL: expected --format png or tiff"
        assert report.failed == [f"{folder / 'in' / name} ({reason})"] and not (folder / "out.jxl").exists()
    with pytest.raises(UserError, match="values from 0 to 4095 don't fit into jpegxl; expected --format tiff, or png"):
        translate(SameImage(**both("0:4095")), folder / "in", folder / "out", format="jxl")
    assert translate(SameImage(**both("0:255")), folder / "in" / "a.png", folder / "out.jxl").done == 1
    formats.write(folder / "eight.png", reader.decode_values(folder / "out.jxl", 1))
    assert translate(SameImage(), folder / "eight.png", folder / "small.jxl").done == 1
    sizes = [codec_format.size_of((folder / name).read_bytes()) for name in ("out.jxl", "small.jxl")]
    assert [(size.bits, size.is_srgb) for size in sizes] == [(8, True)] * 2


def test_python_gets_values_of_files_and_levels_of_arrays(folder):
    model = SameImage(**both("0:4095"))
    np.testing.assert_array_equal(np.asarray(model.x2y(folder / "in" / "a.png")), twelve_bits())
    levels = twelve_bits()[..., None]
    np.testing.assert_array_equal(model.x2y(levels), levels)
    for text, mode in (("-1000:5000", "I"), ("0:1", "F"), ("0:255", "L")):
        assert SameImage(value_range_x="0:4095", value_range_y=text).x2y(folder / "in" / "a.png").mode == mode


def test_pillow_images_keep_what_pillow_can_hold(tmp_path):
    rng = np.random.default_rng(0)
    for channels, mode in ((3, "RGB"), (1, "LA")):  # several bands have 8 bits without a range of the target
        pixels = rng.integers(0, 256, (16, 20, len(mode)), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "a.png")
        found = SameImage(channels, value_range_x="0:255").x2y(tmp_path / "a.png")
        assert found.mode == mode
        np.testing.assert_array_equal(np.asarray(found)[..., -1], pixels[..., -1])  # gray levels are shown on white
    for channels, mode, most in ((1, "F", 0.01), (3, "RGB", 0.51)):  # one band keeps the fractions of a float file
        values = rng.uniform(0, 255, (16, 20, channels)).astype(np.float32)
        tifffile.imwrite(tmp_path / "a.tif", values, photometric="minisblack" if channels == 1 else "rgb")
        found = SameImage(channels, **both("0:255")).x2y(tmp_path / "a.tif")
        assert found.mode == mode
        assert np.abs(np.asarray(found, np.float32).reshape(values.shape) - values).max() < most


@pytest.mark.parametrize("kind, nodata", [(np.float32, -9999.5), (np.float32, np.nan), (np.int16, -32768)])
def test_pixels_without_data_have_none_again(tmp_path, kind, nodata):
    values = np.random.default_rng(0).uniform(0, 100, (16, 20)).astype(kind)
    values[:, :5] = nodata
    tag = [(42113, "s", 0, f"{nodata:.17g}", True)]
    tifffile.imwrite(tmp_path / "tagged.tif", values, extratags=tag)
    tifffile.imwrite(tmp_path / "plain.tif", values)
    run = SameImage(value_range_x="0:100", value_range_y="0:200")
    translate(run, tmp_path / "tagged.tif", tmp_path / "a.tif", strip_metadata=True)
    translate(run, tmp_path / "plain.tif", tmp_path / "b.tif", nodata=nodata)
    translate(
        SameImage(nodata=None if nodata != nodata else nodata, **both("0:100")),
        tmp_path / "plain.tif",
        tmp_path / "c.tif",
    )
    for name, factor in (("a.tif", 2), ("b.tif", 2), ("c.tif", 1)):
        with tifffile.TiffFile(tmp_path / name) as file:
            found, text = file.asarray(), file.pages[0].tags.valueof(42113)
        np.testing.assert_array_equal(float(text), nodata)
        np.testing.assert_array_equal(found[:, :5], values[:, :5].astype(np.float32))
        np.testing.assert_allclose(found[:, 5:], values[:, 5:] * factor, atol=0.01)
    image = np.asarray(run.x2y(tmp_path / "tagged.tif", size=(40, 32)))
    np.testing.assert_array_equal(image[:, :9], np.float32(nodata))
    translate(run, tmp_path / "tagged.tif", tmp_path / "d.tif", size=(40, 32))
    np.testing.assert_array_equal(
        np.isin(tifffile.imread(tmp_path / "d.tif"), image[:1, :1]), np.isin(image, image[:1, :1])
    )


def test_images_of_8_bits_keep_their_pixels_without_data(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 250, (16, 20, 3), np.uint8)
    pixels[:4], pixels[8, 8, 0] = 255, 255  # one channel alone is no pixel without data
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb", extratags=[(42113, "s", 0, "255", True)])
    model = SameImage(3)
    model.generators["x2y"] = tf.keras.Sequential([tf.keras.layers.Rescaling(-1.0)])
    translate(model, tmp_path / "a.tif", tmp_path / "b.tif")
    found = tifffile.imread(tmp_path / "b.tif")
    assert (found[:4] == 255).all()
    np.testing.assert_array_equal(found[4:], 255 - pixels[4:])
    translate(SameImage(3, value_range_y="-5:1000"), tmp_path / "a.tif", tmp_path / "c.tif")
    assert (tifffile.imread(tmp_path / "c.tif")[:4] == 255).all()


def test_nan_stays_nan_beside_another_value_without_data(tmp_path):
    values = np.linspace(0, 900, 16 * 20, dtype=np.float32).reshape(16, 20)
    values[:4], values[12:] = -9999, np.nan
    tifffile.imwrite(tmp_path / "a.tif", values, extratags=[(42113, "s", 0, "-9999", True)])
    model = SameImage(**both("0:1000"))
    for name, size in (("b.tif", None), ("c.tif", (10, 8))):
        translate(model, tmp_path / "a.tif", tmp_path / name, size=size)
        found, few = tifffile.imread(tmp_path / name), 16 // (2 if size else 1) // 4
        assert (found[:few] == -9999).all() and np.isnan(found[-few:]).all()
        assert (found[few:-few] >= 0).all()


@pytest.mark.parametrize(
    "name, target",
    [
        *((name, "-100:100") for name in ("int16.tif", "float.tif", "stack.npy", "a.dcm", "slope.dcm")),
        ("int16.tif", "0:90"),
    ],
)
def test_outside_of_the_masks_values_stay_those_of_the_file(tmp_path, name, target):
    """Values outside of the value range, too, which are clipped where the networks see them."""
    values, mask = twelve_bits() - 1024.0, np.zeros((*twelve_bits().shape, 1), np.uint8)
    mask[4:12] = 1
    tolerance, stacks = 0.0, "all" if name == "stack.npy" else "first"
    if name.endswith("dcm"):
        pytest.importorskip("pydicom")
        slope = 0.5 if name == "slope.dcm" else 1
        values, tolerance = values * slope, (slope != 1) * 0.02  # steps of 1/65535
        content = dicom(twelve_bits(), RescaleIntercept=-1024 * slope, RescaleSlope=slope)
        (tmp_path / name).write_bytes(content)
    elif name == "stack.npy":
        np.save(tmp_path / name, np.stack([values, values])[..., None].astype(np.int16))
        np.save(tmp_path / "mask.npy", np.stack([mask, mask]))
    else:
        values = values.astype(np.int16) if name == "int16.tif" else values.astype(np.float32) / 3
        tifffile.imwrite(tmp_path / name, values)
    (tmp_path / "masks").mkdir()
    if name == "stack.npy":
        (tmp_path / "mask.npy").rename(tmp_path / "masks" / "stack.npy")
    else:
        formats.write((tmp_path / "masks" / name).with_suffix(".png"), DecodedImage(mask))
    model = SameImage(value_range_x="-100:100", value_range_y=target)
    report = translate(model, tmp_path / name, tmp_path / "out" / name, masks=tmp_path / "masks", stacks=stacks)
    assert not report.failed
    found = reader.decode_values(tmp_path / "out" / name, 1).pixels[..., 0]
    np.testing.assert_allclose(found[mask[..., 0] == 0], values[mask[..., 0] == 0], atol=tolerance, rtol=0)
    assert np.abs(found[4:12]).max() <= 100 + tolerance < np.abs(values[4:12]).max()


@pytest.mark.parametrize(
    "ranges, scale",
    [(("0:255", "0:200"), 1), (("0:4095", "-100:4095"), 1), ((None, "0:255"), 1), (("0:255", None), 257)],
    ids=str,
)
def test_outside_of_the_masks_half_transparent_pixels_are_those_of_the_file(tmp_path, ranges, scale):
    """Value ranges that differ do not blend colors with white; with one range only, 255 becomes the highest level."""
    pixels = np.random.default_rng(0).integers(0, 256, (16, 20, 4)).astype(np.uint8)
    mask = np.zeros((16, 20, 1), np.uint8)
    mask[4:12] = 1
    Image.fromarray(pixels).save(tmp_path / "a.png")
    formats.write(tmp_path / "masks" / "a.png", DecodedImage(mask))
    model = SameImage(3, value_range_x=ranges[0], value_range_y=ranges[1])
    report = translate(model, tmp_path / "a.png", tmp_path / "b.tif", masks=tmp_path / "masks")
    assert not report.failed
    found = tifffile.imread(tmp_path / "b.tif")
    outside = mask[..., 0] == 0
    np.testing.assert_array_equal(found[outside][:, :3], pixels[outside][:, :3] * np.int64(scale))
    assert (found[~outside][:, :3] != pixels[~outside][:, :3] * np.int64(scale)).any()


def test_formats_that_cannot_hold_the_values_are_refused(folder):
    for text, format in (("0:4095", "jpeg"), ("-5:4095", "png"), ("0:1", "png")):
        with pytest.raises(UserError, match=f"don't fit into {format}; expected --format tiff"):
            translate(SameImage(**both(text)), folder / "in", folder / "out", format=format)
    with pytest.raises(UserError, match="expected a DICOM file as original, or --format tiff"):
        translate(SameImage(**both("0:4095")), folder / "in", folder / "out", format="dicom")
    assert not (folder / "out").exists()


def test_dicom_in_and_out(tmp_path):
    pydicom = pytest.importorskip("pydicom")
    for i, photometric in enumerate(("MONOCHROME2", "MONOCHROME1")):
        path = tmp_path / "in" / f"series{i}" / "IM1.dcm"
        path.parent.mkdir(parents=True)
        path.write_bytes(dicom(twelve_bits(), RescaleIntercept=-1024, PhotometricInterpretation=photometric))
    model = SameImage(value_range_x="-1024:3071", value_range_y="-1024:3071")
    assert translate(model, tmp_path / "in", tmp_path / "out").done == 2
    for i, values in enumerate((twelve_bits() - 1024.0, 4095 - twelve_bits() - 1024.0)):
        found = pydicom.dcmread(tmp_path / "out" / f"series{i}" / "IM1.dcm")
        shown = found.pixel_array * float(found.RescaleSlope) + float(found.RescaleIntercept)
        np.testing.assert_array_equal(shown, values)
        assert found.DerivationDescription == "cyclegan x2y, ct, epoch_0002" and found.SOPInstanceUID != "1.2.3.4"
    again = translate(model, tmp_path / "out", tmp_path / "back", "y2x", format="tiff")
    assert again.done == 2
    found = tifffile.imread(tmp_path / "back" / "series0" / "IM1.tif")
    np.testing.assert_array_equal(found, twelve_bits() - 1024.0)
    source = tmp_path / "in" / "series0" / "IM1.dcm"
    translate(SameImage(value_range_x="-1024:3071", value_range_y="0:4095"), source, tmp_path / "b.png", format="png")
    np.testing.assert_array_equal(reader.decode_values(tmp_path / "b.png", 1).pixels[..., 0], twelve_bits())
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("1.2.840.1", "1.2.840.2"):  # as scanners write them
        (bare / name).write_bytes(source.read_bytes())
    for format in (None, "tiff"):
        assert translate(model, bare, tmp_path / "out", format=format).done == 2
    assert translate(model, bare / "1.2.840.1", tmp_path / "one").done == 1
    for written in ("out/1.2.840.1.dcm", "out/1.2.840.2.dcm", "out/1.2.840.2.tif", "one/1.2.840.1.dcm"):
        assert (tmp_path / written).is_file()
    translate(SameImage(objective="cut", **both("0:4095")), source, tmp_path / "cut.dcm")
    assert pydicom.dcmread(tmp_path / "cut.dcm").DerivationDescription == "cut x2y, ct, epoch_0002"


def test_a_file_that_cannot_be_read_or_written_fails_alone(folder, monkeypatch):
    pytest.importorskip("pydicom")
    (folder / "in" / "c.dcm").write_bytes(dicom(twelve_bits()))
    others = len([path for path in (folder / "in").rglob("*") if path.is_file()]) - 1
    three = translate(SameImage(3, **both("0:4095")), folder / "in", folder / "three", format=None)
    assert three.done == others
    [text] = three.failed
    assert text.endswith("c.dcm (3 channels don't fit into dicom: expected --format tiff or png)")
    with pytest.raises(UserError, match="c.dcm .DICOM: expected a flat image .* --value_range_x"):  # the first obstacle
        translate(SameImage(3), folder / "in" / "c.dcm", folder / "out")
    with pytest.raises(UserError, match="c.dcm .--strip_metadata leaves the tags of DICOM files"):
        translate(SameImage(**both("0:4095")), folder / "in" / "c.dcm", folder / "out", strip_metadata=True)
    colors = np.random.default_rng(0).integers(0, 256, (10, 12, 3)).astype(np.uint8)
    tags = {"PixelData": in_items(imagecodecs.jpegls_encode(colors)), "PhotometricInterpretation": "YBR_FULL"}
    (folder / "in" / "d.dcm").write_bytes(dicom(colors, 8, "1.2.840.10008.1.2.4.80", **tags))
    missing = RuntimeError("all plugins are missing dependencies")
    monkeypatch.setattr("pydicom.dataset.Dataset.pixel_array", property(unittest.mock.Mock(side_effect=missing)))
    reason = r"d\.dcm .DICOM, JPEG-LS Lossless .*, which needs a decoder: pip install 'pylibjpeg\[all\]'"
    with pytest.raises(UserError, match=reason):  # before the channels, which do not fit either
        translate(SameImage(3), folder / "in" / "d.dcm", folder / "out")
    (folder / "in" / "d.dcm").unlink()
    monkeypatch.setitem(sys.modules, "pydicom", None)
    missing = translate(SameImage(**both("0:4095")), folder / "in", folder / "out", format="tiff")
    assert missing.done == others and "(DICOM files need the package pydicom" in missing.failed[0]


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of rasterio
@pytest.mark.parametrize("size, area_or_point", [(None, "Area"), ((20, 16), "Area"), ((20, 16), "Point")])
def test_rasterio_finds_a_translated_geotiff_at_the_same_place(tmp_path, size, area_or_point):
    rasterio = pytest.importorskip("rasterio")
    place = {"crs": "EPSG:32632", "transform": rasterio.transform.from_origin(500000.0, 4000000.0, 10.0, 10.0)}
    shape = {"height": 32, "width": 40, "count": 1, "dtype": "float32", "nodata": -9999.0}
    with rasterio.open(tmp_path / "a.tif", "w", driver="GTiff", **shape, **place) as file:
        file.update_tags(AREA_OR_POINT=area_or_point)
        file.write(np.random.default_rng(0).uniform(0, 100, (1, 32, 40)).astype(np.float32))
    translate(
        SameImage(value_range_x="0:100", value_range_y="0:200"), tmp_path / "a.tif", tmp_path / "b.tif", size=size
    )
    with rasterio.open(tmp_path / "a.tif") as before, rasterio.open(tmp_path / "b.tif") as after:
        assert after.shape == (size[::-1] if size else before.shape)
        assert (after.crs, after.bounds, after.nodata) == (before.crs, before.bounds, before.nodata)
