import re

import numpy as np
import pytest
from PIL import Image

import cyclegan
from cyclegan.errors import UserError
from cyclegan.images import reader, writer
from cyclegan.images.image import DecodedImage
from cyclegan.inference import file_plan
from cyclegan.inference.translate_files import translate
from tests.inference.arrays import files, images
from tests.inference.runs import make_run


def test_one_file_goes_to_a_file_or_a_folder(model, originals, tmp_path):
    source = tmp_path / "in" / "a.png"
    expected = model.x2y(reader.decode(source))
    for target, written in (("one.tiff", "one.tiff"), ("new/one.png", "new/one.png"), ("folder", "folder/a.png")):
        assert translate([model], source, tmp_path / target).done == 1
        np.testing.assert_array_equal(reader.decode(tmp_path / written), expected)
    translate([model], source, tmp_path / "folder", format="tiff", size=(12, 20))
    resized = model.x2y(reader.decode(source), size=(12, 20))
    np.testing.assert_array_equal(reader.decode(tmp_path / "folder" / "a.tif"), resized)
    assert resized.shape == (20, 12, 3)
    with pytest.raises(UserError, match=r"b\.png: --format tiff expects a name that ends in \.tif or \.tiff"):
        translate([model], source, tmp_path / "b.png", format="tiff")


def test_a_name_without_a_format_needs_one(model, originals, tmp_path):
    (tmp_path / "in" / "b.jpg").rename(tmp_path / "photo.jfif")
    with pytest.raises(
        UserError, match=r"photo\.jfif: its name does not end in .*expected --format .*file: photo\.jpg"
    ):
        translate([model], tmp_path / "photo.jfif", tmp_path / "out")
    assert translate([model], tmp_path / "photo.jfif", tmp_path / "out", format="jpeg").done == 1
    assert translate([model], tmp_path / "photo.jfif", tmp_path / "out" / "b.jpg").done == 1
    assert files(tmp_path / "out") == ["b.jpg", "photo.jpg"]


def test_files_that_are_no_images_are_named(tmp_path, caplog):
    for name in ("a.png", "b.HEIC", "index.html"):
        (tmp_path / name).touch()
    caplog.set_level("INFO", "cyclegan")
    assert [task.name for task in file_plan.make_plan(str(tmp_path), str(tmp_path / "out"), None).tasks] == ["a.png"]
    assert [text.partition(str(tmp_path))[2] for text in caplog.messages] == [
        " that are not used: 1 (.heic); if they are images, convert them to PNG or JPEG"
    ]


def test_patterns_match_as_in_a_shell(model, originals, tmp_path, monkeypatch):
    (tmp_path / "in" / "notes.txt").write_text("no image")
    translate([model], tmp_path / "in" / "**" / "*", tmp_path / "all", format="png")
    assert files(tmp_path / "all") == sorted(re.sub(r"\.\w+$", ".png", name) for name in originals)
    monkeypatch.chdir(tmp_path / "in")
    translate([model], "*.jp*g", "../some")
    assert files(tmp_path / "some") == ["b.jpg", "h.jpg"]  # as in a shell, capital letters are others
    with pytest.raises(UserError, match=r"x\*: no images; expected at least one of \.png"):
        translate([model], "x*", "../none")


@pytest.mark.parametrize("pattern", ["photos/*/../../secret/*.png", "photos/*/../../../*.png", "*/../photos/*.png"])
def test_a_pattern_that_leads_out_is_refused(tmp_path, monkeypatch, pattern):
    monkeypatch.chdir(tmp_path)
    for name in ("photos/deep/a.png", "secret/b.png"):
        writer.write(tmp_path / name, DecodedImage(images(16, 16, 3)))
    with pytest.raises(UserError, match=r"\.\. after a wildcard; expected a pattern that stays in its folder"):
        file_plan.make_plan(pattern, "out", None)
    plan = file_plan.make_plan("photos/../photos/*/*.png", "out", None)
    assert [str(task.target) for task in plan.tasks] == ["out/deep/a.png"]


def test_existing_files_are_replaced_on_request_only(model, originals, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "h.jpg").write_text("mine")
    with pytest.raises(
        UserError, match=r"1 of 9 files to write exist, for example .*h\.jpg: expected none; use --overwrite"
    ):
        translate([model], tmp_path / "in", tmp_path / "out")
    assert files(tmp_path / "out") == ["h.jpg"] and (tmp_path / "out" / "h.jpg").read_text() == "mine"
    assert translate([model], tmp_path / "in", tmp_path / "out", overwrite=True).done == 9
    with Image.open(tmp_path / "out" / "h.jpg") as image:
        assert image.size == (30, 40)
    with pytest.raises(UserError, match="9 of 9 files to write exist"):
        translate([model], tmp_path / "in", tmp_path / "out")


