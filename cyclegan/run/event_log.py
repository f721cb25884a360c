"""TensorBoard event files."""

from __future__ import annotations

import io
import math
import os
import pathlib
import re
import time
from collections.abc import Mapping

import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.plugins.image.metadata import create_summary_metadata as image_metadata
from tensorboard.plugins.scalar.metadata import create_summary_metadata as scalar_metadata
from tensorboard.plugins.text.metadata import create_summary_metadata as text_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

from cyclegan import whole_file
from cyclegan.run.append_file import AppendFile

FILE_NUMBER = re.compile(r"events\.out\.tfevents\.(\d{1,15})")


class EventLog:
    """TensorBoard events of one process, in a new file whose name sorts after the files of earlier processes.

    TensorBoard reads the files of a folder in the order of their names. TensorFlow's own writer begins a name with the time, so
    after the clock was set back a new file would precede an old one. Here the names count up.

    Args:
        folder: Folder that TensorBoard reads; created if it does not exist.
        run: Folder of the run; by default `folder`.
    """

    def __init__(self, folder: str | os.PathLike[str], run: str | os.PathLike[str] | None = None) -> None:
        folder = pathlib.Path(folder)
        if run is None:
            folder.mkdir(exist_ok=True)  # the user may have linked the whole run to another disk
        else:
            whole_file.make_folder(folder)
        matches = [FILE_NUMBER.match(path.name) for path in folder.glob("events.out.tfevents.*")]
        number = 1 + max((int(match.group(1)) for match in matches if match), default=0)
        self._file = AppendFile(folder / f"events.out.tfevents.{number:010d}", run)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def restart(self, step: int) -> None:
        """Write an event that makes TensorBoard discard a step and all later ones."""
        self._write(Event(wall_time=time.time(), step=step, session_log=SessionLog(status=SessionLog.START)))

    def add_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Add finite scalars of a step by tag.

        Raises:
            ValueError: A scalar is not finite.
        """
        values = []
        for tag, scalar in scalars.items():
            if not math.isfinite(scalar):
                raise ValueError(f"{tag} is {scalar}; expected a finite number")
            tensor = TensorProto(dtype=tf.float32.as_datatype_enum, float_val=[scalar])
            values.append(Summary.Value(tag=tag, tensor=tensor, metadata=scalar_metadata(tag, "")))
        self._add(step, values)

    def add_image(self, step: int, tag: str, png: bytes, width: int, height: int) -> None:
        """Add an image of a step.

        Args:
            step: The step.
            tag: Name that TensorBoard shows.
            png: The encoded image.
            width: Width in pixels.
            height: Height in pixels.
        """
        strings = [str(width).encode(), str(height).encode(), png]  # the layout of TensorBoard's image plugin
        shape = {"dim": [{"size": len(strings)}]}
        tensor = TensorProto(dtype=tf.string.as_datatype_enum, tensor_shape=shape, string_val=strings)
        metadata = image_metadata(tag, "", converted_to_tensor=False)
        self._add(step, [Summary.Value(tag=tag, tensor=tensor, metadata=metadata)])

    def add_text(self, step: int, tag: str, text: str) -> None:
        """Add a text of a step, which TensorBoard shows under the tag."""
        tensor = TensorProto(dtype=tf.string.as_datatype_enum, string_val=[text.encode()])
        self._add(step, [Summary.Value(tag=tag, tensor=tensor, metadata=text_metadata(tag, ""))])

    def flush(self) -> bool:
        """Try again to write the waiting events; return whether all events are written."""
        return self._file.flush()

    def _add(self, step: int, values: list[Summary.Value]) -> None:
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _write(self, event: Event) -> None:
        record = io.BytesIO()
        RecordWriter(record).write(event.SerializeToString())
        self._file.append(record.getvalue())
