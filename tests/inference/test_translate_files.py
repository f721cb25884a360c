"""Translation of files, folders and patterns."""

import copy
import os
import re
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tifffile
import tqdm
from PIL import Image

import cyclegan
from cyclegan.config import Config
from cyclegan.errors import UserError
from cyclegan.images import formats, geometry, image, reader, tiff_format
from cyclegan.images.image import DecodedImage, Metadata
from cyclegan.inference import file_translator, translate_files
from cyclegan.inference.file_translator import Request
from cyclegan.inference.model import Model
from cyclegan.inference.translate_files import make_plan, translate
from tests.inference.arrays import files, images
from tests.inference.runs import make_run


def write_same_size(folder, count):
    for number in range(count):
        formats.write(folder / f"{number:02d}.png", DecodedImage(images(16, 20, 3, seed=number)))


@pytest.fixture
def calls(model, monkeypatch):
    """Record the sizes of the batches of the translations; the function `found.check` may fail for some."""

    class Calls(list):
        check = staticmethod(lambda batch: None)

    found, original = Calls(), Model.translate

    def translate(self, direction, batch, progress):
        found.append(len(batch))
        found.check(batch)
        return original(self, direction, batch, progress)

    monkeypatch.setattr(Model, "translate", translate)
    return found


def test_every_image_of_a_folder_is_translated(model, originals, tmp_path):
    report = translate([model], tmp_path / "in", tmp_path / "out")
    assert (report.done, report.failed, report.tiled, report.page) == (len(originals), [], 0, None)
    assert files(tmp_path / "out") == sorted(originals)
    for name, (height, width) in originals.items():
        with Image.open(tmp_path / "in" / name) as before, Image.open(tmp_path / "out" / name) as after:
            assert before.format == after.format and after.size == (width, height)
        if name.endswith(("png", "tif", "bmp")):  # without loss
            expected = model.x2y(reader.decode(tmp_path / "in" / name))
            np.testing.assert_array_equal(reader.decode(tmp_path / "out" / name), expected)


def test_depth_and_opacity_are_kept_and_orientation_applied(model, tmp_path):
    deep, opacity = images(20, 24, 3, dtype=np.uint16), images(20, 24, 1, seed=1)
    for name in ("deep.png", "deep.tif"):
        formats.write(tmp_path / "in" / name, DecodedImage(deep))
    formats.write(tmp_path / "in" / "clear.png", DecodedImage(images(20, 24, 3), opacity))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(images(20, 24, 3)).save(tmp_path / "in" / "turned.png", exif=exif)
    assert translate([model], tmp_path / "in", tmp_path / "out", "y2x").done == 4
    expected, _ = model.y2x(np.stack([deep, deep]))  # a batch, as the files: one image may be rounded otherwise
    for name in ("deep.png", "deep.tif"):
        np.testing.assert_array_equal(reader.decode_values(tmp_path / "out" / name).pixels, expected)
    found = reader.decode_values(tmp_path / "out" / "clear.png")
    np.testing.assert_array_equal(found.opacity, opacity)
    with Image.open(tmp_path / "out" / "turned.png") as image:
        assert image.size == (20, 24) and image.getexif()[0x0112] == 1
    np.testing.assert_array_equal(
        reader.decode(tmp_path / "out" / "turned.png"), model.y2x(np.rot90(images(20, 24, 3), -1))
    )


def test_color_profiles_are_kept_where_they_fit(model, tmp_path):
    profiles = {space: (bytes(16) + space + bytes(200)) for space in (b"RGB ", b"GRAY", b"CMYK")}
    for name, space in (("a.png", b"RGB "), ("c.tif", b"GRAY")):
        formats.write(tmp_path / "in" / name, DecodedImage(images(16, 20, 3), None, Metadata(profiles[space])))
    Image.new("CMYK", (16, 16)).save(tmp_path / "in" / "d.jpg", icc_profile=profiles[b"CMYK"])
    translate([model], tmp_path / "in", tmp_path / "out")
    kept = {name: reader.decode_values(tmp_path / "out" / name).metadata.profile for name in files(tmp_path / "out")}
    assert kept == {"a.png": profiles[b"RGB "], "c.tif": b"", "d.jpg": b""}


