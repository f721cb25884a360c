"""Append-only files, on disks that are full and in folders that move."""

import errno
import os
import shutil

import pytest

from cyclegan.run import append_file
from cyclegan.run.append_file import AppendFile
from tests.full_disk import no_file_beyond


@pytest.fixture
def file(tmp_path):
    return AppendFile(tmp_path / "log.jsonl")


def test_lines_are_appended(file, tmp_path, caplog):
    assert file.size == 0 and not any(tmp_path.iterdir())  # nothing before the first write
    file.append(b"one\n")
    file.append(b"two\n")
    assert file.path.read_bytes() == b"one\ntwo\n" and file.size == 8 and caplog.messages == []


def test_continues_an_existing_file(file, tmp_path):
    file.append(b"one\n")
    again = AppendFile(str(tmp_path / "log.jsonl"))
    assert again.size == 4
    again.append(b"two\n")
    assert file.path.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("room", [4, 5, 9, 11])  # bytes: none for the second line, a part of it, of the third
def test_full_disk_loses_nothing_and_warns_once(file, caplog, room):
    file.append(b"one\n")
    with no_file_beyond(room):
        file.append(b"second\n")
        file.append(b"third\n")
        file.append(b"4\n")
        (text,) = caplog.messages
        assert str(file.path) in text and "stays in memory" in text
    assert file.size == 19  # counts pending lines, for checkpoints
    file.append(b"5\n")
    assert file.path.read_bytes() == b"one\nsecond\nthird\n4\n5\n" and file.size == 21
    assert len(caplog.messages) == 2
    assert caplog.messages[1] == f"{file.path} can be written again; nothing is missing"
    with no_file_beyond(21):
        file.append(b"6\n")
    assert len(caplog.messages) == 3  # a new failure is reported again


def test_failed_write_leaves_no_partial_line(file):
    file.append(b"one\n")
    with no_file_beyond(6):
        file.append(b"second\n")
    assert file.path.read_bytes() == b"one\n"  # not "one\nse": a kill may follow


def test_failing_fsync_writes_no_line_twice(file, caplog, monkeypatch):
    file.append(b"one\n")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(append_file.os, "fsync", full)
        file.append(b"two\n")
    (text,) = caplog.messages
    assert "No space left on device" in text
    file.append(b"three\n")
    assert file.path.read_bytes() == b"one\ntwo\nthree\n"


def test_recovers_when_the_folder_appears(tmp_path, caplog):
    (tmp_path / "folder").write_text("")
    file = AppendFile(tmp_path / "folder" / "log.jsonl")
    file.append(b"one\n")
    assert len(caplog.messages) == 1
    (tmp_path / "folder").unlink()
    (tmp_path / "folder").mkdir()
    file.append(b"two\n")
    assert file.path.read_bytes() == b"one\ntwo\n" and len(caplog.messages) == 2


def test_append_waits_for_the_disk(file, monkeypatch):
    synced, fsync = [], os.fsync
    monkeypatch.setattr(
        append_file.os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))
    )
    file.append(b"one\n")
    assert synced == [str(file.path)]


@pytest.mark.parametrize("size, left", [(0, b""), (4, b"one\n"), (8, b"one\ntwo\n"), (9, b"one\ntwo\n")])
def test_truncate_written_lines(file, size, left):
    file.append(b"one\ntwo\n")
    file.truncate(size)
    assert file.path.read_bytes() == left and file.size == len(left)
    file.append(b"new\n")
    assert file.path.read_bytes() == left + b"new\n"


def test_truncate_file_that_is_too_short(file, caplog):
    file.append(b"one\ntwo\nthree\n")
    file.path.write_bytes(b"one\ntw")
    again = AppendFile(file.path)
    again.truncate(14)
    assert "has 6 bytes, expected 14: lines are missing" in caplog.text
    again.append(b"four\n")
    assert file.path.read_bytes() == b"one\nfour\n"


@pytest.mark.parametrize("size", [0, *range(4, 13)])
def test_truncate_pending_lines(file, size):
    whole = b"one\ntwo\n3\n4\n"
    file.append(whole[:4])
    with no_file_beyond(4):
        file.append(whole[4:8])
        file.append(whole[8:])
        file.truncate(size)
        assert file.size == size
    file.append(b"new\n")
    assert file.path.read_bytes() == whole[:size] + b"new\n" and file.size == size + 4


def test_truncate_creates_no_file(file):
    file.truncate(0)
    file.truncate(100)
    assert not file.path.exists() and file.size == 0


def test_folder_that_was_moved_is_not_recreated(tmp_path, caplog):
    (tmp_path / "run").mkdir()
    file = AppendFile(tmp_path / "run" / "metrics.jsonl")
    file.append(b"one\n")
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    file.append(b"two\n")
    assert not (tmp_path / "run").exists() and "could not be written" in caplog.text


@pytest.mark.parametrize("target", ["missing", "a file"])
def test_a_link_is_not_followed(tmp_path, caplog, target):
    outside = tmp_path / "outside"
    if target == "a file":
        outside.write_bytes(b"precious")
    (tmp_path / "log.jsonl").symlink_to(outside)
    file = AppendFile(tmp_path / "log.jsonl")
    for _ in range(2):
        file.append(b"one\n")
    assert "could not be written" in caplog.messages[0] and not file.flush()
    assert outside.read_bytes() == b"precious" if target == "a file" else not outside.exists()


def test_a_file_with_another_name_is_not_written_to(tmp_path, caplog):
    (tmp_path / "outside").write_bytes(b"precious")
    os.link(tmp_path / "outside", tmp_path / "log.jsonl")
    file = AppendFile(tmp_path / "log.jsonl")
    file.append(b"one\n")
    assert "the file has another name (a hard link)" in caplog.text and not file.flush()
    assert (tmp_path / "outside").read_bytes() == b"precious"


def test_a_folder_inside_the_run_is_made_again(tmp_path, caplog):
    (tmp_path / "run" / "test").mkdir(parents=True)
    file = AppendFile(tmp_path / "run" / "test" / "events", tmp_path / "run")
    file.append(b"one\n")
    shutil.rmtree(tmp_path / "run" / "test")  # as users do to clear TensorBoard
    file.append(b"two\n")
    assert file.path.read_bytes() == b"two\n" and file.flush() and caplog.messages == []
    (tmp_path / "run").rename(tmp_path / "moved")
    file.append(b"three\n")
    assert not file.flush() and not (tmp_path / "run").exists()


def test_a_pipe_is_refused(tmp_path, caplog):
    os.mkfifo(tmp_path / "log.jsonl")
    file = AppendFile(tmp_path / "log.jsonl")
    file.append(b"one\n")
    assert not file.flush() and "not a regular file" in caplog.text


def test_a_link_that_replaces_the_folder_is_not_followed(tmp_path, caplog):
    (tmp_path / "outside").mkdir()
    (tmp_path / "test").mkdir()
    file = AppendFile(tmp_path / "test" / "events", tmp_path)
    (tmp_path / "test").rmdir()
    (tmp_path / "test").symlink_to(tmp_path / "outside")
    file.append(b"one\n")
    assert "a symbolic link in the place of a folder" in caplog.text and not list((tmp_path / "outside").iterdir())
