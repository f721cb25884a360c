"""metrics.jsonl, on full disks and after kills."""

import errno
import os

import pytest

from cyclegan.run import metrics_log
from cyclegan.run.metrics_log import MetricsLog
from tests.full_disk import no_file_beyond

LINE = len(b'{"a": 1}\n')


@pytest.fixture
def log(tmp_path):
    """Return a log with two lines."""
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for a in (1, 2):
        log.append(a=a)
        assert log.write() == [{"a": a}]
    return log


def text(log):
    return log.path.read_text()


@pytest.mark.parametrize("room", [0, LINE, LINE + 1])  # bytes
def test_a_full_disk_loses_nothing(log, room):
    with no_file_beyond(2 * LINE + room):
        for a in (3, 4):
            log.append(a=a)
        with pytest.raises(OSError, match="File too large"):
            log.write()
        assert log.size == 4 * LINE  # checkpoints count the pending lines
    log.append(a=5)
    assert log.write() == [{"a": 3}, {"a": 4}, {"a": 5}]
    assert text(log) == "".join(f'{{"a": {a}}}\n' for a in (1, 2, 3, 4, 5))


def test_a_write_that_may_not_be_on_the_disk_is_repeated(log, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    log.append(a=3)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            log.write()
    log.write()
    assert text(log) == '{"a": 1}\n{"a": 2}\n{"a": 3}\n'


@pytest.mark.parametrize("size, left", [(0, 0), (LINE, 1), (LINE + 3, 1), (2 * LINE, 2)])
def test_a_resumed_run_keeps_whole_lines_only(log, size, left):
    with open(log.path, "ab") as file:
        file.write(b'{"a": 3')  # of a killed writer
    again = MetricsLog(log.path)
    again.cut(size)
    again.append(a=9)
    again.write()
    assert text(again) == '{"a": 1}\n{"a": 2}\n'[: left * LINE] + '{"a": 9}\n'


@pytest.mark.parametrize("left", range(5))
def test_lines_that_wait_are_cut_too(log, left):
    with no_file_beyond(2 * LINE):
        for a in (3, 4):
            log.append(a=a)
        with pytest.raises(OSError):
            log.write()
    log.cut(left * LINE)
    assert log.size == left * LINE
    log.write()
    assert text(log) == "".join(f'{{"a": {a}}}\n' for a in range(1, left + 1))


def test_a_file_that_is_too_short_is_reported(log, caplog):
    log.path.write_text('{"a": 1}\n{"a"')
    again = MetricsLog(log.path)
    again.cut(2 * LINE)
    again.write()
    assert f"has 13 bytes, expected {2 * LINE}: lines are missing" in caplog.text and text(again) == '{"a": 1}\n'


@pytest.mark.parametrize("split, epoch", [("steps", 0.25), ("steps", 42), ("train", 43)])  # "train": earlier versions
def test_changes_are_counted_in_epochs_done(split, epoch):
    line = {"split": split, "epoch": epoch, "event": metrics_log.CHANGED, "changes": ["lr 1 -> 2", "r1 0 -> 1"]}
    (change,) = metrics_log.changes([{"split": "test", "epoch": 1, "error/MAE": 2.0}, line])
    assert metrics_log.describe_change(*change) == f"lr 1 -> 2, r1 0 -> 1 after epoch {min(epoch, 42)}"


def test_damaged_lines_are_left_out(tmp_path, caplog):
    path, good = tmp_path / "metrics.jsonl", b'{"split": "test", "epoch": 1, "step": 2}'
    path.write_bytes(b"\n".join([good, b"\xff", b"[]", b"5", b'{"split": "t', good, b'{"spl']))
    assert len(metrics_log.read(path)) == 2 and metrics_log.read(tmp_path / "none") == []
    assert [f"line {number} is damaged" in text for number, text in zip((2, 3, 4, 5), caplog.messages)] == [True] * 4
