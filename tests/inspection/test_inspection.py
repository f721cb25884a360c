import itertools
import re
import sys

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms, ImageDraw

from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.inspection import report
from cyclegan.inspection.findings import EMPTY_MASKS, MIXED, REFUSED, UNREADABLE_FILES
from cyclegan.inspection.inspection import BINS, MEASURES, measure
from tests.data import image_folders
from tests.images.dicom_samples import dicom, twelve_bits
from tests.images.samples import deep_values, tiff_of
from tests.inspection.datasets import inspect, planted_folder, save, sound_folder, texture


def findings_of(inspection):
    return {
        found.kind.title: [[inspection.names[i] for i in group] for group in found.groups]
        for found in inspection.findings
    }


def test_every_planted_defect_is_found_once_and_no_more(tmp_path):
    expected = planted_folder(tmp_path)
    inspection = inspect(tmp_path)
    assert findings_of(inspection) == expected
    assert len(inspection.findings) == len(expected)
    details = [text for finding in inspection.findings for text in finding.details.values()]
    assert "truncated" in details[0] and details[1:] == ["30 x 58 pixels", "is PNG"]
    counts = {finding.kind.title: finding.count for finding in inspection.findings if not finding.groups}
    assert counts.pop("very different numbers of images") == "20 in trainB, 10 in trainA"
    narrow = (
        r"trainA has values from \d+ to [234]\d\d\d, and its range is 0 .* 1 of 11 images: convert them to 8 bits .*"
    )
    assert re.fullmatch(narrow, counts.popitem()[1])


def test_sound_images_give_no_finding(tmp_path):
    inspection = inspect(sound_folder(tmp_path))
    assert not inspection.findings
    assert [note.partition(",")[0] for note in inspection.notes] == ["Few training images"]


def test_near_copies_across_splits_are_leaks(tmp_path):
    sound_folder(tmp_path)
    save(texture(900), tmp_path / "trainB/full.png")
    save(texture(900).resize((56, 56)), tmp_path / "testB/resized.jpg", quality=80)
    save(texture(901), tmp_path / "testA/right.png")
    save(texture(901), tmp_path / "testB/wrong.jpg", quality=80)
    assert findings_of(inspect(tmp_path)) == {
        "images in both domains": [["testA/right.png", "testB/wrong.jpg"]],
        "images in training and test": [["trainB/full.png", "testB/resized.jpg"]],
    }


def test_a_single_image_that_is_held_out_too_counts_once(tmp_path):
    for name in ("trainA/1.png", "trainA/2.png", "trainB/2.png"):
        save(texture(int(name[-5])), tmp_path / name)
    assert findings_of(inspect(tmp_path))["images in both domains"] == [["trainA/2.png", "trainB/2.png"]]