def test_metadata_is_kept_unless_it_is_stripped(model, tmp_path):
    exif = Image.Exif()
    exif[0x010F] = "a camera"
    (tmp_path / "in").mkdir()
    Image.fromarray(images(16, 20, 3)).save(tmp_path / "in" / "a.jpg", exif=exif, dpi=(300, 300))
    for strip, expected in ((False, ("a camera", (300, 300))), (True, (None, None))):
        translate([model], tmp_path / "in", tmp_path / f"{strip}", strip_metadata=strip)
        with Image.open(tmp_path / f"{strip}" / "a.jpg") as image:
            assert (image.getexif().get(0x010F), image.info.get("dpi")) == expected


def test_tiled_images_and_files_with_several_frames_are_counted(run_folder, tmp_path):
    model = Model(run_folder, tile=512)
    formats.write(tmp_path / "in" / "a.png", DecodedImage(images(520, 600, 3)))
    frames = [Image.fromarray(images(16, 20, 3, seed=seed)) for seed in range(3)]
    for name, count in (("a.gif", 3), ("b.gif", 1), ("c.webp", 2)):
        frames[0].save(tmp_path / "in" / name, save_all=True, append_images=frames[1:count])
    tifffile.imwrite(
        tmp_path / "in" / "infrared.tif", images(16, 20, 4), photometric="rgb", extrasamples=["unspecified"]
    )
    channels = {"ome": True, "metadata": {"axes": "CYX"}, "photometric": "minisblack"}
    tifffile.imwrite(tmp_path / "in" / "microscope.tif", images(2, 16, 20), **channels)
    report = translate([model], tmp_path / "in", tmp_path / "out")
    assert (report.done, report.tiled, report.cut, report.partial) == (6, 1, 2, 2)
    np.testing.assert_array_equal(reader.decode(tmp_path / "out" / "a.png"), model.x2y(images(520, 600, 3)))


@pytest.mark.parametrize("kind", ["color", "opacity", "gray16"])
def test_large_tiff_files_are_translated_row_by_row(run_folder, models, tmp_path, monkeypatch, kind):
    """The pixels, the place and the resolution equal those of a translation at once; the file is a tiled BigTIFF."""
    pixels = images(
        530, 610, {"color": 3, "opacity": 4, "gray16": 3}[kind], dtype=np.uint16 if kind == "gray16" else np.uint8
    )
    place = [(33550, "d", 3, (0.5, 0.5, 0.0), True), (33922, "d", 6, (0, 0, 0, 5e5, 4e6, 0), True)]
    options = {"tile": (64, 128), "compression": "zlib"} if kind == "color" else {"rowsperstrip": 7}
    options.update(photometric="rgb", resolution=(254, 254), resolutionunit=3, extratags=place)
    tifffile.imwrite(tmp_path / "a.tif", pixels, **options)
    model = Model(models[1] if kind == "gray16" else run_folder, tile=512)  # to gray or RGB
    translate([model], tmp_path / "a.tif", tmp_path / "whole.tif")
    monkeypatch.setattr(tiff_format, "LARGE_PIXELS", 1000)
    monkeypatch.setattr(Model, "translate", None)
    report = translate([model], tmp_path / "a.tif", tmp_path / "rows.tif")
    assert (report.done, report.tiled, report.failed) == (1, 1, [])
    channels = model.channels("x2y")[1]
    whole, rows = (reader.decode_values(tmp_path / name, channels) for name in ("whole.tif", "rows.tif"))
    np.testing.assert_array_equal(rows.pixels, whole.pixels)
    assert rows.metadata == whole.metadata and len(rows.metadata.tags) == 2
    if kind == "opacity":
        np.testing.assert_array_equal(rows.opacity, pixels[..., 3:])
    with tifffile.TiffFile(tmp_path / "rows.tif") as file:
        assert file.is_bigtiff and file.pages[0].is_tiled and file.pages[0].dtype == pixels.dtype


def test_several_devices_share_the_images(run_folder, model, originals, tmp_path):
    models = [Model(run_folder, device=f"/device:CPU:{i}") for i in (1, 2)]
    report = translate(models, tmp_path / "in", tmp_path / "out", batch_size=1)
    assert report.done == len(originals)
    for name in ("a.png", "f.tif", "i%20 ü#?.png"):
        expected = model.x2y(reader.decode(tmp_path / "in" / name))
        np.testing.assert_array_equal(reader.decode(tmp_path / "out" / name), expected)


