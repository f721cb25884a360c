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


@dataclasses.dataclass(frozen=True)
class Stored:
    """A file inside another one: `length` bytes of the file `path`, a `pathlib.Path` or what is used as one, from `start` on."""

    path: object
    start: int
    length: int

    def open(self):
        """It as a file to read from, in binary; only what is asked for is read.

        Raises:
            OSError: the file around it can't be read.
        """
        return io.BufferedReader(_Part(self))


class _Part(io.RawIOBase):
    def __init__(self, stored):
        self._stored, self._at = stored, 0
        self._file = stored.path.open("rb")

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=os.SEEK_SET):
        offset += {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._stored.length}[whence]
        if offset < 0:
            raise ValueError(f"a place before the beginning: {offset}")
        self._at = offset
        return offset

    def readinto(self, buffer):
        self._file.seek(self._stored.start + self._at)
        data = self._file.read(max(0, min(len(buffer), self._stored.length - self._at)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self):
        if not self.closed:
            self._file.close()
        super().close()


def find(path, feature):
    """The values of a feature of bytes in all records of a file, in their order: a list of `Stored`.

    Reads little more of each record than what lies before the value.

    Args:
        path: a `pathlib.Path`, or what is used as one.
        feature: its name; each record has to have one value of it.

    Raises:
        ValueError: the file is cut off, or is no such file.
        OSError: it can't be read.
    """
    found, start, name = [], 0, feature.encode()
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while start < end:
            file.seek(start)
            head = file.read(HEAD)
            length = struct.unpack("<Q", head[:8])[0] if len(head) == HEAD else end
            data, start = start + HEAD, start + HEAD + length + CHECKSUM
            if start > end:
                raise ValueError(f"{path.name} ends inside of its record {len(found)}")
            try:
                found.append(Stored(path, *_value(file, data, length, name)))
            except LookupError:
                raise ValueError(f"record {len(found)} of {path.name} has no {feature}") from None
    return found


def _value(file, start, length, name):
    """(start, length) of the only value of a feature in an Example. Raises LookupError: there is none."""
    for features in _parts(file, start, length, 1):
        for entry in _parts(file, *features, 1):
            at, size = _parts(file, *entry, 1)[0]
            file.seek(at)
            if file.read(size) == name:
                feature = _parts(file, *entry, 2)[0]
                texts = _parts(file, *feature, 1)[0]
                return _parts(file, *texts, 1)[0]
    raise LookupError


def _parts(file, start, length, number):
    """[(start, length)] of the parts with a number of a message that lies in a file."""
    found, end = [], start + length
    while start < end:
        file.seek(start)
        key, size = _varint(file), _varint(file)
        at, start = file.tell(), file.tell() + size
        if key & 7 != WITH_LENGTH or start > end:
            raise ValueError(f"no tf.train.Example at byte {at} of {file.name}")
        if key >> 3 == number:
            found.append((at, size))
    return found


def _varint(file):
    """A number of 7 bits per byte, the lowest first; all bytes but the last have the highest bit set."""
    number = 0
    for shift in range(0, 64, 7):
        byte = (file.read(1) or b"\0")[0]
        number |= (byte & 127) << shift
        if byte < 128:
            break
    return number
