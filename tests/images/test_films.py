"""Frames of films as images."""

import struct
import sys

import numpy as np
import pytest

from cyclegan.errors import MissingPackageError
from cyclegan.images import reader
from cyclegan.images.reader import Slice
from tests.images.film_samples import COLORS, number_of, quarters, write_film

pytest.importorskip("av")
ANY_ORDER = (7, 8, 2, 0, 9, 5, 5, 3, 1, 4, 6)


def colors_of(pixels):
    return np.stack([pixels[y, x] for y in (4, 12) for x in (4, 12)]).astype(int)


@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.mkv", "a.avi", "a.webm"])
def test_each_frame_is_an_image_in_any_order(tmp_path, name):
    write_film(tmp_path / name)
    path = str(tmp_path / name)
    assert reader.count(path) == 10  # although the sound may be longer
    found = [number_of(reader.decode(Slice(path, number))) for number in ANY_ORDER]
    assert found == list(ANY_ORDER)
    facts = reader.check(Slice(path, 3))
    assert (facts.height, facts.width, facts.deep) == (32, 32, False)
    assert reader.decode(path, channels=1).shape == (32, 32, 1)


def test_recordings_without_a_duration_and_truncated_ones(tmp_path):
    write_film(tmp_path / "a.mkv", sound=False)
    content = (tmp_path / "a.mkv").read_bytes()
    assert content.count(b"\x44\x89\x88") == 1  # Duration, with 8 bytes
    (tmp_path / "b.mkv").write_bytes(content.replace(b"\x44\x89\x88", b"\x44\x8a\x88"))
    path = str(tmp_path / "b.mkv")
    assert reader.count(path) == 10
    assert [number_of(reader.decode(Slice(path, number))) for number in ANY_ORDER] == list(ANY_ORDER)
    write_film(tmp_path / "c.mkv")
    content = (tmp_path / "c.mkv").read_bytes()
    (tmp_path / "c.mkv").write_bytes(content[: len(content) * 3 // 4])
    path = str(tmp_path / "c.mkv")
    count = reader.count(path)
    assert 3 < count < 10 and number_of(reader.decode(Slice(path, count - 1))) == count - 1


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("matrix", [1, 5])
def test_colors_by_the_matrix_and_the_range_of_the_film(tmp_path, matrix, full):
    write_film(tmp_path / "a.mp4", 1, matrix=matrix, full=full)
    np.testing.assert_allclose(colors_of(reader.decode(tmp_path / "a.mp4")), COLORS, atol=4)


def test_high_films_without_a_matrix_have_the_one_of_hd(tmp_path):
    for height, matrix in ((576, 5), (592, 1)):
        write_film(tmp_path / "a.mkv", 1, lambda number, height=height: quarters(number, height), matrix=matrix)
        content = (tmp_path / "a.mkv").read_bytes()
        named = b"\x55\xb1\x81%c" % matrix  # MatrixCoefficients
        assert named in content
        (tmp_path / "b.mkv").write_bytes(content.replace(named, b"\x55\xb1\x81\x02"))
        np.testing.assert_allclose(colors_of(reader.decode(tmp_path / "b.mkv")), COLORS, atol=4)


def turn(path):
    """Let the first track of an MP4 file be shown turned clockwise by a quarter, as phones do."""
    content = bytearray(path.read_bytes())
    start = content.index(b"tkhd") + 44
    content[start : start + 36] = struct.pack(">9i", 0, 1 << 16, 0, -1 << 16, 0, 0, 32 << 16, 0, 1 << 30)
    path.write_bytes(content)


def test_frames_are_upright(tmp_path):
    write_film(tmp_path / "a.mp4", draw=lambda number: quarters(number, width=48))
    upright = reader.decode(tmp_path / "a.mp4")
    turn(tmp_path / "a.mp4")
    np.testing.assert_array_equal(reader.decode(tmp_path / "a.mp4"), np.rot90(upright, -1))
    assert reader.check(tmp_path / "a.mp4")[1:3] == (48, 32)


def test_files_that_are_no_films_and_damaged_ones(tmp_path, monkeypatch, capfd):
    write_film(tmp_path / "a.mp4")
    content = (tmp_path / "a.mp4").read_bytes()
    with pytest.raises(ValueError, match="^a damaged film: its header cannot be decoded$"):
        reader.check(content[: len(content) // 2])
    with pytest.raises(ValueError, match="^a text, not an image$"):
        reader.check(b"#EXTM3U\n#EXTINF:1,\nfile:///etc/hostname\n")  # a playlist
    assert capfd.readouterr() == ("", "")
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingPackageError, match="^a film, which needs the package av: pip install av$"):
        reader.check(content)