def test_python_translates_with_a_run_or_a_model(run_folder, model, originals, tmp_path):
    report = cyclegan.translate(run_folder, tmp_path / "in" / "a.png", tmp_path / "a.png", "y2x")
    assert report.done == 1
    np.testing.assert_array_equal(
        reader.decode(tmp_path / "a.png"), model.y2x(reader.decode(tmp_path / "in" / "a.png"))
    )
    assert cyclegan.translate(model, tmp_path / "in", tmp_path / "out", format="png", batch_size=2).done == 9


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


def test_a_name_without_a_format_needs_one(model, originals, tmp_path):
    (tmp_path / "in" / "b.jpg").rename(tmp_path / "photo.scan")
    with pytest.raises(
        UserError, match=r"scan: its name does not end in .*expected --format .*file as output: photo\.jpg"
    ):
        translate([model], tmp_path / "photo.scan", tmp_path / "out")
    assert translate([model], tmp_path / "photo.scan", tmp_path / "out", format="jpeg").done == 1
    assert translate([model], tmp_path / "photo.scan", tmp_path / "out" / "b.jpg").done == 1
    assert files(tmp_path / "out") == ["b.jpg", "photo.jpg"]


def test_patterns_match_as_in_a_shell(model, originals, tmp_path, monkeypatch):
    (tmp_path / "in" / "notes.txt").write_text("no image")
    translate([model], tmp_path / "in" / "**" / "*", tmp_path / "all", format="png")
    assert files(tmp_path / "all") == sorted(re.sub(r"\.\w+$", ".png", name) for name in originals)
    monkeypatch.chdir(tmp_path / "in")
    translate([model], "*.jp*g", "../some")
    assert files(tmp_path / "some") == ["b.jpg", "h.jpg"]  # as in a shell, capital letters are others
    bracketed = (tmp_path / "in").rename(tmp_path / "[in]")
    (tmp_path / "i").mkdir()  # what the name would match as a pattern
    translate([model], bracketed, tmp_path / "folder", format="png")
    translate([model], bracketed / "*.jp*g", tmp_path / "pattern")
    assert files(tmp_path / "folder") == files(tmp_path / "all") and files(tmp_path / "pattern") == ["b.jpg", "h.jpg"]
    with pytest.raises(UserError, match=r"x\*: no images; expected at least one of \.png"):
        translate([model], "x*", "../none")


def test_a_pattern_that_leads_out_is_refused():
    for pattern in ("photos/*/../../secret/*.png", "**/../b.png"):
        with pytest.raises(UserError, match=r"\.\. after a wildcard; expected a pattern that stays in its folder"):
            translate_files.plan_tasks([pattern], "out", None)


def test_existing_files_are_replaced_or_skipped_on_request_only(model, originals, tmp_path):
    formats.write(tmp_path / "out" / "sub" / "c.webp", DecodedImage(images(8, 8, 3)))
    mine = (tmp_path / "out" / "sub" / "c.webp").read_bytes()
    with pytest.raises(
        UserError, match=r"1 of 9 files to write exist, for example .*c\.webp: expected none; use --over"
    ):
        translate([model], tmp_path / "in", tmp_path / "out")
    assert files(tmp_path / "out") == ["sub/c.webp"]
    report = translate([model], tmp_path / "in", tmp_path / "out", skip_existing=True)
    assert (report.done, report.skipped) == (8, 1) and files(tmp_path / "out") == sorted(originals)
    assert (tmp_path / "out" / "sub" / "c.webp").read_bytes() == mine
    assert translate([model], tmp_path / "in", tmp_path / "out", overwrite=True).done == 9
    assert (tmp_path / "out" / "sub" / "c.webp").read_bytes() != mine
    for other in ("overwrite", "html"):
        with pytest.raises(UserError, match=f"--skip_existing with --{other}.*: expected one of them"):
            translate([model], tmp_path / "in", tmp_path / "out", skip_existing=True, **{other: True})


