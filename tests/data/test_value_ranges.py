"""Value ranges of the two domains: the levels that the networks see."""

import re

import numpy as np
import pytest
import tifffile

from cyclegan.config import Config
from cyclegan.data import sources, value_ranges
from cyclegan.errors import UserError
from cyclegan.images.value_range import to_float
from tests.data.image_folders import CACHES, load, save
from tests.images.dicom_samples import dicom, twelve_bits

AS_THEY_ARE = {"preprocess": "none", "channels_x": 1}


@pytest.fixture
def camera(tmp_path):
    """Make a dataset of 12-bit gray images, and of 8-bit RGB images."""
    (tmp_path / "trainA").mkdir()
    for i in range(4):
        tifffile.imwrite(tmp_path / "trainA" / f"{i}.tif", twelve_bits(16, 20, seed=i))
        save(tmp_path / "trainB" / f"{i}.png", (100, 50, 200), (20, 16))
    return tmp_path


def histogram(images):
    """Return the counts of the values that the networks see, in eight bins of [-1, 1]."""
    return np.histogram(np.stack([to_float(images[i]) for i in range(len(images))]), bins=8, range=(-1, 1))[0]


@pytest.mark.parametrize("cache", CACHES)
def test_a_range_spreads_the_histogram_of_12_bits(camera, cache):
    plain, ranged = (load(camera, cache=cache, value_range_x=text, **AS_THEY_ARE) for text in (None, "0:4095"))
    assert histogram(plain.train_x).tolist() == [3 * 320, 0, 0, 0, 0, 0, 0, 0]  # all below 4096 / 65535
    counts = histogram(ranged.train_x)
    assert counts.sum() == 3 * 320 and counts.min() > 80 and counts.max() < 160  # uniform
    first = to_float(ranged.train_x[0][..., 0])
    assert np.abs((first + 1) / 2 * 4095 - twelve_bits(16, 20, seed=0)).max() < 0.5
    for domains in (plain, ranged):  # the other domain is as it was
        assert domains.train_y[0].dtype == np.uint16
        assert domains.train_y[0][0, 0].tolist() == [100 * 257, 50 * 257, 200 * 257]


def test_values_in_a_small_part_of_the_range_get_a_remark(camera):
    (note,) = (each for each in load(camera, **AS_THEY_ARE).notes if "try --value_range" in each)
    assert re.match(
        r"trainA has values from \d+ to 40\d\d, and its range is 0 to 65535, so the networks see little contrast", note
    )
    assert re.search(r"; try --value_range_x \d+:40\d\d, or auto$", note)
    for text, remarks in (("0:4095", 0), ("3000:4095", 0), ("5000:65535", 1), ("-10:0", 1), ("0:1e6", 1), ("auto", 0)):
        notes = load(camera, value_range_x=text, **AS_THEY_ARE).notes
        assert len([each for each in notes if "try --value_range_x" in each]) == remarks, text
    for path in (camera / "trainA").iterdir():
        tifffile.imwrite(path, 16 * twelve_bits(16, 20))
    assert not any("try --" in each for each in load(camera, **AS_THEY_ARE).notes)


def test_auto_is_measured_on_a_sample_of_the_training_images(camera, monkeypatch):
    tifffile.imwrite(camera / "trainA" / "0.tif", np.full((16, 20), 60_000, np.uint16))
    monkeypatch.setattr(value_ranges, "MAX_SAMPLED", 2)  # the first and the third: the fourth is held out
    domains = load(camera, value_range_x="auto", **AS_THEY_ARE)
    low, high = map(float, domains.value_ranges["value_range_x"].split(":"))
    assert 0 <= low < 40 and high == 60_000 and domains.value_ranges["value_range_y"] is None
    (camera / "trainA" / "0.tif").unlink()
    domains = load(camera, value_range_x="auto", **AS_THEY_ARE)
    low, high = map(float, domains.value_ranges["value_range_x"].split(":"))
    assert 0 <= low < 40 and 4050 < high <= 4095 and "fixed for this run" in domains.notes[-1]
    assert load(camera, value_range_x="auto", **AS_THEY_ARE).value_ranges == domains.value_ranges


def test_auto_needs_different_values_and_training_images(camera):
    for i in range(4):
        tifffile.imwrite(camera / "trainA" / f"{i}.tif", np.full((16, 20), 7, np.uint16))
    with pytest.raises(UserError, match=r"--value_range_x auto: percentiles .* of trainA are 7:7; .* give LO:HI"):
        load(camera, value_range_x="auto", **AS_THEY_ARE)
    with pytest.raises(UserError, match="no training has measured"):
        config = Config.from_settings(
            dataset=str(camera), value_range_x="auto", image_size=16, load_size=16, channels_x=1
        )
        for split in ("testA", "testB"):
            (camera / split.replace("test", "train")).rename(camera / split)
        sources.load_domains(config.data, 4, splits=sources.TEST_SPLITS)


