"""Files that are only appended to, and that a full disk does not damage; TensorBoard's events in one of them."""

import contextlib
import io
import os
import pathlib
import re
import time

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

NUMBER = re.compile(r"events\.out\.tfevents\.(\d+)")


class Journal:
    """A file that is only appended to. What can't be written now (a full disk) is kept, and written with what comes next.

    The file is opened for each write, and at no time holds half of one for longer than it takes to notice.

    Args:
        path: the file; made by the first write. Its folder is not: a run that was moved away is not begun anew.
        say: called with a text when writing fails for the first time, and when it works again.
    """

    def __init__(self, path, say=print):
        self.path = pathlib.Path(path)
        self.say = say
        self._written = self.path.stat().st_size if self.path.exists() else 0
        self._waiting = b""
        self._failing = False

    @property
    def size(self):
        """In bytes, with what is waiting to be written."""
        return self._written + len(self._waiting)

    def append(self, data):
        """Adds bytes to the end."""
        self._waiting += data
        try:
            with open(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "wb", buffering=0) as file:
                self._written = min(self._written, os.fstat(file.fileno()).st_size)  # someone may have removed it
                file.truncate(self._written)  # half of a write that failed
                file.seek(self._written)
                written = file.write(self._waiting)
                if written < len(self._waiting):
                    file.write(self._waiting[written:])  # says why
                os.fsync(file.fileno())
        except OSError as error:
            if not self._failing:
                self.say(
                    f"{self.path} could not be written ({error}); it is kept in memory and tried again. Free some space"
                )
            self._failing = True
            with contextlib.suppress(OSError):
                os.truncate(self.path, self._written)  # no half of it, should the program end now
            return
        self._written += len(self._waiting)
        self._waiting = b""
        if self._failing:
            self.say(f"{self.path} is written again; nothing is missing")
        self._failing = False

    def flush(self):
        """Tries again to write what is waiting. Returns whether nothing is waiting any more."""
        if self._waiting:
            self.append(b"")
        return not self._waiting

    def cut(self, size):
        """Drops all that comes after the first `size` bytes of lines, and a half line at the end, if someone has been there."""
        if size > self.size:
            self.say(f"{self.path} has {self.size} bytes, expected {size}: lines are missing, and stay so")
        self._waiting = self._waiting[: max(0, size - self._written)]
        self._written = min(size, self._written)
        if not self._waiting and self._written:
            with contextlib.suppress(OSError):
                self._written = self.path.read_bytes()[: self._written].rfind(b"\n") + 1
        if self.path.exists() or self._waiting:
            self.append(b"")


class Events:
    """One start's events for TensorBoard, in a file of their own that comes after those of earlier starts.

    TensorBoard reads a folder's files in the order of their names. TensorFlow's own writer puts the time first, so that after
    the clock was set back a new file would come before an old one; here it is a number that counts up.

    Args:
        folder: where TensorBoard looks; made if need be.
        say: see `Journal`.
    """

    def __init__(self, folder, say=print):
        pathlib.Path(folder).mkdir(exist_ok=True)
        numbers = [NUMBER.match(path.name) for path in pathlib.Path(folder).glob("events.out.tfevents.*")]
        number = 1 + max((int(found.group(1)) for found in numbers if found), default=0)
        self._journal = Journal(pathlib.Path(folder) / f"events.out.tfevents.{number:010d}", say)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def restart(self, step):
        """Tells TensorBoard that training begins (again) at a step: it forgets what it has of that step and later ones."""
        self._write(Event(wall_time=time.time(), step=step, session_log=SessionLog(status=SessionLog.START)))

    def add(self, step, values):
        """Adds a list of `Summary.Value` that belong to a step."""
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def flush(self):
        """See `Journal.flush`."""
        return self._journal.flush()

    def _write(self, event):
        record = io.BytesIO()
        RecordWriter(record).write(event.SerializeToString())
        self._journal.append(record.getvalue())
