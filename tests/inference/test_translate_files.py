"""Files through a generator: each becomes one of its own kind, and what goes wrong with one is said of that one."""

import os
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import cyclegan
from cyclegan.errors import UserError
from cyclegan.images import reader, writer
from cyclegan.images.image import DecodedImage
from cyclegan.inference import translate_files
from cyclegan.inference.translator import Model, Translator
from tests.inference.test_restore import make_run
from tests.inference.test_translator import pictures

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, strategies):
    """A run's folder."""
    path = tmp_path_factory.mktemp("runs") / "run"
    make_run(path, strategies[1], channels_y=3)
    return path


@pytest.fixture(scope="module")
def model(folder):
    return Model(folder)


@pytest.fixture
def originals(tmp_path):
    """A folder of all kinds of pictures, and the size of each."""
    sizes = {
        "a.png": (17, 23), "b.jpg": (40, 30), "sub/c.webp": (16, 16), "sub/deeper/d.bmp": (33, 65), "e.gif": (20, 20),
        "f.tif": (18, 19), "g.JPEG": (40, 30), "h.jpg": (40, 30), "i%20 ü#?.png": (24, 16),
    }  # fmt: skip
    for seed, (name, size) in enumerate(sizes.items()):
        writer.write(tmp_path / "in" / name, DecodedImage(pictures(*size, 3, seed=seed)))
    return sizes


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_folder_keeps_its_structure_and_each_file_its_size_and_format(model, originals, tmp_path):
    report = translate_files.translate([model], tmp_path / "in", tmp_path / "out")
    assert (report.done, report.failed, report.tiled, report.page) == (len(originals), [], 0, None)
    assert files(tmp_path / "out") == sorted(originals)
    for name, (height, width) in originals.items():
        with Image.open(tmp_path / "in" / name) as before, Image.open(tmp_path / "out" / name) as after:
            assert before.format == after.format and after.size == (width, height)
    lossless = [name for name in originals if name.endswith(("png", "tif", "bmp"))]
    for name in lossless:
        expected = model.x2y(reader.decode(tmp_path / "in" / name))
        np.testing.assert_array_equal(reader.decode(tmp_path / "out" / name), expected)


def test_depth_opacity_and_orientation(model, tmp_path):
    deep, opacity = pictures(20, 24, 3, dtype=np.uint16), pictures(20, 24, 1, seed=1)
    for name in ("deep.png", "deep.tif"):
        writer.write(tmp_path / "in" / name, DecodedImage(deep))
    writer.write(tmp_path / "in" / "clear.png", DecodedImage(pictures(20, 24, 3), opacity))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pictures(20, 24, 3)).save(tmp_path / "in" / "turned.png", exif=exif)
    assert translate_files.translate([model], tmp_path / "in", tmp_path / "out", "y2x").done == 4
    for name in ("deep.png", "deep.tif"):
        np.testing.assert_array_equal(reader.decode_whole(tmp_path / "out" / name).pixels, model.y2x(deep))
    found = reader.decode_whole(tmp_path / "out" / "clear.png")
    np.testing.assert_array_equal(found.opacity, opacity)
    with Image.open(tmp_path / "out" / "turned.png") as image:
        assert image.size == (20, 24) and 0x0112 not in image.getexif()
    np.testing.assert_array_equal(
        reader.decode(tmp_path / "out" / "turned.png"), model.y2x(np.rot90(pictures(20, 24, 3), -1))
    )


def test_one_file_to_a_file_or_into_a_folder(model, originals, tmp_path):
    source = tmp_path / "in" / "a.png"
    expected = model.x2y(reader.decode(source))
    for target, written in (("one.tiff", "one.tiff"), ("new/one.png", "new/one.png"), ("folder", "folder/a.png")):
        assert translate_files.translate([model], source, tmp_path / target).done == 1
        np.testing.assert_array_equal(reader.decode(tmp_path / written), expected)
    translate_files.translate([model], source, tmp_path / "folder", format="tiff", size=(12, 20))
    resized = model.x2y(reader.decode(source), size=(12, 20))
    np.testing.assert_array_equal(reader.decode(tmp_path / "folder" / "a.tif"), resized)
    assert resized.shape == (20, 12, 3)
    with pytest.raises(UserError, match=r"b\.png: --format tiff is called \.tif or \.tiff"):
        translate_files.translate([model], source, tmp_path / "b.png", format="tiff")


