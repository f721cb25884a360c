"""Checking and decoding of many image files."""

import io
import sys
import threading
import time

import numpy as np
import pytest

from cyclegan.data import folder_source, loading, memory
from cyclegan.errors import UserError, printable
from tests.data.image_folders import load, save

NAMES = [
    "two\nlines.png",
    'it\'s a "quote".png',
    "zèbre 馬.png",
    "\x1b[31mred\x07.png",
    b"caf\xe9 \xff.png".decode(errors="surrogateescape"),
    "photo\u202egnp.png",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_file_may_have_any_name(tmp_path, name):
    save(tmp_path / "a.png").rename(tmp_path / name)
    assert folder_source.find_images(tmp_path) == [name]
    images = read(tmp_path / name)
    assert images.shape == (1, 8, 8, 3) and (images == [200, 100, 50]).all()


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("content", [b"no image", b"\x89PNG\r\n\x1a\n", None])
def test_a_broken_file_is_named_in_one_printable_line(tmp_path, name, content):
    path = tmp_path / name
    if content:
        path.write_bytes(content)  # without content, the file is missing
    text = refused(path)
    assert f"{printable(path)} (" in text and text.startswith(
        "1 of 1 images cannot be used; expected readable ones: repair or remove them: "
    )


def read(path, size=(8, 8), channels=3):
    """Return the image of a file: [1, *size, channels]."""
    sources = {"a": [str(path)]}
    facts = loading.check_files(sources, {"a": channels})["a"]
    return loading.decode_all({"a": loading.ImageFiles("a", sources["a"], facts, np.array([size]), channels)})["a"]


def refused(path):
    """Return the text of the error of a file that cannot be read."""
    with pytest.raises(UserError) as error:
        read(path)
    text = str(error.value)
    assert text.isprintable() and text.encode()
    return text


def test_at_most_ten_files_with_broken_headers_are_named(tmp_path):
    paths = [str(tmp_path / f"{i:02d}.png") for i in range(12)]
    good = str(save(tmp_path / "good.png"))
    with pytest.raises(UserError) as error:
        loading.check_files({"a": paths, "b": [good]}, {"a": 3, "b": 3})
    text = str(error.value)
    assert text.startswith("12 of 13 images cannot be used") and text.endswith(" and 2 more")
    assert all(path in text for path in paths[:10]) and paths[10] not in text and good not in text


def test_broken_images_of_several_splits_are_named(folder):
    for i in range(12):
        (folder / "trainA" / f"bad{i:02d}.png").write_bytes(b"no image")
    whole = (folder / "trainB" / "0.jpg").read_bytes()
    (folder / "trainB" / "0.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError) as error:
        load(folder)
    text = str(error.value)
    assert text.startswith(
        "13 of 35 images cannot be used; expected readable ones: repair or remove them: "
    ) and text.endswith("and 3 more")
    assert [f"bad{i:02d}.png" in text for i in range(12)] == 10 * [True] + 2 * [False]


def test_a_truncated_image_is_named(folder):
    whole = (folder / "trainB" / "0.jpg").read_bytes()
    (folder / "trainB" / "0.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"1 of 23 images cannot be used.*trainB/0\.jpg"):
        load(folder)


def test_images_that_do_not_fit_into_memory_are_refused(folder, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 10**9)
    with pytest.raises(UserError, match="need .* GB of memory, but only 1.0 GB are free.*smaller --load_size"):
        load(folder, load_size=60_000)


def test_several_images_are_read_at_the_same_time():
    meeting = threading.Barrier(2, timeout=60)  # a single thread would time out
    loading.for_each_image({"trainA": ["one"], "trainB": ["other"]}, lambda split, i: meeting.wait(), "Decoding", False)


@pytest.mark.parametrize("bars, terminal", [(True, True), (True, False), (False, True)])
def test_progress_bars_of_short_passes_are_for_terminals(monkeypatch, bars, terminal):
    screen = io.StringIO()
    screen.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", screen)
    loading.for_each_image({"trainA": range(3)}, lambda split, i: None, "Decoding", bars)
    assert ("Decoding: " in screen.getvalue()) == (bars and terminal)


def test_a_slow_pass_is_shown_in_a_log(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(loading.terminal, "LOG_SECONDS", 0.01)
    loading.for_each_image({"trainA": range(99)}, lambda split, i: time.sleep(0.01), "Decoding", True)
    assert "Decoding: " in screen.getvalue()
