"""Where pictures lie in TFRecord files."""

import gc
import io
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from cyclegan.data import records
from cyclegan.images import reader

NOISE = np.random.default_rng(0).integers(0, 256, (3, 150, 180, 3), np.uint8)


def png(picture):
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def example(**features):
    """The serialized `tf.train.Example` of features of bytes or integers."""

    def feature(value):
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    made = {name: feature(value) for name, value in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def write(path, *data):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for each in data:
            writer.write(each)
    return path


@pytest.fixture
def path(tmp_path):
    """A file of three pictures, each with a label and a name."""
    pictures = [example(image=png(noise), label=i, other=b"x" * i) for i, noise in enumerate(NOISE)]
    return write(tmp_path / "part.tfrecord", *pictures)


def test_pictures_are_found_and_read_one_by_one(path):
    found = list(records.find(str(path), "image"))
    assert [each.length for each in found] == [len(png(noise)) for noise in NOISE]
    for i in (2, 0, 1):
        with found[i].open() as file:
            assert file.read() == png(NOISE[i])
        assert (reader.decode(found[i]) == NOISE[i]).all()
        assert reader.check(found[i]) == reader.check(png(NOISE[i]))


def test_it_can_be_read_as_any_file(path):
    whole = png(NOISE[1])
    with list(records.find(str(path), "image"))[1].open() as file:
        assert file.seek(0, os.SEEK_END) == len(whole) and file.read(1) == b""
        assert file.seek(-5, os.SEEK_END) == len(whole) - 5 and file.read() == whole[-5:]
        file.seek(10)
        assert file.read(3) == whole[10:13] and file.tell() == 13
        with pytest.raises(ValueError):
            file.seek(-1)


def bytes_read():
    """How many this process has read so far, of files and all else."""
    return int(pathlib.Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])


def test_finding_and_looking_at_a_picture_reads_a_part_of_it(path):
    before = bytes_read()
    first, *_ = found = list(records.find(str(path), "image"))
    finding = bytes_read() - before
    reader.check(first)
    looking = bytes_read() - before - finding
    reader.decode(first)
    decoded = bytes_read() - before - finding - looking
    assert first.length > 80_000 and finding < 2_000 * len(found)
    # The second time for the checksums of a PNG.
    assert looking < 20_000 and first.length <= decoded < 2.2 * first.length


def test_a_file_that_has_gone_is_one_error(path, recwarn):
    first, *_ = records.find(str(path), "image")
    path.unlink()
    with pytest.raises(FileNotFoundError):
        reader.decode(first)
    gc.collect()
    assert not recwarn.list


@pytest.mark.parametrize("size", [1, 11, 12, 100, -100, -1])
def test_a_file_that_is_cut_off_is_refused(path, size):
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"part.tfrecord ends inside of its record [02]"):
        list(records.find(str(path), "image"))


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="ends inside of its record 0"):
        path = tmp_path / "text"
        path.write_text("no records at all, but some text that is longer than a head")
        list(records.find(str(path), "image"))
    with pytest.raises(ValueError, match="no tf.train.Example at byte [0-9]+ of "):
        list(records.find(str(write(tmp_path / "bytes", b"\xff" * 50)), "image"))
    with pytest.raises(ValueError, match="record 1 of labels has no image"):
        list(records.find(str(write(tmp_path / "labels", example(image=b"x"), example(label=1))), "image"))
    with pytest.raises(ValueError, match="record 0 of numbers has no image"):
        list(records.find(str(write(tmp_path / "numbers", example(image=1))), "image"))
    with pytest.raises(OSError):
        list(records.find(str(tmp_path / "missing"), "image"))
    assert list(records.find(str(write(tmp_path / "empty")), "image")) == []
