"""Checking and decoding of many image files, before training or when they are used."""

import concurrent.futures
import io
import os
import pathlib
import sys
import threading

import numpy as np
import pytest
from PIL import Image

from cyclegan.data import folder_source, loading
from cyclegan.errors import TrainingError, UserError, printable
from cyclegan.images import reader
from tests.data.image_folders import CACHES, load, photograph, save

NAMES = ["two\nlines.png", "zèbre 馬.png", "\x1b[31mred\x07.png", os.fsdecode(b"caf\xe9 \xff.png")]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_file_may_have_any_name(tmp_path, name):
    path = tmp_path / name
    save(tmp_path / "a.png").rename(path)
    assert folder_source.find_images(tmp_path) == [name]
    images = read(path)
    assert images.shape == (1, 8, 8, 3) and (images[0] == [200, 100, 50]).all()
    for content in (b"no image", b"\x89PNG\r\n\x1a\n", None):
        path.write_bytes(content) if content else path.unlink()
        text = refused(path)
        assert text.startswith("1 of 1 images cannot be used; expected readable ones: repair or remove them: ")
        assert f"{printable(path)} (" in text


def read(path, size=(8, 8), channels=3):
    """Return the image of a file: [1, *size, channels]."""
    sources = {"a": [str(path)]}
    facts = loading.check_files(sources, {"a": channels})["a"]
    images = loading.ImageFiles("a", sources["a"], facts, np.array([size]), channels)
    loading.decode_all([images])
    return images


def refused(path):
    """Return the text of the error of a file that cannot be read."""
    with pytest.raises(UserError) as error:
        read(path)
    text = str(error.value)
    assert text.isprintable() and text.encode()
    return text


@pytest.mark.parametrize("cache", CACHES)
def test_broken_images_of_several_splits_are_named_at_the_start(folder, cache):
    for i in range(12):
        (folder / "trainA" / f"bad{i:02d}.png").write_bytes(b"no image")
    whole = (folder / "trainB" / "0.jpg").read_bytes()
    (folder / "trainB" / "0.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError) as error:
        load(folder, cache=cache)
    text = str(error.value)
    assert text.startswith(
        "13 of 35 images cannot be used; expected readable ones: repair or remove them: "
    ) and text.endswith("trainB/0.jpg (a damaged JPEG file: truncated)")
    assert text.count("not an image") == 1 and "bad04.png and 7 more (a text, not an image); " in text
    assert [f"bad{i:02d}.png" in text for i in range(12)] == 5 * [True] + 7 * [False]


def test_several_images_are_read_at_the_same_time():
    meeting = threading.Barrier(2, timeout=60)  # a single thread would time out
    loading.for_each(range(2), lambda i: meeting.wait(), "Decoding", False)


def test_images_are_read_on_the_cores_of_this_process(monkeypatch, cores=2):
    """Check that a job of two cores on a large machine does not start a thread for each core of the machine."""
    started, pool = [], concurrent.futures.ThreadPoolExecutor
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    monkeypatch.setattr(
        concurrent.futures, "ThreadPoolExecutor", lambda *count: started.append(pool(*count)) or started[-1]
    )
    loading.for_each(range(3), lambda i: None, "Decoding", False)
    assert started[0]._max_workers == 6


@pytest.mark.parametrize("bars, terminal", [(True, True), (True, False), (False, True)])
def test_progress_bars_of_short_passes_are_for_terminals(monkeypatch, bars, terminal):
    screen = io.StringIO()
    screen.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", screen)
    loading.for_each(range(3), lambda i: None, "Decoding", bars)
    assert ("Decoding: " in screen.getvalue()) == (bars and terminal)


def images_of(tmp_path, keep):
    """Return five images of the sizes 8 x 7 to 12 x 7, without decoding them."""
    paths = [str(photograph(tmp_path / f"{i}.png", i, 8 + i)) for i in range(5)]
    facts = loading.check_files({"a": paths}, {"a": 3})["a"]
    return loading.ImageFiles("a", paths, facts, loading.sizes_of(facts), keep=keep)


@pytest.mark.parametrize("keep, decoded", [(True, [3, 1, 0, 2, 4]), (False, [3, 3, 1, 3, 3, 0, 1, 2, 3, 4])])
def test_images_are_decoded_when_they_are_used(tmp_path, monkeypatch, keep, decoded):
    images, calls, decode = images_of(tmp_path, keep), [], reader.decode
    monkeypatch.setattr(
        reader, "decode", lambda path, *how: calls.append(images.sources.index(path)) or decode(path, *how)
    )
    assert len(images) == 5 and images.shape == (5, None, None, 3) and images.dtype == np.uint8 and not calls
    for i in (3, np.int64(3), 1, -2, 3, *range(5)):
        with Image.open(images.sources[i]) as expected:
            np.testing.assert_array_equal(images[i], expected)
    assert calls == decoded
    with pytest.raises(IndexError):
        images[5]


@pytest.mark.parametrize("keep", [False, True])
def test_an_image_that_cannot_be_decoded_ends_training(tmp_path, keep):
    images = images_of(tmp_path, keep)
    images[0]
    assert images.failure is None
    for i in (1, 2):
        pathlib.Path(images.sources[i]).write_bytes(b"gone")
    for i in (1, 2, 1):
        text = rf"an image cannot be decoded: .*{i}\.png \(a text, not an image\); repair it or put it back"
        with pytest.raises(TrainingError, match=f"{text}.*then the same command resumes"):
            images[i]
    assert "1.png (a text, not an image)" in images.failure
    assert images[0].shape == (8, 3, 3)