def test_a_recolored_image_is_no_copy(tmp_path):
    sound_folder(tmp_path)
    save(texture(900), tmp_path / "trainA/light.png")
    save(texture(900).point(lambda level: level // 2), tmp_path / "trainB/dark.png")
    assert not inspect(tmp_path).findings


def test_small_is_what_training_would_enlarge(tmp_path):
    sound_folder(tmp_path)  # 64 x 64 pixels
    small = ["images that are enlarged more than 1.5 times"]
    for settings, found in (
        ({"image_size": 100, "load_size": 113}, small),
        ({"image_size": 100, "load_size": 113, "preprocess": "none"}, []),
        ({"image_size": 60, "load_size": 113, "preprocess": "crop"}, []),
        ({"image_size": 64, "load_size": 113, "preprocess": "scale_width"}, small),
        ({"image_size": 64, "image_width": 128}, small),
    ):
        assert list(findings_of(inspect(tmp_path, **settings))) == found
    (training,) = inspect(tmp_path, image_size=64, load_size=113).findings
    assert len(training) == 12  # test images are resized to 64 pixels
    assert "Use --image_size 64, which fits" in "".join(report.lines(inspect(tmp_path, image_size=100, load_size=113)))


def test_masks_and_drawings_are_no_copies(tmp_path):
    """Each shows another small thing on the same ground, so perceptual hashes hardly differ."""
    sound_folder(tmp_path)
    for i in range(12):
        mask = Image.new("L", (64, 64))
        mask.paste(255, (4 * i, 20, 4 * i + 16, 36))
        save(mask.convert("RGB"), tmp_path / "trainA" / f"mask{i}.png")
        drawing = Image.new("RGB", (64, 64), (255, 255, 255))
        ImageDraw.Draw(drawing).ellipse((2 * i, 3 * i, 20 + 3 * i, 30 + 2 * i), outline=(0, 0, 0))
        save(drawing, tmp_path / "trainB" / f"drawing{i}.png")
    assert [finding.kind for finding in inspect(tmp_path).findings] == [MIXED]


@pytest.mark.parametrize("colored", [0, 1, 7])
def test_the_rarer_kind_of_a_mixed_domain_is_found(tmp_path, colored):
    for domain in "AB":
        for i in range(8):
            image = texture(100 * (domain == "B") + i)
            gray = domain == "A" and i >= colored
            save(image.convert("L") if gray else image, tmp_path / f"train{domain}" / f"{i}.png")
            save(texture(900 + 100 * (domain == "B") + i), tmp_path / f"test{domain}" / f"{i}.png")
            if domain == "A":  # a gray test image for each
                save(texture(700 + i).convert("L"), tmp_path / "testA" / f"{i}.png")
    found = inspect(tmp_path)
    assert {finding.kind for finding in found.findings} == ({MIXED} if colored else set())  # a gray domain is not mixed
    expected = [f"trainA/{i}.png" for i in range(colored)]  # of 16
    assert sorted(found.names[i] for finding in found.findings for (i,) in finding.groups) == expected


def test_a_range_may_be_measured(tmp_path):
    for domain in "AB":
        for i in range(4):
            values = np.random.default_rng([i, ord(domain)]).normal(0, 500, (64, 64, 1)).astype(np.float32)
            (tmp_path / f"train{domain}").mkdir(exist_ok=True)
            (tmp_path / f"train{domain}" / f"{i}.tif").write_bytes(tiff_of(values))
    inspection = inspect(tmp_path, channels_x=1, channels_y=1, value_range_x="auto", value_range_y="auto")
    assert not [finding for finding in inspection.findings if finding.kind == UNREADABLE_FILES]
    assert inspection.data.value_range("X")[0] < -1000 and any("--value_range_x -" in note for note in inspection.notes)
    assert inspection.measures["kind"][0] == "L 32 bits (float32)"


def test_files_with_other_bands_are_unreadable(tmp_path):
    inspection = inspect(sound_folder(tmp_path), channels_y=5)
    finding, uneven = inspection.findings
    assert finding.kind == UNREADABLE_FILES and len(finding) == 9
    assert finding.advice.endswith("the flags that the reasons name: --channels_x, --channels_y.")
    assert uneven.count == "6 in trainA, 0 in trainB"
    assert finding.details[6] == "PNG, bands: 3; expected 5 (--channels_x, --channels_y in training)"


@pytest.mark.parametrize("content", [b"", b"<!doctype html>\n<p>not found", b"\x89PNG\r\n\x1a\n" + bytes(9)])
def test_no_flag_is_advised_for_damaged_files(tmp_path, content):
    (sound_folder(tmp_path) / "trainA" / "damaged.png").write_bytes(content)
    finding, *_ = inspect(tmp_path).findings
    assert finding.kind == UNREADABLE_FILES and (finding.advice or finding.kind.advice) == "Repair or remove them."


def test_dicom_under_another_name(tmp_path):
    pytest.importorskip("pydicom")
    sound_folder(tmp_path)
    for i, name in enumerate(("1.dcm", "2.DICOM", "3.png")):
        (tmp_path / "testA" / name).write_bytes(dicom(twelve_bits(300, 300, seed=i)))
    options = {"channels_x": 1, "channels_y": 1, "value_range_x": "0:4095"}
    assert findings_of(inspect(tmp_path, **options)) == {
        "names that contradict the content": [["testA/3.png"]],
        "values that fill a small part of their range": [],  # 8 bits in trainA
    }


def test_a_missing_package_leaves_the_other_files(tmp_path, monkeypatch):
    pytest.importorskip("pydicom")
    (sound_folder(tmp_path) / "trainA/1.dcm").write_bytes(dicom(twelve_bits()))
    monkeypatch.setitem(sys.modules, "pydicom", None)
    first, *_ = inspect(tmp_path, value_range_x="0:255").findings
    assert first.kind == UNREADABLE_FILES
    assert [*first.details.values()] == ["DICOM files need the package pydicom: pip install pydicom"]


def test_profiles_are_counted(tmp_path):
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for number, profile in enumerate((srgb, srgb, b"", b"no profile at all")):
        texture(number).save(sound_folder(tmp_path) / "testA" / f"profile{number}.png", icc_profile=profile)
    rows = {title: cells for title, *cells in report.statistics(inspect(tmp_path))}
    assert rows["color profiles"] == ["", "", "none 4, sRGB built-in 2, damaged 1", ""]


def measured(source, channels=3):
    return np.array(measure(source, channels), MEASURES)


def test_colors_are_means_and_deviations_in_levels(tmp_path):
    gray = texture(0).convert("L").convert("RGB")
    assert not measured(save(gray, tmp_path / "a.jpg", quality=50))["colored"]
    pixels = np.zeros((2, 4, 3), np.uint8)
    pixels[0, :, 0], pixels[..., 1] = 200, 30
    image = measured(save(Image.fromarray(pixels), tmp_path / "a.png"))
    np.testing.assert_allclose(image["mean"], [100, 30, 0], rtol=1e-6)
    np.testing.assert_allclose(image["deviation"], [100, 0, 0], rtol=1e-6)
    assert image["colored"] and (image["height"], image["width"], image["format"]) == (2, 4, "png")
    deep = measured(imagecodecs.png_encode(pixels.astype(np.uint16) * 257))
    np.testing.assert_allclose(deep["mean"], image["mean"], rtol=1e-6)


def test_kinds_of_files_are_named(tmp_path):
    for mode in ("RGB", "L", "RGBA", "P", "1", "CMYK"):
        assert measured(save(texture(0).convert(mode), tmp_path / "a.tif"))["kind"] == mode
    assert measured(tiff_of(deep_values(3)))["kind"] == "RGB 16 bit"
    assert measured(tiff_of(deep_values(5)), 5)["kind"] == "5 bands 16 bit"
    assert measured(imagecodecs.png_encode(deep_values(1).squeeze()))["kind"] == "L 16 bit"
    assert measured(imagecodecs.png_encode(deep_values(4)))["kind"] == "RGBA 16 bit"
    assert measured(tiff_of(deep_values(4), extrasamples=["unspecified"]), 4)["kind"] == "4 bands 16 bit"
    pages = np.moveaxis(deep_values(4), 2, 0)  # the channels of a microscope
    tifffile.imwrite(tmp_path / "b.tif", pages, imagej=True, metadata={"axes": "CYX"})
    assert measured(tmp_path / "b.tif", 4)["kind"] == "4 bands 16 bit"


def test_masks_are_counted_and_checked(tmp_path):
    sound_folder(tmp_path)
    for i in range(6):
        mask = Image.new("L", (64, 64) if i else (64, 30))
        mask.paste(255, (0, 0, 64, 8 * i))
        save(mask, tmp_path / "maskA" / "trainA" / f"{i}.png")
        save(mask.resize((64, 64)), tmp_path / "maskA" / "testA" / f"{i}.png")
    (text,) = (each.note for each in inspect(tmp_path).findings if each.kind is REFUSED)
    assert "maskA/trainA/0.png has 64 x 30 pixels; expected 64 x 64 pixels, as its image trainA/0.png has" in text
    save(Image.new("L", (64, 64)), tmp_path / "maskA" / "trainA" / "0.png")
    found = inspect(tmp_path)
    assert "masks of trainA: 0 to 62 % of the pixels are inside, median 31 %" in found.notes
    assert "masks of testA: 0 to 25 % of the pixels are inside, median 12 %" in found.notes
    (black,) = found.findings
    assert black.kind is EMPTY_MASKS and black.note.count("/0.png") == 2 == black.note.count(".png")
    mask = tmp_path / "maskA" / "trainA" / "1.png"
    mask.write_bytes(mask.read_bytes()[:-30])
    assert REFUSED in {each.kind for each in inspect(tmp_path).findings}


def test_extreme_shapes_and_sizes_that_training_refuses(tmp_path):
    sound_folder(tmp_path)
    save(texture(900, (640, 120)), tmp_path / "trainA" / "wide.png")
    stretched = "images of extreme shapes, which are stretched more than 2 times"
    assert findings_of(inspect(tmp_path)) == {stretched: [["trainA/wide.png"]]}
    assert inspect(tmp_path, preprocess="crop").domains.size == (64, 64)
    for preprocess in ("none", "scale_width"):
        found = inspect(tmp_path, preprocess=preprocess, image_size=16)
        assert any(each.kind is REFUSED and "differ in size" in each.note for each in found.findings)
        assert found.domains is None


def test_crops_are_those_of_training(tmp_path):
    sound_folder(tmp_path, (1, 1, 1, 1))
    for domain in "AB":
        mask = Image.new("L", (64, 64))
        mask.paste(255, (9, 9, 40, 50))
        for split in ("train", "test"):
            save(mask, tmp_path / f"mask{domain}" / f"{split}{domain}" / "0.png")
    settings = {"image_size": 32, "load_size": 40}
    domains = image_folders.load(tmp_path, **settings)
    options = {"seed": 0, "epoch_size": f"{report.CROPS}"}
    training = UnpairedDataset(domains.train_x, domains.train_y, 1, domains.size, **options)
    report.check_folder(tmp_path / "report", tmp_path)
    report.write(tmp_path / "report", inspect(tmp_path, **settings))
    for number, pair in itertools.product((0, 1), range(report.CROPS)):
        expected = training.image("XY"[number], 0, pair)
        with Image.open(tmp_path / "report" / "images" / f"train{'AB'[number]}-{pair}.png") as image:
            shown = np.asarray(image)
        red = (shown == (255, 0, 0)).all(axis=-1)
        assert 40 < red.sum() < 110 and (shown[~red] == expected[~red]).all()


def test_histograms_count_levels(tmp_path):
    pixels = np.zeros((300, 4, 3), np.uint8)
    pixels[:150, :, 0], pixels[..., 2] = 255, 128
    levels = measured(save(Image.fromarray(pixels), tmp_path / "a.png"))["levels"]
    expected = np.zeros((3, BINS))
    expected[0, [0, -1]], expected[1, 0], expected[2, BINS // 2] = 0.5, 1, 1
    np.testing.assert_allclose(levels, expected)


def test_transparent_images_among_opaque_ones_are_found(tmp_path):
    sound_folder(tmp_path)
    for number, opacity in enumerate((255, 60)):
        image = texture(900 + number)
        image.putalpha(opacity)
        image.save(tmp_path / "trainB" / f"alpha{number}.png")
    (finding,) = inspect(tmp_path).findings
    assert finding.kind.title == "transparent images among opaque ones" and len(finding) == 1
    assert finding.details == {finding.groups[0][0]: "76% transparent"}
