import contextlib
import errno
import itertools
import os
import resource

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary

from cyclegan.reporting import event_log
from cyclegan.reporting.event_log import Events, Journal


@contextlib.contextmanager
def no_file_beyond(size):
    """Writes beyond `size` bytes fail, and one that crosses it is done in part: a full disk for real."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))  # Python ignores SIGXFSZ, so that it is an error
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def said():
    return []


@pytest.fixture
def log(tmp_path, said):
    return Journal(tmp_path / "log.jsonl", said.append)


def test_it_appends(tmp_path, said):
    log = Journal(tmp_path / "log.jsonl", said.append)
    assert log.size == 0 and not any(tmp_path.iterdir())  # nothing before the first write
    log.append(b"one\n")
    log.append(b"two\n")
    assert log.path.read_bytes() == b"one\ntwo\n" and log.size == 8 and said == []


def test_it_goes_on_with_a_file_that_is_there(log, tmp_path):
    log.append(b"one\n")
    again = Journal(str(tmp_path / "log.jsonl"))
    assert again.size == 4
    again.append(b"two\n")
    assert log.path.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("room", [4, 5, 9, 11])  # bytes: none for the second line, a part of it, of the third
def test_a_full_disk_loses_nothing_and_is_said_once(log, said, room):
    log.append(b"one\n")
    with no_file_beyond(room):
        log.append(b"second\n")
        log.append(b"third\n")
        log.append(b"4\n")
        assert len(said) == 1 and str(log.path) in said[0] and "kept in memory" in said[0]
    assert log.size == 19  # as if all were written: what a checkpoint keeps
    log.append(b"5\n")
    assert log.path.read_bytes() == b"one\nsecond\nthird\n4\n5\n" and log.size == 21
    assert len(said) == 2 and said[1] == f"{log.path} is written again; nothing is missing"
    with no_file_beyond(21):
        log.append(b"6\n")
    assert len(said) == 3  # the next time it fails is news again


def test_no_half_line_is_left_by_a_write_that_failed(log):
    log.append(b"one\n")
    with no_file_beyond(6):
        log.append(b"second\n")
    assert log.path.read_bytes() == b"one\n"  # and not "one\nse": the program may be killed now


def test_a_disk_that_fails_when_it_should_keep_the_data(log, said, monkeypatch):
    log.append(b"one\n")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(event_log.os, "fsync", full)
        log.append(b"two\n")
    assert len(said) == 1 and "No space left on device" in said[0]
    log.append(b"three\n")
    assert log.path.read_bytes() == b"one\ntwo\nthree\n"  # no line twice


def test_a_disk_that_is_full_from_the_start_and_a_folder_that_is_none(tmp_path, said):
    (tmp_path / "folder").write_text("")
    log = Journal(tmp_path / "folder" / "log.jsonl", said.append)
    log.append(b"one\n")
    assert len(said) == 1
    (tmp_path / "folder").unlink()
    (tmp_path / "folder").mkdir()
    log.append(b"two\n")
    assert log.path.read_bytes() == b"one\ntwo\n" and len(said) == 2


def test_every_line_is_on_the_disk_when_append_returns(log, monkeypatch):
    synced, fsync = [], os.fsync
    monkeypatch.setattr(
        event_log.os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file))
    )
    log.append(b"one\n")
    assert synced == [str(log.path)]


@pytest.mark.parametrize("size, left", [(0, b""), (4, b"one\n"), (8, b"one\ntwo\n"), (9, b"one\ntwo\n")])
def test_cutting_what_is_written(log, size, left):
    log.append(b"one\ntwo\n")
    log.cut(size)
    assert log.path.read_bytes() == left and log.size == len(left)
    log.append(b"new\n")
    assert log.path.read_bytes() == left + b"new\n"


def test_a_file_that_someone_cut_short(log):
    log.append(b"one\ntwo\nthree\n")
    log.path.write_bytes(b"one\ntw")
    again = Journal(log.path, said := [])
    again.say = said.append
    again.cut(14)
    assert "has 6 bytes, expected 14: lines are missing" in said[0]
    again.append(b"four\n")
    assert log.path.read_bytes() == b"one\nfour\n"


@pytest.mark.parametrize("size", [0, *range(4, 13)])
def test_cutting_what_waits_to_be_written(log, size):
    whole = b"one\ntwo\n3\n4\n"
    log.append(whole[:4])
    with no_file_beyond(4):
        log.append(whole[4:8])
        log.append(whole[8:])
        log.cut(size)
        assert log.size == size
    log.append(b"new\n")
    assert log.path.read_bytes() == whole[:size] + b"new\n" and log.size == size + 4


def test_cutting_a_log_that_is_not_there_makes_none(log):
    log.cut(0)
    log.cut(100)
    assert not log.path.exists() and log.size == 0


def value(number):
    return [Summary.Value(tag="loss", simple_value=number)]


def events_of(folder):
    """All events of a folder, in the order in which TensorBoard reads them; TensorFlow checks each record's CRC."""
    files = sorted(str(path) for path in folder.iterdir())
    return [Event.FromString(record) for record in tf.data.TFRecordDataset(files).as_numpy_iterator()]