@pytest.mark.parametrize("cache", ["ram", "none"])
def test_series_of_dicom_and_float_tiff(tmp_path, cache):
    pytest.importorskip("pydicom")
    for i in range(3):
        for folder, content in (
            ("patient1", dicom(twelve_bits(16, 20, i), RescaleIntercept=-1024)),
            ("patient2/a", b""),
        ):
            path = tmp_path / "trainA" / folder / f"IM{i}.dcm"
            path.parent.mkdir(parents=True, exist_ok=True)
            inverted = dicom(
                4095 - twelve_bits(16, 20, i), PhotometricInterpretation="MONOCHROME1", RescaleIntercept=-1024
            )
            path.write_bytes(content or inverted)
        (tmp_path / "trainB").mkdir(exist_ok=True)
        tifffile.imwrite(
            tmp_path / "trainB" / f"{i}.tiff", np.random.default_rng(i).normal(size=(16, 20)).astype(np.float32)
        )
    settings = {**AS_THEY_ARE, "channels_y": 1, "value_range_x": "-1024:3071", "value_range_y": "auto", "cache": cache}
    domains = load(tmp_path, **settings)
    assert domains.train_x.names[:1] == ["trainA/patient1/IM1.dcm"] and len(domains.train_x) == 5
    images = [domains.train_x[i][..., 0] for i in range(5)]
    np.testing.assert_array_equal(images[0], np.rint(twelve_bits(16, 20, 1) / 4095 * 65535))
    np.testing.assert_array_equal(images[3], images[0])
    assert histogram(domains.train_y).min() > 0
    with pytest.raises(UserError, match=r"IM2\.dcm \(DICOM: expected .*; others need --value_range_x in"):
        load(tmp_path, **{**settings, "value_range_x": None})


@pytest.mark.parametrize("kind, nodata", [(np.float32, -3.4028235e38), (np.int16, -9999), (np.uint16, 0)])
def test_pixels_without_data_do_not_count_and_become_lo(tmp_path, kind, nodata):
    values = np.random.default_rng(0).uniform(100, 200, (16, 20)).astype(kind)
    values[4:] = kind(nodata)  # GDAL's text has 17 digits
    for split, tags in (("trainA", [(42113, "s", 0, f"{nodata:.17g}", True)]), ("trainB", [])):
        (tmp_path / split).mkdir()
        for i in range(3):
            tifffile.imwrite(tmp_path / split / f"{i}.tif", values, extratags=tags)
    settings = {**AS_THEY_ARE, "channels_y": 1, "value_range_x": "auto"}
    domains = load(tmp_path, value_range_y="100:200", nodata=float(nodata), **settings)
    low, high = map(float, domains.value_ranges["value_range_x"].split(":"))
    assert 100 <= low < 110 and 190 < high <= 200
    for images in (domains.train_x, domains.train_y):
        assert (images[0][4:] == 0).all() and images[0][:4].mean() > 20_000
    if kind is np.float32:
        for path in tmp_path.glob("train?/*.tif"):
            tifffile.imwrite(path, np.where(values < 0, np.nan, values))
        assert load(tmp_path, value_range_y="100:200", **settings).value_ranges == domains.value_ranges
        tifffile.imwrite(tmp_path / "trainB" / "1.tif", np.full((16, 20), np.nan, kind))
        assert (load(tmp_path, value_range_y="100:200", **settings).train_y[0] == 0).all()


def test_comparison_images_are_read_with_the_range(camera):
    data = Config.from_settings(
        dataset=str(camera), value_range_x="0:4095", image_size=16, load_size=16, channels_x=1
    ).data
    images, _ = sources.comparison_images(data, "x2y", 4)
    assert images[0].dtype == np.uint8 and images[0].max() > 200


def test_auto_can_leave_out_unreadable_images(camera):
    sources = {"trainA": sorted(map(str, (camera / "trainA").iterdir()))}
    (camera / "trainA" / "broken.png").write_bytes(b"no image")
    data = Config.from_settings(value_range_x="auto", **AS_THEY_ARE).data
    expected = value_ranges.measure_ranges(data, sources)
    sources["trainA"].append(str(camera / "trainA" / "broken.png"))
    assert value_ranges.measure_ranges(data, sources) == expected
    with pytest.raises(UserError, match="--value_range_x auto: no image of trainA can be read and has data"):
        value_ranges.measure_ranges(data, {"trainA": sources["trainA"][-1:]})