def test_originals_are_never_replaced(model, originals, tmp_path):
    source = tmp_path / "in"
    before = (source / "a.png").read_bytes()
    (tmp_path / "link").symlink_to(source)
    for target in (source, tmp_path / "link"):
        for what in (source, source / "a.png"):
            with pytest.raises(UserError, match="a translation would replace this original"):
                translate([model], what, target, overwrite=True)
    assert (source / "a.png").read_bytes() == before


def test_a_target_within_the_source_is_not_translated(model, originals, tmp_path):
    for _ in range(2):
        assert translate([model], tmp_path / "in", tmp_path / "in" / "out", overwrite=True).done == 9
    assert files(tmp_path / "in" / "out") == sorted(originals)


def test_too_many_channels_for_a_format_are_refused(tmp_path, strategies):
    make_run(tmp_path / "run", strategies[1], channels_y=5)
    formats.write(tmp_path / "in" / "a.png", DecodedImage(images(16, 16, 3)))
    with pytest.raises(UserError, match=r"in/a\.png .5 channels don't fit into png: expected --format tiff"):
        cyclegan.translate(tmp_path / "run", tmp_path / "in", tmp_path / "out")
    assert cyclegan.translate(tmp_path / "run", tmp_path / "in", tmp_path / "out", format="tiff").done == 1
    assert reader.decode(tmp_path / "out" / "a.tif", 5).shape == (16, 16, 5)


@pytest.mark.parametrize("name", ["a.png", "a.webp", "a.tif"])
def test_four_channels_are_colors_and_opacity(tmp_path, strategies, monkeypatch, name):
    make_run(tmp_path / "run", strategies[1], channels_x=4, channels_y=4)
    pixels = images(4, 5, 4).repeat(4, axis=0).repeat(4, axis=1)
    pixels[..., 3] |= 128
    formats.write(tmp_path / "in.png", DecodedImage(pixels))
    monkeypatch.setattr(Model, "translate", lambda self, direction, batch, *_: batch)
    assert cyclegan.translate(tmp_path / "run", tmp_path / "in.png", tmp_path / name).done == 1
    with Image.open(tmp_path / name) as image:  # as other programs see it
        assert image.mode == "RGBA" and np.abs(np.asarray(image).astype(int) - pixels)[..., 3].max() == 0
    found = reader.decode(tmp_path / name, 4)
    assert np.abs(found.astype(int) - pixels).mean() < (20 if name == "a.webp" else 1e-9)
    model = Model(tmp_path / "run")
    assert model.x2y(tmp_path / name).mode == model.x2y(Image.fromarray(pixels)).mode == "RGBA"


