"""The pictures in the TFRecord files of TensorFlow Datasets: where each lies, so that one can be read by itself; no TensorFlow.

A record is the length of its data (uint64, little-endian), a checksum of that, the data, and a checksum of these; checksums have 4
bytes (tensorflow/core/lib/io/record_writer.h). The data are a `tf.train.Example` (tensorflow/core/example/example.proto) in the
wire format of Protocol Buffers, whose parts all begin with their number, kind and length here.
"""

import dataclasses
import io
import os
import struct

HEAD, CHECKSUM = 12, 4  # bytes around the data of a record
WITH_LENGTH = 2  # the kind of a part that says how long it is
BUFFER = 1024  # bytes that are read at once where a few are asked for


@dataclasses.dataclass(frozen=True)
class Stored:
    """A file inside another one: `length` bytes of the file `path`, a text, from `start` on."""

    path: str
    start: int
    length: int

    def open(self):
        """It as a file to read from, in binary; little more than what is asked for is read. Checksums are not looked at.

        Raises:
            OSError: the file around it can't be read.
        """
        return io.BufferedReader(_Part(open(self.path, "rb", buffering=0), self.start, self.length), BUFFER)


class _Part(io.RawIOBase):
    def __init__(self, file, start, length):
        self._file, self._start, self._length, self._at = file, start, length, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=os.SEEK_SET):
        offset += {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence]
        if offset < 0:
            raise ValueError(f"a place before the beginning: {offset}")
        self._at = offset
        return offset

    def readinto(self, buffer):
        self._file.seek(self._start + self._at)
        data = self._file.read(max(0, min(len(buffer), self._length - self._at)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self):
        if not self.closed:
            self._file.close()
        super().close()


def find(path, feature):
    """Yields where the value of a feature of bytes lies in each record of a file, a `Stored` each, in their order.

    Reads a few bytes of each record: what lies before the value, and at most `BUFFER` more.

    Args:
        path: a text.
        feature: its name; each record has to have one value of it.

    Raises:
        ValueError: the file is cut off, or is no such file.
        OSError: it can't be read.
    """
    start, count, name = 0, 0, feature.encode()
    with open(path, "rb", buffering=BUFFER) as file:
        end = file.seek(0, os.SEEK_END)
        while start < end:
            file.seek(start)
            head = file.read(HEAD)
            length = struct.unpack("<Q", head[:8])[0] if len(head) == HEAD else end
            data, start = start + HEAD, start + HEAD + length + CHECKSUM
            if start > end:
                raise ValueError(f"{os.path.basename(path)} ends inside of its record {count}")
            value = _value(file, data, length, name)
            if value is None:
                raise ValueError(f"record {count} of {os.path.basename(path)} has no {feature}")
            yield Stored(path, *value)
            count += 1


def _value(file, start, length, name):
    """(start, length) of the value of a feature of bytes in an Example; `None` if there is none."""
    for features in _parts(file, start, length, 1):
        for entry in _parts(file, *features, 1):
            at, size = next(_parts(file, *entry, 1), (0, 0))
            file.seek(at)
            if file.read(size) == name:
                place = entry
                for number in (2, 1, 1):  # the entry's Feature, its BytesList, the value
                    place = next(_parts(file, *place, number), None)
                    if place is None:
                        return None
                return place
    return None


def _parts(file, start, length, number):
    """Yields (start, length) of the parts with a number of a message that lies in a file."""
    end = start + length
    while start < end:
        file.seek(start)
        key, size = _varint(file), _varint(file)
        at, start = file.tell(), file.tell() + size
        if key & 7 != WITH_LENGTH or start > end:
            raise ValueError(f"no tf.train.Example at byte {at} of {os.path.basename(file.name)}")
        if key >> 3 == number:
            yield at, size


def _varint(file):
    """A number of 7 bits per byte, the lowest first; all bytes but the last have the highest bit set."""
    number = 0
    for shift in range(0, 64, 7):
        byte = (file.read(1) or b"\0")[0]
        number |= (byte & 127) << shift
        if byte < 128:
            break
    return number
