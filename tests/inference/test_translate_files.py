import numpy as np
from PIL import Image

import cyclegan
from cyclegan.images import reader, writer
from cyclegan.images.image import DecodedImage
from cyclegan.inference.model import Model
from cyclegan.inference.translate_files import translate
from tests.inference.arrays import files, images


def test_every_image_of_a_folder_is_translated(model, originals, tmp_path):
    report = translate([model], tmp_path / "in", tmp_path / "out")
    assert (report.done, report.failed, report.tiled, report.page) == (len(originals), [], 0, None)
    assert files(tmp_path / "out") == sorted(originals)
    for name, (height, width) in originals.items():
        with Image.open(tmp_path / "in" / name) as before, Image.open(tmp_path / "out" / name) as after:
            assert before.format == after.format and after.size == (width, height)
    lossless = [name for name in originals if name.endswith(("png", "tif", "bmp"))]
    for name in lossless:
        expected = model.x2y(reader.decode(tmp_path / "in" / name))
        np.testing.assert_array_equal(reader.decode(tmp_path / "out" / name), expected)


def test_depth_and_opacity_are_kept_and_orientation_applied(model, tmp_path):
    deep, opacity = images(20, 24, 3, dtype=np.uint16), images(20, 24, 1, seed=1)
    for name in ("deep.png", "deep.tif"):
        writer.write(tmp_path / "in" / name, DecodedImage(deep))
    writer.write(tmp_path / "in" / "clear.png", DecodedImage(images(20, 24, 3), opacity))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(images(20, 24, 3)).save(tmp_path / "in" / "turned.png", exif=exif)
    assert translate([model], tmp_path / "in", tmp_path / "out", "y2x").done == 4
    expected, _ = model.y2x(np.stack([deep, deep]))  # a batch, as the files: one image may be rounded otherwise
    for name in ("deep.png", "deep.tif"):
        np.testing.assert_array_equal(reader.decode_whole(tmp_path / "out" / name).pixels, expected)
    found = reader.decode_whole(tmp_path / "out" / "clear.png")
    np.testing.assert_array_equal(found.opacity, opacity)
    with Image.open(tmp_path / "out" / "turned.png") as image:
        assert image.size == (20, 24) and 0x0112 not in image.getexif()
    np.testing.assert_array_equal(
        reader.decode(tmp_path / "out" / "turned.png"), model.y2x(np.rot90(images(20, 24, 3), -1))
    )


def test_color_profiles_are_kept_where_they_fit(model, tmp_path):
    profiles = {space: (bytes(16) + space + bytes(200)) for space in (b"RGB ", b"GRAY", b"CMYK")}
    for name, space, dtype in (
        ("a.png", b"RGB ", np.uint8),
        ("b.png", b"RGB ", np.uint16),
        ("c.tif", b"GRAY", np.uint8),
    ):
        image = DecodedImage(images(16, 20, 3, dtype=dtype), None, profiles[space])
        writer.write(tmp_path / "in" / name, image)
        assert reader.decode_whole(tmp_path / "in" / name).profile == profiles[space]
    Image.new("CMYK", (16, 16)).save(tmp_path / "in" / "d.jpg", icc_profile=profiles[b"CMYK"])
    translate([model], tmp_path / "in", tmp_path / "out")
    kept = {name: reader.decode_whole(tmp_path / "out" / name).profile for name in files(tmp_path / "out")}
    assert kept == {"a.png": profiles[b"RGB "], "b.png": profiles[b"RGB "], "c.tif": b"", "d.jpg": b""}
    assert reader.decode_whole(tmp_path / "out" / "b.png").pixels.dtype == np.uint16


def test_files_with_several_frames_are_counted(model, tmp_path):
    frames = [Image.fromarray(images(16, 20, 3, seed=seed)) for seed in range(3)]
    (tmp_path / "in").mkdir()
    for name, count in (("a.gif", 3), ("b.gif", 1), ("c.webp", 2)):
        frames[0].save(tmp_path / "in" / name, save_all=True, append_images=frames[1:count])
    report = translate([model], tmp_path / "in", tmp_path / "out")
    assert (report.done, report.cut) == (3, 2)


def test_tiled_images_are_counted(run_folder, tmp_path):
    model = Model(run_folder, tile=512)
    writer.write(tmp_path / "in" / "a.png", DecodedImage(images(520, 600, 3)))
    writer.write(tmp_path / "in" / "b.png", DecodedImage(images(20, 20, 3)))
    report = translate([model], tmp_path / "in", tmp_path / "out")
    assert (report.done, report.tiled) == (2, 1)
    np.testing.assert_array_equal(reader.decode(tmp_path / "out" / "a.png"), model.x2y(images(520, 600, 3)))


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
    assert cyclegan.translate(model, tmp_path / "in", tmp_path / "out", format="png", batch_size=2).done == len(
        originals
    )
