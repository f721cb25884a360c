from cyclegan.images import reader, writer
from cyclegan.images.image import DecodedImage
from cyclegan.inference import file_batches, translate_files
from cyclegan.inference.file_batches import make_batches
from cyclegan.inference.translate_files import translate
from tests.inference.arrays import images


def test_batches_have_one_shape_and_few_pixels():
    looked = [((10, 10, False), 100, name) for name in "abcde"] + [
        ("broken", 0, "f"),
        ((10, 10, True), 120, "g"),
        ((10, 10, True), 900, "h"),
        ((40, 50, True), 100, "i"),
    ]
    assert list(make_batches(looked, 8, 250)) == [
        ((10, 10, False), 200, ["a", "b"]), ((10, 10, False), 200, ["c", "d"]), ((10, 10, False), 100, ["e"]),
        ("broken", 0, ["f"]), ((10, 10, True), 900, ["g", "h"]), ((40, 50, True), 2000, ["i"]),
    ]  # fmt: skip


def test_translation_begins_before_the_last_inspection(model, tmp_path, monkeypatch):
    for number in range(20):
        writer.write(tmp_path / "in" / f"{number:02d}.png", DecodedImage(images(16, 20, 3)))
    events, check, write = [], reader.check, writer.write
    monkeypatch.setattr(reader, "check", lambda *given: events.append("look") or check(*given))
    monkeypatch.setattr(writer, "write", lambda *given: events.append("write") or write(*given))
    monkeypatch.setattr(file_batches, "MAX_INSPECTED", 2)
    monkeypatch.setattr(translate_files, "available_cores", lambda: 1)
    assert translate([model], tmp_path / "in", tmp_path / "out", batch_size=2).done == 20
    assert events.count("look") == events.count("write") == 20
    assert events.index("write") < len(events) - 1 - events[::-1].index("look")