def test_existing_files_are_skipped_on_request(model, originals, tmp_path):
    writer.write(tmp_path / "out" / "sub" / "c.webp", DecodedImage(images(8, 8, 3)))
    mine = (tmp_path / "out" / "sub" / "c.webp").read_bytes()
    report = translate([model], tmp_path / "in", tmp_path / "out", skip_existing=True)
    assert (report.done, report.skipped) == (8, 1) and files(tmp_path / "out") == sorted(originals)
    assert (tmp_path / "out" / "sub" / "c.webp").read_bytes() == mine
    report = translate([model], tmp_path / "in", tmp_path / "out", skip_existing=True)
    assert (report.done, report.skipped) == (0, 9)
    for other in ("overwrite", "html"):
        with pytest.raises(UserError, match=f"--skip_existing with --{other}.*: expected one of them"):
            translate([model], tmp_path / "in", tmp_path / "out", skip_existing=True, **{other: True})


def test_originals_are_never_replaced(model, originals, tmp_path):
    source = tmp_path / "in"
    before = (source / "a.png").read_bytes()
    (tmp_path / "link").symlink_to(source)
    for target in (source, tmp_path / "link"):
        with pytest.raises(UserError, match="an image to translate, which its translation would replace"):
            translate([model], source, target, overwrite=True)
        with pytest.raises(UserError, match="an image to translate, which its translation would replace"):
            translate([model], source / "a.png", target, overwrite=True)
    assert (source / "a.png").read_bytes() == before


def test_two_files_with_one_target_are_refused(model, originals, tmp_path):
    writer.write(tmp_path / "in" / "a.tif", DecodedImage(images(8, 8, 3)))
    with pytest.raises(UserError, match=r"a\.png and a\.tif would both be written to .*a\.png: expected other names"):
        translate([model], tmp_path / "in", tmp_path / "out", format="png")
    assert not (tmp_path / "out").exists()


def test_a_target_within_the_source_is_not_translated(model, originals, tmp_path):
    translate([model], tmp_path / "in", tmp_path / "in" / "out")
    assert files(tmp_path / "in" / "out") == sorted(originals)
    assert translate([model], tmp_path / "in", tmp_path / "in" / "out", overwrite=True).done == 9


def test_too_many_channels_for_a_format_are_refused(tmp_path, strategies):
    make_run(tmp_path / "run", strategies[1], channels_y=5)
    writer.write(tmp_path / "in" / "a.png", DecodedImage(images(16, 16, 3)))
    with pytest.raises(UserError, match=r"out/a\.png: 5 channels don't fit into png; expected --format tiff"):
        cyclegan.translate(tmp_path / "run", tmp_path / "in", tmp_path / "out")
    assert cyclegan.translate(tmp_path / "run", tmp_path / "in", tmp_path / "out", format="tiff").done == 1
    assert reader.decode(tmp_path / "out" / "a.tif", 5).shape == (16, 16, 5)


def test_impossible_requests_are_refused(model, tmp_path):
    with pytest.raises(UserError, match="no such file or folder; expected an image, a folder of images, or a pattern"):
        translate([model], tmp_path / "nothing", tmp_path / "out")
    with pytest.raises(UserError, match=r"no images; expected at least one of \.png"):
        translate([model], tmp_path, tmp_path / "out")
    writer.write(tmp_path / "in" / "a.png", DecodedImage(images(8, 8, 3)))
    (tmp_path / "file").write_text("")
    for options, text in (
        ({"direction": "sideways"}, "direction 'sideways', batch_size 8: expected x2y or y2x"),
        ({"batch_size": 0}, "expected x2y or y2x, and at least 1 image"),
        ({"size": 64}, r"size 64: expected \(width, height\) in pixels"),
        ({"size": (0, 5)}, r"size \(0, 5\): expected \(width, height\) in pixels"),
        ({"format": "jxl"}, "--format jxl: expected one of png, jpeg"),
    ):
        with pytest.raises(UserError, match=text):
            translate([model], tmp_path / "in", tmp_path / "out", **options)
    with pytest.raises(UserError, match=r"a\.jpgg: expected a folder, or a file that ends in one of \.png \.jpg"):
        translate([model], tmp_path / "in" / "a.png", tmp_path / "a.jpgg")
    with pytest.raises(UserError, match="file: a file; expected a folder for the translations of 1 images"):
        translate([model], tmp_path / "in", tmp_path / "file")
