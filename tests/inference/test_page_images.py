import os

import numpy as np
import pytest
from PIL import Image

from cyclegan.errors import UserError
from cyclegan.images import reader, writer
from cyclegan.images.image import DecodedImage
from cyclegan.inference import page_images, translate_files
from cyclegan.inference.translate_files import translate
from tests.inference.arrays import images


def test_page_images_that_cannot_be_written(model, originals, tmp_path, monkeypatch):
    thumbnail = page_images.make_thumbnail

    def sometimes(pixels):
        if pixels.shape[:2] == (17, 23):
            raise OSError(28, "No space left on device")
        return thumbnail(pixels)

    monkeypatch.setattr(page_images, "make_thumbnail", sometimes)
    report = translate([model], tmp_path / "in", tmp_path / "out", html=True)
    assert (report.done, report.failed) == (len(originals), []) and (tmp_path / "out" / "a.png").exists()
    assert report.unshown == [f"{tmp_path}/in/a.png ([Errno 28] No space left on device)"]
    text = report.page.read_text()
    assert "000002_output.png" in text and "000001_output.png" not in text

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(translate_files.html_report, "write", full)
    report = translate([model], tmp_path / "in" / "b.jpg", tmp_path / "other", html=True)
    assert (report.done, report.failed, report.page) == (1, [], None) and "index.html" in report.unshown[0]


def test_page(model, originals, tmp_path):
    writer.write(tmp_path / "in" / "large.tif", DecodedImage(images(600, 90, 3, dtype=np.uint16)))
    report = translate([model], tmp_path / "in", tmp_path / "out", html=True)
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
    with pytest.raises(UserError, match="files to write exist"):
        translate([model], tmp_path / "in" / "a.png", tmp_path / "out", html=True)
    (tmp_path / "other" / "index_files").mkdir(parents=True)
    with pytest.raises(UserError, match="index_files: expected none"):
        translate([model], tmp_path / "in" / "a.png", tmp_path / "other", html=True)
    back = translate([model], tmp_path / "out", tmp_path / "back", "y2x", html=True)
    assert back.done == 10 and back.failed == []  # copies for the page are no inputs
