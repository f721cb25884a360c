"""TensorBoard's event files, read back by TensorFlow and TensorBoard."""

import itertools

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog

from cyclegan.run import event_log
from cyclegan.run.event_log import EventLog
from tests.full_disk import no_file_beyond


def events_of(folder):
    """Return all events of a folder in TensorBoard's order; TensorFlow checks each record's CRC."""
    files = sorted(str(path) for path in folder.iterdir())
    return [Event.FromString(record) for record in tf.data.TFRecordDataset(files).as_numpy_iterator()]


def test_tensorflow_reads_the_events(tmp_path):
    events = EventLog(tmp_path)
    events.restart(4)
    events.add_scalars(5, {"loss": 0.5})
    first, start, loss = events_of(tmp_path)
    assert first.file_version == "brain.Event:2"
    assert start.session_log.status == SessionLog.START and start.step == 4
    (value,) = loss.summary.value
    assert loss.step == 5 and value.tag == "loss" and value.tensor.float_val == [0.5]
    assert all(event.wall_time > 1.7e9 for event in (first, start, loss))


def test_file_numbers_ignore_the_clock(tmp_path, monkeypatch):
    clock = itertools.count(2e9, -1e8)  # the clock is set back again and again
    monkeypatch.setattr(event_log.time, "time", lambda: next(clock))
    older = tmp_path / "events.out.tfevents.1763000000.host.1.0.v2"  # a file that TensorFlow wrote
    older.write_bytes(b"")
    names = []
    for _ in range(3):
        before = {path.name for path in tmp_path.iterdir()}
        EventLog(tmp_path)
        names += sorted({path.name for path in tmp_path.iterdir()} - before)
    assert names == [f"events.out.tfevents.{number}" for number in (1763000001, 1763000002, 1763000003)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [older.name, *names]


def test_files_keep_their_order_beyond_nine(tmp_path):
    for step in range(12):
        EventLog(tmp_path / "new").add_scalars(step, {"loss": step})
    assert [event.step for event in events_of(tmp_path / "new") if event.summary.value] == list(range(12))


def test_event_file_with_another_name(tmp_path):
    (tmp_path / "events.out.tfevents.mine").write_bytes(b"")
    EventLog(tmp_path)
    assert (tmp_path / "events.out.tfevents.0000000001").exists()


def test_tensorboard_discards_events_after_a_restart(tmp_path):
    first = EventLog(tmp_path)
    first.restart(1)  # each process writes a start; for TensorBoard, the second start is a restart
    for step in range(1, 6):
        first.add_scalars(step, {"loss": step})
    second = EventLog(tmp_path)
    second.restart(4)
    second.add_scalars(4, {"loss": 40})
    board = EventAccumulator(str(tmp_path))
    board.Reload()
    found = [(event.step, event.tensor_proto.float_val[0]) for event in board.Tensors("loss")]
    assert found == [(1, 1), (2, 2), (3, 3), (4, 40)]


def test_full_disk_loses_no_events(tmp_path, caplog):
    events = EventLog(tmp_path)
    (path,) = tmp_path.iterdir()
    with no_file_beyond(path.stat().st_size + 7):
        events.add_scalars(1, {"loss": 1.0})
        events.add_scalars(2, {"loss": 2.0})
    events.add_scalars(3, {"loss": 3.0})
    assert [event.step for event in events_of(tmp_path)] == [0, 1, 2, 3] and len(caplog.messages) == 2


def test_scalar_that_is_not_finite_is_refused(tmp_path):
    with pytest.raises(ValueError, match="loss is nan; expected a finite number"):
        EventLog(tmp_path).add_scalars(1, {"loss": float("nan")})