def test_a_name_that_says_no_format_wants_one(model, originals, tmp_path):
    (tmp_path / "in" / "b.jpg").rename(tmp_path / "photo.jfif")
    with pytest.raises(UserError, match=r"photo\.jfif: its name does not say .*expected --format .*file: photo\.jpg"):
        translate_files.translate([model], tmp_path / "photo.jfif", tmp_path / "out")
    assert translate_files.translate([model], tmp_path / "photo.jfif", tmp_path / "out", format="jpeg").done == 1
    assert translate_files.translate([model], tmp_path / "photo.jfif", tmp_path / "out" / "b.jpg").done == 1
    assert files(tmp_path / "out") == ["b.jpg", "photo.jpg"]


def test_patterns(model, originals, tmp_path, monkeypatch):
    (tmp_path / "in" / "notes.txt").write_text("no picture")
    translate_files.translate([model], tmp_path / "in" / "**" / "*", tmp_path / "all", format="png")
    assert files(tmp_path / "all") == sorted(re.sub(r"\.\w+$", ".png", name) for name in originals)
    monkeypatch.chdir(tmp_path / "in")
    translate_files.translate([model], "*.jp*g", "../some")
    assert files(tmp_path / "some") == ["b.jpg", "h.jpg"]  # as in a shell, capital letters are others
    with pytest.raises(UserError, match=r"x\*: no pictures; expected at least one of \.jpg"):
        translate_files.translate([model], "x*", "../none")