def test_events_are_records_that_tensorflow_reads(tmp_path):
    events = Events(tmp_path)
    events.restart(4)
    events.add(5, value(0.5))
    first, start, loss = events_of(tmp_path)
    assert first.file_version == "brain.Event:2"
    assert start.session_log.status == SessionLog.START and start.step == 4
    assert loss.step == 5 and loss.summary.value[0].tag == "loss" and loss.summary.value[0].simple_value == 0.5
    assert all(event.wall_time > 1.7e9 for event in (first, start, loss))


def test_files_of_events_count_up_whatever_the_clock_says(tmp_path, monkeypatch):
    clock = itertools.count(2e9, -1e8)  # set back again and again
    monkeypatch.setattr(event_log.time, "time", lambda: next(clock))
    older = tmp_path / "events.out.tfevents.1763000000.host.1.0.v2"  # TensorFlow's own
    older.write_bytes(b"")
    names = []
    for _ in range(3):
        before = {path.name for path in tmp_path.iterdir()}
        Events(tmp_path)
        names += sorted({path.name for path in tmp_path.iterdir()} - before)
    assert names == [f"events.out.tfevents.{number}" for number in (1763000001, 1763000002, 1763000003)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [older.name, *names]


def test_the_first_files_of_a_folder_keep_their_order_too(tmp_path):
    for step in range(12):
        Events(tmp_path / "new").add(step, value(step))
    assert [event.step for event in events_of(tmp_path / "new") if event.summary.value] == list(range(12))


def test_a_file_of_events_that_has_another_name_is_no_obstacle(tmp_path):
    (tmp_path / "events.out.tfevents.mine").write_bytes(b"")
    Events(tmp_path)
    assert (tmp_path / "events.out.tfevents.0000000001").exists()


def test_tensorboard_forgets_what_came_after_the_place_that_training_went_back_to(tmp_path):
    first = Events(tmp_path)
    for step in range(1, 6):
        first.add(step, value(step))
    second = Events(tmp_path)
    second.restart(4)
    second.add(4, value(40))
    board = EventAccumulator(str(tmp_path))
    board.Reload()
    assert [(event.step, event.value) for event in board.Scalars("loss")] == [(1, 1), (2, 2), (3, 3), (4, 40)]


def test_events_survive_a_full_disk(tmp_path, said):
    events = Events(tmp_path, said.append)
    (path,) = tmp_path.iterdir()
    with no_file_beyond(path.stat().st_size + 7):
        events.add(1, value(1.0))
        events.add(2, value(2.0))
    events.add(3, value(3.0))
    assert [event.step for event in events_of(tmp_path)] == [0, 1, 2, 3] and len(said) == 2


def test_a_folder_that_was_moved_away_is_not_begun_anew(tmp_path):
    (tmp_path / "run").mkdir()
    said = []
    log = Journal(tmp_path / "run" / "metrics.jsonl", said.append)
    log.append(b"one\n")
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    log.append(b"two\n")
    assert not (tmp_path / "run").exists() and "could not be written" in said[0]
