import io
import os
import sys
import threading

import numpy as np
import pytest
from PIL import Image

from cyclegan.data import loading
from cyclegan.errors import UserError, printable


def save(path, colour=(200, 100, 50), size=(20, 10), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, **options)
    return path


def test_sub_folders_count_and_hidden_and_other_files_do_not(tmp_path):
    for name in ("b/c.png", "b/d/e.JPG", "a.png", ".hidden.png", ".git/f.png", "__MACOSX/g.png", "b/._c.png"):
        save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "Thumbs.db").write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")  # would never end
    assert loading.find(tmp_path) == ["a.png", "b/c.png", "b/d/e.JPG"]


def test_linked_folders_are_followed_once(tmp_path):
    save(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "data").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "data" / "link")
    os.symlink(tmp_path / "data", tmp_path / "elsewhere" / "loop")
    assert loading.find(tmp_path / "data") == ["link/a.png"]


def test_folders_that_are_linked_to_twice_or_in_a_loop_count_once(tmp_path):
    data = tmp_path / "data"
    save(data / "a.png")
    save(data / "sub" / "b.png")
    os.symlink(data, data / "sub" / "up")
    os.symlink(data / "sub", data / "sub" / "self")
    os.symlink("loop.png", data / "loop.png")  # to itself
    os.symlink("loop", data / "loop")
    os.symlink(tmp_path / "nowhere.png", data / "dangling.png")
    os.symlink(tmp_path / "nowhere", data / "dangling")
    assert loading.find(data) == ["a.png", "sub/b.png"]
    os.symlink(data / "sub", data / "beside")  # whichever of the two is taken
    found = [os.path.realpath(data / name) for name in loading.find(data)]
    assert sorted(found) == sorted(os.path.realpath(data / name) for name in ("a.png", "sub/b.png"))


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
    assert loading.find(tmp_path) == [name]
    images = read(tmp_path / name)
    assert images.shape == (1, 8, 8, 3) and (images == [200, 100, 50]).all()


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("content", [b"no picture", b"\x89PNG\r\n\x1a\n", None])
def test_a_broken_file_is_named_in_one_printable_line_whatever_its_name(tmp_path, name, content):
    path = tmp_path / name
    if content:
        path.write_bytes(content)  # without any, it has disappeared since it was found
    text = refused(path)
    assert f"{printable(path)} (" in text and text.startswith(
        "1 of 1 pictures can't be used; repair or remove them, or ask for what they are: "
    )


def read(path, size=(8, 8), channels=3):
    """The picture of a file as it would be read: [1, *size, channels].

    Raises:
        UserError: it does not decode.
    """
    sources = {"a": [str(path)]}
    looked = loading.look(sources, {"a": channels})["a"]
    return loading.read({"a": loading.ImageFiles("a", sources["a"], looked, np.array([size]), channels)})["a"]


def refused(path):
    """The text of the UserError that reading a file raises."""
    with pytest.raises(UserError) as error:
        read(path)
    text = str(error.value)
    assert text.isprintable() and text.encode()
    return text


def test_at_most_ten_broken_files_are_named(tmp_path):
    paths = [str(tmp_path / f"{i:02d}.png") for i in range(12)]
    good = str(save(tmp_path / "good.png"))
    with pytest.raises(UserError) as error:
        loading.look({"a": paths, "b": [good]}, {"a": 3, "b": 3})
    text = str(error.value)
    assert text.startswith("12 of 13 pictures can't be used") and text.endswith(" and 2 more")
    assert all(path in text for path in paths[:10]) and paths[10] not in text and good not in text


def test_a_folder_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(UserError, match="nowhere: No such file or directory; expected a folder that can be read"):
        loading.find(tmp_path / "nowhere")


def test_several_pictures_are_read_at_the_same_time():
    meeting = threading.Barrier(2, timeout=60)  # whoever is alone in it fails
    loading._for_each({"trainA": ["one"], "trainB": ["other"]}, lambda split, i: meeting.wait(), "Decoding", False)


@pytest.mark.parametrize("bars, terminal", [(True, True), (True, False), (False, True)])
def test_reading_shows_a_bar_on_a_terminal(monkeypatch, bars, terminal):
    screen = io.StringIO()
    screen.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", screen)
    loading._for_each({"trainA": range(3)}, lambda split, i: None, "Decoding", bars)
    assert ("Decoding: " in screen.getvalue()) == (bars and terminal)