def test_a_broken_file_is_reported_and_the_others_are_translated(model, originals, tmp_path):
    whole = (tmp_path / "in" / "b.jpg").read_bytes()
    (tmp_path / "in" / "half.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "in" / "text\n.png").write_text("no picture")
    report = translate_files.translate([model], tmp_path / "in", tmp_path / "out")
    assert report.done == len(originals) and files(tmp_path / "out") == sorted(originals)
    assert [text.split("in/")[1].split(" (")[0] for text in report.failed] == ["half.jpg", r"text\n.png"]
    assert "not a picture" in report.failed[1]


def test_a_file_that_breaks_after_it_was_looked_at_leaves_its_batch_whole(model, originals, tmp_path, monkeypatch):
    decode = reader.decode_whole

    def sometimes(source, channels):
        if source.endswith("g.JPEG"):
            raise OSError("gone")
        return decode(source, channels)

    monkeypatch.setattr(reader, "decode_whole", sometimes)
    report = translate_files.translate([model], tmp_path / "in", tmp_path / "out")
    assert report.done == len(originals) - 1 and report.failed == [f"{tmp_path}/in/g.JPEG (gone)"]


def test_what_can_t_be_written_is_reported(model, originals, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sub").write_text("a file where a folder should be")
    report = translate_files.translate([model], tmp_path / "in", tmp_path / "out")
    assert report.done == len(originals) - 2
    assert all("in/sub/" in text for text in report.failed)


def test_what_is_written_but_can_t_be_shown_is_said_to_be_written(model, originals, tmp_path, monkeypatch):
    small = translate_files._small

    def sometimes(pixels):
        if pixels.shape[:2] == (17, 23):
            raise OSError(28, "No space left on device")
        return small(pixels)

    monkeypatch.setattr(translate_files, "_small", sometimes)
    report = translate_files.translate([model], tmp_path / "in", tmp_path / "out", html=True)
    assert (report.done, report.failed) == (len(originals), []) and (tmp_path / "out" / "a.png").exists()
    assert report.unshown == [f"{tmp_path}/in/a.png ([Errno 28] No space left on device)"]
    text = report.page.read_text()
    assert "000002_output.png" in text and "000001_output.png" not in text

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(translate_files.html_report, "write", full)
    report = translate_files.translate([model], tmp_path / "in" / "b.jpg", tmp_path / "other", html=True)
    assert (report.done, report.failed, report.page) == (1, [], None) and "index.html" in report.unshown[0]


def test_nothing_is_overwritten_unless_that_is_asked_for(model, originals, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "h.jpg").write_text("mine")
    with pytest.raises(
        UserError, match=r"1 of 9 files to write are there, .*h\.jpg for one: expected none; use --overwrite"
    ):
        translate_files.translate([model], tmp_path / "in", tmp_path / "out")
    assert files(tmp_path / "out") == ["h.jpg"] and (tmp_path / "out" / "h.jpg").read_text() == "mine"
    assert translate_files.translate([model], tmp_path / "in", tmp_path / "out", overwrite=True).done == 9
    with Image.open(tmp_path / "out" / "h.jpg") as image:
        assert image.size == (30, 40)
    with pytest.raises(UserError, match="9 of 9 files to write are there"):
        translate_files.translate([model], tmp_path / "in", tmp_path / "in")


def test_what_is_there_is_skipped_where_that_is_asked_for(model, originals, tmp_path):
    writer.write(tmp_path / "out" / "sub" / "c.webp", DecodedImage(pictures(8, 8, 3)))
    mine = (tmp_path / "out" / "sub" / "c.webp").read_bytes()
    report = translate_files.translate([model], tmp_path / "in", tmp_path / "out", skip_existing=True)
    assert (report.done, report.skipped) == (8, 1) and files(tmp_path / "out") == sorted(originals)
    assert (tmp_path / "out" / "sub" / "c.webp").read_bytes() == mine
    report = translate_files.translate([model], tmp_path / "in", tmp_path / "out", skip_existing=True)
    assert (report.done, report.skipped) == (0, 9)
    for other in ("overwrite", "html"):
        with pytest.raises(UserError, match=f"--skip_existing with --{other}.*: expected one of them"):
            translate_files.translate([model], tmp_path / "in", tmp_path / "out", skip_existing=True, **{other: True})


def test_two_files_that_would_become_one_are_refused(model, originals, tmp_path):
    writer.write(tmp_path / "in" / "a.tif", DecodedImage(pictures(8, 8, 3)))
    with pytest.raises(UserError, match=r"a\.png and a\.tif would both be written to .*a\.png: expected other names"):
        translate_files.translate([model], tmp_path / "in", tmp_path / "out", format="png")
    assert not (tmp_path / "out").exists()


def test_translations_inside_of_the_originals_folder_are_not_translated_again(model, originals, tmp_path):
    translate_files.translate([model], tmp_path / "in", tmp_path / "in" / "out")
    assert files(tmp_path / "in" / "out") == sorted(originals)
    assert translate_files.translate([model], tmp_path / "in", tmp_path / "in" / "out", overwrite=True).done == 9


def test_channels_that_a_format_has_no_place_for_are_refused_first(tmp_path, strategies):
    make_run(tmp_path / "run", strategies[1], channels_y=5)
    writer.write(tmp_path / "in" / "a.png", DecodedImage(pictures(16, 16, 3)))
    with pytest.raises(UserError, match=r"out/a\.png: 5 channels don't fit into png; expected --format tiff"):
        cyclegan.translate(tmp_path / "run", tmp_path / "in", tmp_path / "out")
    assert cyclegan.translate(tmp_path / "run", tmp_path / "in", tmp_path / "out", format="tiff").done == 1
    assert reader.decode(tmp_path / "out" / "a.tif", 5).shape == (16, 16, 5)


def test_what_is_not_there_or_empty_is_refused(model, tmp_path):
    with pytest.raises(
        UserError, match="no such file or folder; expected a picture, a folder of pictures, or a pattern"
    ):
        translate_files.translate([model], tmp_path / "nothing", tmp_path / "out")
    with pytest.raises(UserError, match=r"no pictures; expected at least one of \.jpg"):
        translate_files.translate([model], tmp_path, tmp_path / "out")
    writer.write(tmp_path / "in" / "a.png", DecodedImage(pictures(8, 8, 3)))
    (tmp_path / "file").write_text("")
    for options, text in (
        ({"direction": "sideways"}, "direction 'sideways', batch_size 8: expected x2y or y2x"),
        ({"batch_size": 0}, "expected x2y or y2x, and at least 1 picture"),
        ({"size": 64}, r"size 64: expected \(width, height\) in pixels"),
        ({"size": (0, 5)}, r"size \(0, 5\): expected \(width, height\) in pixels"),
        ({"format": "jxl"}, "--format jxl: expected one of png, jpeg"),
    ):
        with pytest.raises(UserError, match=text):
            translate_files.translate([model], tmp_path / "in", tmp_path / "out", **options)
    with pytest.raises(UserError, match=r"a\.jpgg: expected a folder, or a file that ends in one of \.png \.jpg"):
        translate_files.translate([model], tmp_path / "in" / "a.png", tmp_path / "a.jpgg")
    with pytest.raises(UserError, match="file: a file; expected a folder for the translations of 1 pictures"):
        translate_files.translate([model], tmp_path / "in", tmp_path / "file")


def test_images_of_one_size_are_translated_together(model, tmp_path, monkeypatch):
    for number in range(7):
        writer.write(tmp_path / "in" / f"{number}.png", DecodedImage(pictures(16, 20, 3, seed=number)))
    shapes = []
    translator = model.translator("x2y")
    monkeypatch.setitem(model._translators, "x2y", Recording(translator, shapes))
    translate_files.translate([model], tmp_path / "in", tmp_path / "out", batch_size=3)
    assert sorted(shapes) == [1, 3, 3]
    for number in range(7):
        expected = translator(pictures(1, 16, 20, 3, seed=number))[0]
        np.testing.assert_array_equal(reader.decode(tmp_path / "out" / f"{number}.png"), expected)


class Recording:
    """A translator that writes down how many pictures it gets, and fails where `fails` says so of them."""

    def __init__(self, translator, shapes, fails=lambda pictures: False):
        self.translator, self.shapes, self.fails = translator, shapes, fails
        self.inputs, self.outputs = translator.inputs, translator.outputs

    def __call__(self, pictures):
        self.shapes.append(len(pictures))
        if self.fails(pictures):
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        return self.translator(pictures)


def test_a_batch_that_fails_is_translated_one_by_one(model, tmp_path, monkeypatch):
    for number in range(4):
        writer.write(tmp_path / "in" / f"{number}.png", DecodedImage(pictures(16, 20, 3, seed=number)))
    shapes, third = [], pictures(16, 20, 3, seed=2)
    recording = Recording(model.translator("x2y"), shapes, lambda batch: any((one == third).all() for one in batch))
    monkeypatch.setitem(model._translators, "x2y", recording)
    report = translate_files.translate([model], tmp_path / "in", tmp_path / "out")
    assert report.failed == [
        f"{tmp_path}/in/2.png (the device has not enough memory for it; try a smaller --tile or --size)"
    ]
    assert shapes == [4, 1, 1, 1, 1] and files(tmp_path / "out") == ["0.png", "1.png", "3.png"]


def test_a_network_that_gives_no_numbers_writes_no_picture(model, originals, tmp_path, monkeypatch):
    broken = Translator(model._trained.G, 4)
    monkeypatch.setattr(broken, "_float", lambda pictures: np.full((*pictures.shape[:3], 3), np.nan, np.float32))
    monkeypatch.setitem(model._translators, "x2y", broken)
    report = translate_files.translate([model], tmp_path / "in", tmp_path / "out")
    assert report.done == 0 and len(report.failed) == len(originals) and not (tmp_path / "out").exists()
    assert "the network's output is not finite (NaN)" in report.failed[0]


def test_ctrl_c_stops_what_has_not_begun(model, tmp_path, monkeypatch):
    for number in range(40):
        writer.write(tmp_path / "in" / f"{number:02d}.png", DecodedImage(pictures(16, 16 + 4 * (number % 2), 3)))
    monkeypatch.setattr(translate_files.os, "cpu_count", lambda: 1)

    class Bar(translate_files.tqdm.tqdm):
        def update(self, n=1):
            raise KeyboardInterrupt

    monkeypatch.setattr(translate_files.tqdm, "tqdm", Bar)
    slow = Recording(model.translator("x2y"), [], lambda batch: time.sleep(0.05))
    monkeypatch.setitem(model._translators, "x2y", slow)
    with pytest.raises(KeyboardInterrupt):
        translate_files.translate([model], tmp_path / "in", tmp_path / "out")
    assert 0 < len(files(tmp_path / "out")) < 20


def test_profiles_are_kept_where_they_are_of_such_colours(model, tmp_path):
    profiles = {space: (bytes(16) + space + bytes(200)) for space in (b"RGB ", b"GRAY", b"CMYK")}
    for name, space, dtype in (
        ("a.png", b"RGB ", np.uint8),
        ("b.png", b"RGB ", np.uint16),
        ("c.tif", b"GRAY", np.uint8),
    ):
        picture = DecodedImage(pictures(16, 20, 3, dtype=dtype), None, profiles[space])
        writer.write(tmp_path / "in" / name, picture)
        assert reader.decode_whole(tmp_path / "in" / name).profile == profiles[space]
    Image.new("CMYK", (16, 16)).save(tmp_path / "in" / "d.jpg", icc_profile=profiles[b"CMYK"])
    translate_files.translate([model], tmp_path / "in", tmp_path / "out")
    kept = {name: reader.decode_whole(tmp_path / "out" / name).profile for name in files(tmp_path / "out")}
    assert kept == {"a.png": profiles[b"RGB "], "b.png": profiles[b"RGB "], "c.tif": b"", "d.jpg": b""}
    assert reader.decode_whole(tmp_path / "out" / "b.png").pixels.dtype == np.uint16


def test_batches_follow_each_other_and_are_bounded():
    looked = [((10, 10, False), 100, name) for name in "abcde"] + [
        ("broken", 0, "f"),
        ((10, 10, True), 120, "g"),
        ((10, 10, True), 900, "h"),
        ((40, 50, True), 100, "i"),
    ]
    assert list(translate_files._batches(looked, 8, 250)) == [
        ((10, 10, False), 200, ["a", "b"]), ((10, 10, False), 200, ["c", "d"]), ((10, 10, False), 100, ["e"]),
        ("broken", 0, ["f"]), ((10, 10, True), 900, ["g", "h"]), ((40, 50, True), 2000, ["i"]),
    ]  # fmt: skip


def test_translation_does_not_wait_for_the_last_header(model, tmp_path, monkeypatch):
    for number in range(20):
        writer.write(tmp_path / "in" / f"{number:02d}.png", DecodedImage(pictures(16, 20, 3)))
    events, check, write = [], reader.check, writer.write
    monkeypatch.setattr(reader, "check", lambda *given: events.append("look") or check(*given))
    monkeypatch.setattr(writer, "write", lambda *given: events.append("write") or write(*given))
    monkeypatch.setattr(translate_files, "LOOKS", 2)
    monkeypatch.setattr(translate_files.os, "cpu_count", lambda: 1)
    assert translate_files.translate([model], tmp_path / "in", tmp_path / "out", batch_size=2).done == 20
    assert events.count("look") == events.count("write") == 20
    assert events.index("write") < len(events) - 1 - events[::-1].index("look")


def test_files_of_several_frames_are_counted(model, tmp_path):
    frames = [Image.fromarray(pictures(16, 20, 3, seed=seed)) for seed in range(3)]
    (tmp_path / "in").mkdir()
    for name, count in (("a.gif", 3), ("b.gif", 1), ("c.webp", 2)):
        frames[0].save(tmp_path / "in" / name, save_all=True, append_images=frames[1:count])
    report = translate_files.translate([model], tmp_path / "in", tmp_path / "out")
    assert (report.done, report.cut) == (3, 2)


def test_large_pictures_are_counted(folder, tmp_path):
    model = Model(folder, tile=512)
    writer.write(tmp_path / "in" / "a.png", DecodedImage(pictures(520, 600, 3)))
    writer.write(tmp_path / "in" / "b.png", DecodedImage(pictures(20, 20, 3)))
    report = translate_files.translate([model], tmp_path / "in", tmp_path / "out")
    assert (report.done, report.tiled) == (2, 1)
    np.testing.assert_array_equal(reader.decode(tmp_path / "out" / "a.png"), model.x2y(pictures(520, 600, 3)))


def test_several_devices_share_the_pictures(folder, model, originals, tmp_path):
    models = [Model(folder, device=f"/device:CPU:{i}") for i in (1, 2)]
    report = translate_files.translate(models, tmp_path / "in", tmp_path / "out", batch_size=1)
    assert report.done == len(originals)
    for name in ("a.png", "f.tif", "i%20 ü#?.png"):
        expected = model.x2y(reader.decode(tmp_path / "in" / name))
        np.testing.assert_array_equal(reader.decode(tmp_path / "out" / name), expected)


def test_the_page_shows_there_and_back_again(model, originals, tmp_path):
    writer.write(tmp_path / "in" / "large.tif", DecodedImage(pictures(600, 90, 3, dtype=np.uint16)))
    report = translate_files.translate([model], tmp_path / "in", tmp_path / "out", html=True)
    assert report.page == tmp_path / "out" / "index.html" and report.done == 10
    shown = sorted(os.listdir(tmp_path / "out" / "index_files"))
    assert len(shown) == 30 and shown[:3] == ["000001_cycle.png", "000001_input.png", "000001_output.png"]
    before = reader.decode(tmp_path / "in" / "a.png")
    np.testing.assert_array_equal(reader.decode(tmp_path / "out" / "index_files" / "000001_input.png"), before)
    after = model.x2y(before)
    np.testing.assert_array_equal(
        reader.decode(tmp_path / "out" / "index_files" / "000001_cycle.png"), model.y2x(after)
    )
    text = (tmp_path / "out" / "index.html").read_text()
    error = np.abs(before.astype(float) - model.y2x(after)).mean()
    assert f"{error:.3f}" in text
    sizes = [Image.open(tmp_path / "out" / "index_files" / name) for name in shown if name.startswith("000008")]
    for image in sizes:
        with image:
            assert image.size == (77, 512) and image.mode == "RGB"
    with pytest.raises(UserError, match="files to write are there"):
        translate_files.translate([model], tmp_path / "in" / "a.png", tmp_path / "out", html=True)
    (tmp_path / "other" / "index_files").mkdir(parents=True)
    with pytest.raises(UserError, match="index_files for one: expected none"):
        translate_files.translate([model], tmp_path / "in" / "a.png", tmp_path / "other", html=True)
    back = translate_files.translate([model], tmp_path / "out", tmp_path / "back", "y2x", html=True)
    assert back.done == 10 and back.failed == []  # its copies are not taken for pictures


def test_from_python(folder, model, originals, tmp_path):
    report = cyclegan.translate(folder, tmp_path / "in" / "a.png", tmp_path / "a.png", "y2x")
    assert report.done == 1
    np.testing.assert_array_equal(
        reader.decode(tmp_path / "a.png"), model.y2x(reader.decode(tmp_path / "in" / "a.png"))
    )
    assert cyclegan.translate(model, tmp_path / "in", tmp_path / "out", format="png", batch_size=2).done == len(
        originals
    )


def translate_py(*arguments):
    command = [sys.executable, ROOT / "scripts" / "translate.py", *arguments]
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    )


def test_the_script(folder, originals, tmp_path):
    (tmp_path / "in" / "broken.png").write_text("no picture")
    frames = [Image.fromarray(pictures(16, 20, 3, seed=seed)) for seed in range(2)]
    frames[0].save(tmp_path / "in" / "e.gif", save_all=True, append_images=frames[1:])
    done = translate_py(
        folder, tmp_path / "in", tmp_path / "out", "--direction", "y2x", "--html", "--devices", 2, "--format", "png"
    )
    assert done.returncode == 1
    assert re.match(
        r"9 pictures translated in [\d.]+ s \([\d.]+ images/s\), from .*epoch_0002\n"
        r"Of several frames or pages, of which only the first was translated: 1\nTo look at: .*index\.html\n",
        done.stdout,
    )
    assert done.stderr == f"translate.py: not translated: {tmp_path}/in/broken.png (not a picture)\n"
    assert len(files(tmp_path / "out")) == 9 + 1 + 27


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere", "a", "b"], "translate.py: nowhere: no such folder; expected the folder of a run"),
        (["RUN", "a", "b", "--checkpoint", "best-x2y"], "no such checkpoint; expected one of epoch_0001, epoch_0002"),
        (["RUN", "a", "b", "--size", "0x7"], "'0x7': expected a number of pixels, or WIDTHxHEIGHT"),
        (["RUN", "a", "b", "--batch_size", "0"], "'0': expected a whole number of at least 1"),
    ],
)
def test_mistakes_on_the_command_line(folder, arguments, text, capsys):
    from scripts import translate

    try:
        translate.main([str(folder) if part == "RUN" else part for part in arguments])
    except UserError as error:
        assert text in f"translate.py: {error}"
    except SystemExit as left:
        assert left.code == 2 and text in capsys.readouterr().err
    else:
        pytest.fail("it was not refused")
