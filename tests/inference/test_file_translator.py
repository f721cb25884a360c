import time

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.images import reader, writer
from cyclegan.images.image import DecodedImage
from cyclegan.inference import translate_files
from cyclegan.inference.translate_files import translate
from cyclegan.inference.translator import Translator
from tests.inference.arrays import files, images


class Recording:
    """Record the sizes of translated batches, and fail for batches that `fails` selects."""

    def __init__(self, translator, shapes, fails=lambda images: False):
        self.translator, self.shapes, self.fails = translator, shapes, fails
        self.channels_in, self.channels_out = translator.channels_in, translator.channels_out

    def __call__(self, images):
        self.shapes.append(len(images))
        if self.fails(images):
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        return self.translator(images)


def test_batches_of_one_size(model, tmp_path, monkeypatch):
    for number in range(7):
        writer.write(tmp_path / "in" / f"{number}.png", DecodedImage(images(16, 20, 3, seed=number)))
    shapes = []
    translator = model.translator("x2y")
    monkeypatch.setitem(model._translators, "x2y", Recording(translator, shapes))
    translate([model], tmp_path / "in", tmp_path / "out", batch_size=3)
    assert sorted(shapes) == [1, 3, 3]
    for number in range(7):
        expected = translator(images(1, 16, 20, 3, seed=number))[0]
        np.testing.assert_array_equal(reader.decode(tmp_path / "out" / f"{number}.png"), expected)


def test_a_failed_batch_is_translated_one_by_one(model, tmp_path, monkeypatch):
    for number in range(4):
        writer.write(tmp_path / "in" / f"{number}.png", DecodedImage(images(16, 20, 3, seed=number)))
    shapes, third = [], images(16, 20, 3, seed=2)
    recording = Recording(model.translator("x2y"), shapes, lambda batch: any((one == third).all() for one in batch))
    monkeypatch.setitem(model._translators, "x2y", recording)
    report = translate([model], tmp_path / "in", tmp_path / "out")
    assert report.failed == [
        f"{tmp_path}/in/2.png (the device does not have enough memory for it; try a smaller --tile or --size)"
    ]
    assert shapes == [4, 1, 1, 1, 1] and files(tmp_path / "out") == ["0.png", "1.png", "3.png"]


def test_an_output_that_is_not_finite(model, originals, tmp_path, monkeypatch):
    broken = Translator(model._restored.G, 4)
    monkeypatch.setattr(
        broken, "_translate_to_float", lambda images: np.full((*images.shape[:3], 3), np.nan, np.float32)
    )
    monkeypatch.setitem(model._translators, "x2y", broken)
    report = translate([model], tmp_path / "in", tmp_path / "out")
    assert report.done == 0 and len(report.failed) == len(originals) and not (tmp_path / "out").exists()
    assert "the network's output is not finite (NaN)" in report.failed[0]


def test_a_broken_file(model, originals, tmp_path):
    whole = (tmp_path / "in" / "b.jpg").read_bytes()
    (tmp_path / "in" / "half.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "in" / "text\n.png").write_text("no image")
    report = translate([model], tmp_path / "in", tmp_path / "out")
    assert report.done == len(originals) and files(tmp_path / "out") == sorted(originals)
    assert [text.split("in/")[1].split(" (")[0] for text in report.failed] == ["half.jpg", r"text\n.png"]
    assert "not an image" in report.failed[1]


def test_a_file_that_breaks_after_inspection(model, originals, tmp_path, monkeypatch):
    decode = reader.decode_values

    def sometimes(source, channels, any_type):
        if source.endswith("g.JPEG"):
            raise OSError("gone")
        return decode(source, channels, any_type)

    monkeypatch.setattr(reader, "decode_values", sometimes)
    report = translate([model], tmp_path / "in", tmp_path / "out")
    assert report.done == len(originals) - 1 and report.failed == [f"{tmp_path}/in/g.JPEG (gone)"]


def test_a_file_that_cannot_be_written(model, originals, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sub").write_text("a file where a folder should be")
    report = translate([model], tmp_path / "in", tmp_path / "out")
    assert report.done == len(originals) - 2
    assert all("in/sub/" in text for text in report.failed)


def test_ctrl_c(model, tmp_path, monkeypatch):
    for number in range(40):
        writer.write(tmp_path / "in" / f"{number:02d}.png", DecodedImage(images(16, 16 + 4 * (number % 2), 3)))
    monkeypatch.setattr(translate_files, "available_cores", lambda: 1)

    class Bar(translate_files.tqdm.tqdm):
        def update(self, n=1):
            raise KeyboardInterrupt

    monkeypatch.setattr(translate_files.tqdm, "tqdm", Bar)
    slow = Recording(model.translator("x2y"), [], lambda batch: time.sleep(0.05))
    monkeypatch.setitem(model._translators, "x2y", slow)
    with pytest.raises(KeyboardInterrupt):
        translate([model], tmp_path / "in", tmp_path / "out")
    assert 0 < len(files(tmp_path / "out")) < 20