def test_impossible_requests_are_refused(model, tmp_path):
    for name in ("in/a.png", "in/a.tif"):
        formats.write(tmp_path / name, DecodedImage(images(8, 8, 3)))
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for source, target, options, text in (
        ("nothing", "out", {}, "no such file or folder; expected an image, a folder of images, or a pattern"),
        ("empty", "out", {}, r"no images; expected at least one of \.png"),
        ("in", "out", {"batch_size": 0}, "batch_size 0: expected a whole number of at least 1 image"),
        ("in", "out", {"size": "64"}, r"size '64': expected \(width, height\) in pixels"),
        ("in", "out", {"format": "jpgg"}, "--format jpgg: expected an ending such as jpg, or one of png, jpeg"),
        ("in/a.png", "a.jpgg", {}, r"a\.jpgg: expected a folder, or a file that ends in one of \.png \.jpg"),
        ("in/a.png", "b.png", {"format": "tiff"}, r"--format tiff expects a name that ends in \.tif or \.tiff"),
        ("in", "file", {}, "file: names a file; expected a folder for the translations of 2 images"),
        ("in", "h.png", {}, r"h\.png: names a file; expected a folder"),
        ("in", "file/out", {}, "file: Not a directory; expected a folder that can be written to"),
        ("in", "out", {"size": (99999, 99999)}, "--size 99999 x 99999 pixels: expected at most 180 million"),
        ("in", "out", {"format": "png"}, r"a\.png and a\.tif would both be written to .*a\.png: expected different"),
    ):
        with pytest.raises(UserError, match=text):
            translate([model], tmp_path / source, tmp_path / target, **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", ["data/trainB", "data/testA/new", "link"])
def test_translations_do_not_become_training_images(tmp_path, target):
    write_same_size(tmp_path / "data" / "trainA", 1)
    (tmp_path / "data" / "trainB").mkdir()
    (tmp_path / "link").symlink_to("data/trainB")
    config, source = Config.from_settings(dataset=str(tmp_path / "data")), [str(tmp_path / "data" / "trainA")]
    make_plan(config, source, str(tmp_path / "data" / "translated"), Request())
    with pytest.raises(UserError, match=f"{target}: holds images that the run was trained or scored on"):
        make_plan(config, source, str(tmp_path / target), Request())


def test_pixels_in_progress_are_bounded(model, tmp_path, monkeypatch):
    write_same_size(tmp_path / "in", 12)
    active, most, original, write = set(), [], reader.decode_with_header, formats.write

    def decode(source, *given):
        active.add(os.path.basename(source))
        most.append(len(active))
        time.sleep(0.02)
        return original(source, *given)

    monkeypatch.setattr(reader, "decode_with_header", decode)
    monkeypatch.setattr(formats, "write", lambda path, *given: (write(path, *given), active.remove(path.name)))
    monkeypatch.setattr(file_translator, "available_cores", lambda: 8)
    monkeypatch.setattr(file_translator, "MAX_PIXELS", 3 * 16 * 20)
    assert translate([model], tmp_path / "in", tmp_path / "out", batch_size=1).done == 12
    assert 1 < max(most) <= 3


def test_a_failed_batch_is_translated_one_by_one(model, tmp_path, calls):
    write_same_size(tmp_path / "in", 4)
    third = images(16, 20, 3, seed=2)

    def check(batch):
        if any((one == third).all() for one in batch):
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    calls.check = check
    report = translate([model], tmp_path / "in", tmp_path / "out")
    assert report.failed == [
        f"{tmp_path}/in/02.png (the device does not have enough memory for it; try a smaller --tile or --size)"
    ]
    assert calls == [4, 1, 1, 1, 1] and files(tmp_path / "out") == ["00.png", "01.png", "03.png"]


def test_an_output_that_is_not_finite(run_folder, originals, tmp_path):
    model = Model(run_folder)
    for variable in model.generator("x2y").variables:
        variable.assign(tf.fill(variable.shape, np.nan))
    report = translate([model], tmp_path / "in", tmp_path / "out")
    assert report.done == 0 and len(report.failed) == len(originals) and not (tmp_path / "out").exists()
    assert "the network's output is not finite (NaN)" in report.failed[0]


def test_one_file_fails_alone_with_its_name(model, originals, tmp_path, monkeypatch):
    whole, decode = (tmp_path / "in" / "b.jpg").read_bytes(), reader.decode_with_header
    (tmp_path / "in" / "half.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "in" / "text\n.png").write_text("no image")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sub").write_text("a file where a folder should be")

    def sometimes(source, *given):
        if source.endswith("g.JPEG"):
            raise OSError("gone since its header was read")
        return decode(source, *given)

    monkeypatch.setattr(reader, "decode_with_header", sometimes)
    report = translate([model], tmp_path / "in", tmp_path / "out")
    failed = dict(re.fullmatch(r".*/in/(.*?) \((.*)\)", text).groups() for text in report.failed)
    assert list(failed) == ["g.JPEG", "half.jpg", "sub/c.webp", "sub/deeper/d.bmp", r"text\n.png"]
    assert failed["g.JPEG"] == "gone since its header was read" and failed[r"text\n.png"] == "a text, not an image"
    assert report.done == len(originals) - 3 == len(files(tmp_path / "out")) - 1


def test_ctrl_c(model, tmp_path, monkeypatch, calls):
    for number in range(40):
        formats.write(tmp_path / "in" / f"{number:02d}.png", DecodedImage(images(16, 16 + 4 * (number % 2), 3)))
    monkeypatch.setattr(file_translator, "available_cores", lambda: 1)

    class Bar(tqdm.tqdm):
        def update(self, n=1):
            raise KeyboardInterrupt

    monkeypatch.setattr(file_translator.terminal, "progress_bar", lambda *_, **__: Bar(disable=True))
    calls.check = lambda batch: time.sleep(0.05)
    with pytest.raises(KeyboardInterrupt):
        translate([model], tmp_path / "in", tmp_path / "out")
    assert 0 < len(files(tmp_path / "out")) < 20


def test_a_large_image_shows_its_tiles_and_ends_at_the_next_one_after_ctrl_c(run_folder, tmp_path, monkeypatch):
    formats.write(tmp_path / "a.png", DecodedImage(images(520, 1500, 3)))
    model, texts, started = Model(run_folder, tile=512), [], threading.Event()

    class Bar(tqdm.tqdm):
        def set_postfix_str(self, text):
            texts.append(text)
            started.set()

    def interrupt(pool, function, batches):
        for _, batch in batches:
            pool.submit(function, batch)
        started.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(file_translator.terminal, "progress_bar", lambda *_, **settings: Bar(disable=True, **settings))
    assert translate(model, tmp_path / "a.png", tmp_path / "b.png").done == 1
    assert texts[0] == "a.png: pass 1, tile 1 of 8" and texts[-1] == "a.png: last pass, tile 8 of 8"
    count = len(texts)
    texts.clear()
    started.clear()
    monkeypatch.setattr(file_translator, "_in_order", interrupt)
    with pytest.raises(KeyboardInterrupt):
        translate(model, tmp_path / "a.png", tmp_path / "out" / "c.png")
    assert 0 < len(texts) < count / 2 and files(tmp_path / "out") == []


def test_images_that_take_too_much_memory_are_refused(model, tmp_path, monkeypatch):
    write_same_size(tmp_path / "in", 2)
    hint = "larger images can be translated from TIFF to TIFF files without --size, --masks and --html"
    for module, name, value, text in (
        (
            file_translator.loading,
            "free_bytes",
            lambda: 20_000,
            "its translation takes about 0.0 GB of memory, but 0.0 GB",
        ),
        (image, "MAX_IMAGE_PIXELS", 300, "20 x 16 pixels: expected at most 0 million"),
    ):
        with monkeypatch.context() as context:
            context.setattr(module, name, value)
            report = translate(model, tmp_path / "in", tmp_path / "out")
        assert report.done == 0 and len(report.failed) == 2
        assert text in report.failed[0] and hint in report.failed[0]


@pytest.mark.parametrize(
    "settings, size, expected",
    [
        ({}, None, 1),  # 100 x 81 pixels are more than 2.5 times 32 x 32, 100 x 40 and 80 x 80 are not
        ({}, 16, 0),
        ({"preprocess": "scale_width"}, None, 2),
        ({"preprocess": "crop"}, None, 0),  # the training has seen parts of images of any size
    ],
    ids=str,
)
def test_images_much_larger_than_those_of_the_training_are_counted(model, tmp_path, settings, size, expected):
    for number, (height, width) in enumerate([(81, 100), (40, 100), (80, 80)]):
        formats.write(tmp_path / "in" / f"{number}.png", DecodedImage(images(height, width, 3)))
    other = copy.copy(model)
    other.config = model.config.replace(**settings)
    assert translate(other, tmp_path / "in", tmp_path / "out", size=size).far_larger == expected


def test_errors_name_no_temporary_file(model, originals, tmp_path, monkeypatch):
    def full(path, *_):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setitem(formats.FORMATS, "png", formats.FORMATS["png"]._replace(write=full))
    report = translate(model, tmp_path / "in" / "a.png", tmp_path / "out" / "a.png")
    assert report.failed == [f"{tmp_path}/in/a.png ({tmp_path}/out/a.png: No space left on device)"]


def test_page(model, originals, tmp_path):
    formats.write(tmp_path / "in" / "large.tif", DecodedImage(images(600, 90, 3, dtype=np.uint16)))
    report = translate([model], tmp_path / "in", tmp_path / "out", html=True)
    assert report.page == tmp_path / "out" / "index.html" and report.done == 10
    page = tmp_path / "out" / "index_files"
    shown = sorted(os.listdir(page))
    assert len(shown) == 30 and shown[:3] == ["000001_cycle.png", "000001_input.png", "000001_output.png"]
    before = reader.decode(tmp_path / "in" / "a.png")
    cycle = model.y2x(model.x2y(before))
    np.testing.assert_array_equal(reader.decode(page / "000001_input.png"), before)
    np.testing.assert_array_equal(reader.decode(page / "000001_cycle.png"), cycle)
    assert f"{np.abs(before.astype(float) - cycle).mean():.3f}" in report.page.read_text()
    for kind in ("input", "output", "cycle"):
        with Image.open(page / f"000008_{kind}.png") as image:
            assert image.size == (77, 512) and image.mode == "RGB"
    with pytest.raises(UserError, match="files to write exist"):
        translate([model], tmp_path / "in" / "a.png", tmp_path / "out", html=True)
    (tmp_path / "other" / "index_files").mkdir(parents=True)
    with pytest.raises(UserError, match="index_files: expected none"):
        translate([model], tmp_path / "in" / "a.png", tmp_path / "other", html=True)
    back = translate([model], tmp_path / "out", tmp_path / "back", "y2x", html=True)
    assert back.done == 10 and back.failed == []  # copies for the page are no inputs


def test_page_images_that_cannot_be_written(model, originals, tmp_path, monkeypatch):
    thumbnail = file_translator.make_thumbnail

    def sometimes(pixels):
        if pixels.shape[:2] == (17, 23):
            raise OSError(28, "No space left on device")
        return thumbnail(pixels)

    monkeypatch.setattr(file_translator, "make_thumbnail", sometimes)
    report = translate([model], tmp_path / "in", tmp_path / "out", html=True)
    assert report.done == len(originals) - 1 and (tmp_path / "out" / "a.png").exists()
    reason = "translated, but not shown on the page: [Errno 28] No space left on device"
    assert report.failed == [f"{tmp_path}/in/a.png ({reason})"]
    text = report.page.read_text()
    assert "000002_output.png" in text and "000001_output.png" not in text


def test_page_of_one_direction(tmp_path, strategies):
    make_run(tmp_path / "run", strategies[1], objective="cut", channels_y=3)
    formats.write(tmp_path / "a.png", DecodedImage(images(20, 24, 3)))
    model = Model(tmp_path / "run")
    report = translate(model, tmp_path / "a.png", tmp_path / "out", html=True)
    assert (report.done, report.failed) == (1, [])
    page = report.page.read_text()
    assert "No cycle: the run has no generator for the other direction" in page and '"cycle":""' in page
    assert not list((tmp_path / "out").rglob("*cycle*")) and "cycle error" not in page.split("application/json")[1]
    with pytest.raises(UserError, match="--objective cut has no generator Y -> X; expected --direction x2y"):
        translate(model, tmp_path / "a.png", tmp_path / "b", "y2x")
    assert not (tmp_path / "b").exists()


def write_mask(path, height, width):
    """Write a mask with a box inside; return it, bool [height, width]."""
    mask = np.zeros((height, width), bool)
    mask[height // 4 : height // 2, width // 3 :] = True
    formats.write(path, DecodedImage(mask[..., None].astype(np.uint8)))
    return mask


@pytest.mark.parametrize("html, folder", [(False, ""), (True, "in")])
def test_outside_of_the_masks_the_output_is_the_input(run_folder, tmp_path, html, folder):
    """Translate 8 and 16 bits, with opacity, and in tiles."""
    model, opacity = Model(run_folder, tile=512), images(20, 24, 1, seed=1)
    originals = {
        "a.png": (images(20, 24, 3), opacity),
        "sub/b.png": (images(20, 24, 3, dtype=np.uint16), None),
        "sub/c.tif": (images(20, 24, 3, seed=2, dtype=np.uint16), None),
        "large.png": (images(520, 530, 3, seed=3), None),
    }
    masks = {}
    for name, (pixels, alpha) in originals.items():
        formats.write(tmp_path / "in" / name, DecodedImage(pixels, alpha))
        masks[name] = write_mask((tmp_path / "masks" / folder / name).with_suffix(".png"), *pixels.shape[:2])
    report = translate(model, tmp_path / "in", tmp_path / "out", masks=tmp_path / "masks", html=html)
    assert (report.done, report.tiled, report.failed) == (4, 1, [])
    for name, mask in masks.items():
        before, after = (reader.decode_values(tmp_path / each / name) for each in ("in", "out"))
        assert after.pixels.dtype == before.pixels.dtype and (before.pixels != after.pixels)[mask].any()
        np.testing.assert_array_equal(after.pixels[~mask], before.pixels[~mask])
    outside = ~masks["a.png"]  # with the colors of the file, not blended with white
    bands = np.concatenate([originals["a.png"][0], opacity], axis=2)
    np.testing.assert_array_equal(reader.decode_values(tmp_path / "out/a.png", 4).pixels[outside], bands[outside])
    np.testing.assert_array_equal(reader.decode_values(tmp_path / "out/a.png").opacity, opacity)
    whole = model.x2y(originals["large.png"][0])
    np.testing.assert_array_equal(
        reader.decode(tmp_path / "out/large.png")[masks["large.png"]], whole[masks["large.png"]]
    )


def test_outside_of_the_masks_half_transparent_pixels_have_their_colors(model, tmp_path):
    """Colors that were multiplied by the opacity, or come from a palette, are not blended with white."""
    premultiplied = np.broadcast_to(np.uint8([50, 127, 7, 128]), (20, 24, 4))
    tifffile.imwrite(tmp_path / "in.tif", premultiplied, photometric="rgb", extrasamples=["assocalpha"])
    mask = write_mask(tmp_path / "masks" / "in.png", 20, 24)
    assert translate(model, tmp_path / "in.tif", tmp_path / "out.png", masks=tmp_path / "masks").done == 1
    with Image.open(tmp_path / "out.png") as image:
        assert (np.asarray(image)[~mask] == [100, 253, 14, 128]).all()


def test_masks_are_resized_with_their_images(model, tmp_path):
    formats.write(tmp_path / "a.png", DecodedImage(images(20, 24, 3)))
    mask = write_mask(tmp_path / "masks" / "a.png", 20, 24).repeat(2, axis=0).repeat(2, axis=1)
    assert translate(model, tmp_path / "a.png", tmp_path / "out", size=(48, 40), masks=tmp_path / "masks").done == 1
    output, resized = reader.decode(tmp_path / "out/a.png"), geometry.resize(images(20, 24, 3), (40, 48))
    np.testing.assert_array_equal(output[~mask], resized[~mask])
    assert (output != resized)[mask].any()


def test_an_image_without_a_mask_that_fits_fails_alone(model, models, tmp_path):
    write_same_size(tmp_path / "in", 4)
    for number, size in enumerate([(16, 20), (16, 21)]):
        write_mask(tmp_path / "masks" / f"{number:02d}.png", *size)
    (tmp_path / "masks" / "02.png").write_text("no image")
    report = translate(model, tmp_path / "in", tmp_path / "out", masks=tmp_path / "masks")
    source, masks = tmp_path / "in", tmp_path / "masks"
    assert report.done == 1 and sorted(report.failed) == [
        f"{source}/01.png ({masks}/01.png (a mask of 21 x 16 pixels, expected 20 x 16 pixels))",
        f"{source}/02.png ({masks}/02.png (a text, not an image))",
        f"{source}/03.png (it has no mask in {masks})",
    ]
    with pytest.raises(UserError, match="no mask has the name of an image, for example .*in/03.png"):
        translate(model, tmp_path / "in/03.png", tmp_path / "other", masks=tmp_path / "masks")
    for name, width in (("00.jpg", 20), ("00.bmp", 21)):  # each of them has the mask 00.png
        formats.write(tmp_path / "in" / name, DecodedImage(images(16, width, 3)))
    report = translate(model, tmp_path / "in", tmp_path / "shared", masks=tmp_path / "masks")
    assert report.done == 2 and min(report.failed).startswith(f"{source}/00.bmp ({masks}/00.png (a mask of 20 x 16")
    with pytest.raises(UserError, match="--masks .*: a file; expected a folder"):
        translate(model, tmp_path / "in", tmp_path / "other", masks=tmp_path / "masks/00.png")
    with pytest.raises(UserError, match="--masks: expected a run whose domains have the same number of channels"):
        translate(models[0], tmp_path / "in", tmp_path / "other", masks=tmp_path / "masks")
