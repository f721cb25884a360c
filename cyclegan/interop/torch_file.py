"""Reads the tensors of a file that PyTorch's `torch.save` wrote, without PyTorch and without running anything that is in it.

Such a file holds pickles, and a pickle is a program: it names functions and has them called. Here it gets none but those that put a
dict of tensors together, as descriptions; the numbers are then read from where the file has them. Two formats: a zip archive, since
PyTorch 1.6, and before that a sequence of pickles and numbers. Both are described by `torch/serialization.py`.
"""

import collections
import dataclasses
import io
import os
import pickle
import struct
import zipfile

import numpy as np

from cyclegan.errors import UserError

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # of the older format
KINDS = {"FloatStorage": "<f4", "HalfStorage": "<f2", "DoubleStorage": "<f8", "LongStorage": "<i8"}
REBUILD = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")
LONGEST_PICKLE = 1 << 26  # bytes; a pickle of 1,000 tensors has 100 kB
ADVICE = "expected what torch.save wrote of a network's state_dict()"


def load(path):
    """The tensors of a state dict by name, a dict of NumPy arrays: float16, float32, float64 or int64. Do not write to them.

    Raises:
        UserError: the file can't be read, is something else, is damaged, or wants to call a function.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = _from_zip(file, size) if zipfile.is_zipfile(file) else _from_pickles(file, size)
            return {name: tensor.array() for name, tensor in content.items()}
    except UserError as error:
        raise UserError(f"{path}: {error}; {ADVICE}") from None
    except OSError as error:
        raise UserError(f"{path} can't be read ({error}); {ADVICE}") from error
    except Exception as error:  # a damaged pickle, or archive, may raise anything
        raise UserError(f"{path} is no file of PyTorch, or damaged ({error!r:.120}); {ADVICE}") from error


class _Sealed:
    """What a pickle gets and may pass on, but not change. (Pickles may set any attribute of what they have.)"""

    def __setstate__(self, state):
        raise UserError("its pickle wants to change something, which is not allowed")


@dataclasses.dataclass
class _Storage(_Sealed):
    """Numbers of one type in a row, which tensors are parts of. They are there once `data` is."""

    kind: str
    key: str
    count: int
    data: np.ndarray = None


@dataclasses.dataclass
class _Tensor(_Sealed):
    storage: _Storage
    offset: int
    shape: tuple
    strides: tuple  # in numbers, not in bytes

    def array(self):
        """The tensor as a view of its storage."""
        numbers = (self.offset, *self.shape, *self.strides)
        if not all(type(n) is int and n >= 0 for n in numbers) or len(self.shape) != len(self.strides):
            raise UserError(f"a tensor of shape {self.shape!r:.80} and strides {self.strides!r:.80} makes no sense")
        last = self.offset + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides))
        data, empty = self.storage.data, 0 in self.shape
        if not empty and last >= len(data):
            raise UserError(f"a tensor reaches beyond the {len(data)} numbers that it is a part of")
        strides = [stride * data.itemsize for stride in self.strides]
        array = np.lib.stride_tricks.as_strided(data[self.offset :], self.shape, strides, writeable=False)
        if array.size > len(data):
            raise UserError(f"a tensor of shape {self.shape} has more numbers than the {len(data)} it is made of")
        return array


@dataclasses.dataclass(frozen=True)
class _StandIn(_Sealed):
    """What a pickle gets for a class or function of PyTorch."""

    name: str

    def __call__(self, *arguments):
        if self.name == "_rebuild_parameter":
            return arguments[0]
        if self.name not in REBUILD or len(arguments) < 4 or not isinstance(arguments[0], _Storage):
            raise UserError(f"its pickle wants to call {self.name} in a way that no state dict needs")
        return _Tensor(*arguments[:4])


class _Unpickler(pickle.Unpickler):
    """Allows nothing but ordered dicts and the stand-ins. The storages that a pickle speaks of are in `storages`, by key."""

    def __init__(self, file):
        super().__init__(file, encoding="utf-8")
        self.storages = {}

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module == "torch" and name in KINDS) or (module == "torch._utils" and name in REBUILD):
            return _StandIn(name)
        raise UserError(f"its pickle wants to use {module}.{name}, which is not allowed")

    def persistent_load(self, reference):
        word, kind, key, _, count, *view = reference
        if word != "storage" or not isinstance(kind, _StandIn) or kind.name not in KINDS or any(view):
            raise UserError(f"its pickle speaks of {reference!r:.80}, which is not known")
        if type(key) is not str or type(count) is not int or count < 0:
            raise UserError(f"its pickle speaks of {count!r:.20} numbers {key!r:.40}, which makes no sense")
        return self.storages.setdefault(key, _Storage(KINDS[kind.name], key, count))

    def state(self):
        """(what the pickle holds if that is a dict of tensors, its storages by key)."""
        content = self.load()
        if not isinstance(content, dict):
            raise UserError(f"it holds {type(content).__name__}, not a dict of tensors")
        for name, value in content.items():
            if type(name) is not str or not isinstance(value, _Tensor):
                raise UserError(f"its {name!r:.80} is {type(value).__name__.strip('_')}, not a tensor")
        return content, self.storages


def _from_zip(file, size):
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        pickles = [name for name in entries if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise UserError(f"it is an archive with {len(pickles)} files data.pkl, not one")
        packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values())
        if packed or sum(entry.file_size for entry in entries.values()) > size:
            raise UserError("its parts are compressed, or larger than it, which PyTorch does not do")
        folder = pickles[0][: -len("data.pkl")]
        if f"{folder}byteorder" in entries and archive.read(f"{folder}byteorder") != b"little":
            raise UserError("it was written on a big-endian machine")
        if entries[pickles[0]].file_size > LONGEST_PICKLE:
            raise UserError("its pickle is too long")
        content, storages = _Unpickler(io.BytesIO(archive.read(pickles[0]))).state()
        for storage in storages.values():
            name = f"{folder}data/{storage.key}"
            if name not in entries:
                raise UserError(f"its part {name!r:.80} is missing")
            storage.data = np.frombuffer(archive.read(name), storage.kind)
            if len(storage.data) != storage.count:
                raise UserError(f"its part {name!r:.80} has {len(storage.data)} numbers instead of {storage.count}")
    return content


def _from_pickles(file, size):
    file.seek(0)
    if _Unpickler(file).load() != MAGIC or _Unpickler(file).load() != PROTOCOL:
        raise UserError("it is a pickle, but not one of PyTorch")
    if not _Unpickler(file).load()["little_endian"]:
        raise UserError("it was written on a big-endian machine")
    content, storages = _Unpickler(file).state()
    keys = _Unpickler(file).load()
    if sorted(keys) != sorted(storages):
        raise UserError("its list of parts is not that of its tensors")
    for key in keys:
        storage = storages[key]
        (count,) = struct.unpack("<q", file.read(8))
        length = count * np.dtype(storage.kind).itemsize
        if count != storage.count or length > size - file.tell():
            raise UserError(f"its part {key!r:.80} of {storage.count} numbers is not there, or not whole")
        storage.data = np.frombuffer(file.read(length), storage.kind)
    return content
