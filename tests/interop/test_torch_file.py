import collections
import io
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest

from cyclegan.errors import UserError
from cyclegan.interop import torch_file


class Rebuilt:
    """Pickles as PyTorch's tensors do: as a call that puts one together."""

    def __init__(self, array, key, name="_rebuild_tensor_v2", **other):
        self.array, self.key, self.name = np.asarray(array), key, name
        self.kind = {"f4": "Float", "f2": "Half", "f8": "Double", "i8": "Long"}[self.array.dtype.str[1:]]
        strides = tuple(stride // self.array.itemsize for stride in np.empty_like(self.array, order="C").strides)
        self.place = {"offset": 0, "shape": self.array.shape, "strides": strides, "count": self.array.size, **other}

    def __reduce__(self):
        place = self.place
        arguments = (Storage(self), place["offset"], place["shape"], place["strides"])
        if self.name == "_rebuild_tensor_v2":
            arguments += (False, collections.OrderedDict())
        return Named("torch._utils", self.name), arguments


class Storage:
    def __init__(self, tensor):
        self.tensor = tensor


class Named:
    """A function or class of a module that need not be there."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    def __call__(self):
        raise AssertionError("nothing is to be called")


class Pickler(pickle._Pickler):
    """Writes what PyTorch's writes. `legacy` adds what the older format says of a storage."""

    def __init__(self, file, legacy=False):
        super().__init__(file, protocol=2)
        self.legacy = legacy

    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        tensor = value.tensor
        kind = Named("torch", f"{tensor.kind}Storage")
        return ("storage", kind, tensor.key, "cuda:0", tensor.place["count"], *([None] if self.legacy else []))

    def save(self, value, save_persistent_id=True):
        if isinstance(value, Named):
            self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())
        else:
            super().save(value, save_persistent_id)


def pickled(value, **settings):
    file = io.BytesIO()
    Pickler(file, **settings).dump(value)
    return file.getvalue()


def write_zip(path, state, byteorder=b"little", packed=zipfile.ZIP_STORED, parts=None):
    with zipfile.ZipFile(path, "w", packed) as archive:
        archive.writestr("net/data.pkl", state if isinstance(state, bytes) else pickled(state))
        archive.writestr("net/byteorder", byteorder)
        archive.writestr("net/version", b"3\n")
        tensors = {} if isinstance(state, bytes) else {t.key: t.array for t in state.values() if isinstance(t, Rebuilt)}
        for key, array in (tensors if parts is None else parts).items():
            archive.writestr(f"net/data/{key}", np.ascontiguousarray(array).tobytes())


def write_legacy(path, state, magic=torch_file.MAGIC, little=True, keys=None, cut=0):
    """As PyTorch before 1.6: magic number, protocol, machine, the state, the storages' keys, then each storage."""
    tensors = {} if isinstance(state, bytes) else {t.key: t.array for t in state.values() if isinstance(t, Rebuilt)}
    machine = {"protocol_version": 1001, "little_endian": little, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    body = state if isinstance(state, bytes) else pickled(state, legacy=True)
    content = b"".join([pickled(magic), pickled(1001), pickled(machine), body])
    content += pickled(sorted(tensors) if keys is None else keys)
    for key in sorted(tensors):
        content += struct.pack("<q", tensors[key].size) + np.ascontiguousarray(tensors[key]).tobytes()
    path.write_bytes(content[: len(content) - cut])


WRITE = [write_zip, write_legacy]


def arrays():
    rng = np.random.default_rng(0)
    return {
        "model.1.weight": rng.normal(size=(4, 3, 7, 7)).astype(np.float32),
        "half": rng.normal(size=(5,)).astype(np.float16),
        "double": rng.normal(size=(2, 1, 3)),
        "num_batches_tracked": np.array(123456789012),
        "empty": np.zeros((0, 3), np.float32),
    }


@pytest.mark.parametrize("write", WRITE)
@pytest.mark.parametrize("name", ["_rebuild_tensor", "_rebuild_tensor_v2"])
def test_tensors_of_each_type_are_read(write, name, tmp_path):
    state = collections.OrderedDict((key, Rebuilt(a, str(n), name)) for n, (key, a) in enumerate(arrays().items()))
    state._metadata = collections.OrderedDict({"": {"version": 1}})  # as PyTorch's have it
    write(tmp_path / "net.pth", state)
    got = torch_file.load(tmp_path / "net.pth")
    assert list(got) == list(arrays())
    for key, array in arrays().items():
        assert got[key].dtype == array.dtype
        np.testing.assert_array_equal(got[key], array)


@pytest.mark.parametrize("write", WRITE)
def test_tensors_are_parts_of_storages(write, tmp_path):
    """One that is transposed, a row of it, and a number, all of the same 12 numbers."""
    numbers = np.arange(12, dtype=np.float32)
    state = {
        "transposed": Rebuilt(numbers, "7", shape=(3, 4), strides=(1, 3)),
        "row": Rebuilt(numbers, "7", offset=6, shape=(3,), strides=(1,)),
        "number": Rebuilt(numbers, "7", offset=11, shape=(), strides=()),
    }
    write(tmp_path / "net.pth", state)
    got = torch_file.load(tmp_path / "net.pth")
    np.testing.assert_array_equal(got["transposed"], numbers.reshape(4, 3).T)
    assert got["row"].tolist() == [6, 7, 8] and float(got["number"]) == 11
    with pytest.raises(ValueError):
        got["row"][0] = 1  # it would change the others


@pytest.mark.parametrize("write", WRITE)
@pytest.mark.parametrize(
    "place, text",
    [
        ({"offset": 1}, "beyond the 12 numbers"),
        ({"offset": 12, "shape": ()}, "makes no sense"),
        ({"offset": -1}, "makes no sense"),
        ({"strides": (5, 1)}, "beyond"),
        ({"strides": (-4, 1)}, "makes no sense"),
        ({"strides": (0, 0), "shape": (10**6, 10**6)}, "more numbers than the 12"),
        ({"shape": (3.0, 4)}, "makes no sense"),
        ({"shape": "ab"}, "makes no sense"),
        ({"shape": 3}, "damaged"),
        ({"count": -1}, "makes no sense"),
        ({"count": 13}, "13"),
        ({"count": 11}, "11"),
    ],
    ids=str,
)
def test_tensors_stay_within_their_storage(write, place, text, tmp_path):
    write(tmp_path / "net.pth", {"w": Rebuilt(np.zeros((3, 4), np.float32), "0", **place)})
    with pytest.raises(UserError, match=text):
        torch_file.load(tmp_path / "net.pth")


class Calls:
    """Pickles as a call of anything."""

    def __init__(self, module, name, *arguments):
        self.call = Named(module, name), arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("write", WRITE)
@pytest.mark.parametrize(
    "call, text",
    [
        (("os", "system", "touch HERE"), "os.system, which is not allowed"),
        (("builtins", "eval", "open('HERE', 'w')"), "builtins.eval"),
        (("__builtin__", "eval", "open('HERE', 'w')"), "eval"),
        (("collections", "namedtuple", "a", "b"), "collections.namedtuple"),
        (("torch", "load", "HERE"), "torch.load"),
        (("torch._utils", "__import__", "os"), "torch._utils.__import__"),
        (("cyclegan.torch_file", "os.system", "touch HERE"), "cyclegan.torch_file.os.system"),
        (("models.networks", "ResnetGenerator"), "models.networks.ResnetGenerator"),
        (("torch", "FloatStorage", 5), "wants to call FloatStorage"),
        (("torch._utils", "_rebuild_tensor_v2", 1, 2, 3, 4), "wants to call _rebuild_tensor_v2"),
        (("torch._utils", "_rebuild_tensor_v2"), "wants to call _rebuild_tensor_v2"),
    ],
    ids=lambda value: ".".join(map(str, value[:2])) if isinstance(value, tuple) else "",
)
def test_nothing_in_a_file_is_called(write, call, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "net.pth", {"w": Calls(*(str(part).replace("HERE", "called") for part in call))})
    with pytest.raises(UserError, match=text):
        torch_file.load(tmp_path / "net.pth")
    assert os.listdir(tmp_path) == ["net.pth"]


class Changed:
    """Pickles as something of a pickle's own, with other attributes."""

    def __init__(self, value, attributes):
        self.value, self.attributes = value, attributes

    def __reduce__(self):
        function, arguments = self.value.__reduce__()
        return function, arguments, self.attributes


@pytest.mark.parametrize("attributes", [{"shape": (10**9,)}, (None, {"shape": (10**9,)})], ids=str)
def test_what_a_pickle_made_it_can_not_change(attributes, tmp_path):
    tensor = Rebuilt(np.zeros(3, np.float32), "0")
    write_zip(tmp_path / "net.pth", pickled({"w": Changed(tensor, attributes)}), parts={"0": tensor.array})
    with pytest.raises(UserError, match="wants to change something"):
        torch_file.load(tmp_path / "net.pth")


@pytest.mark.parametrize("write", WRITE)
@pytest.mark.parametrize(
    "content, text",
    [
        ({"epoch": 3}, "its 'epoch' is int, not a tensor"),
        ({"model": {}}, "its 'model' is dict"),
        ({3: Rebuilt(np.zeros(3), "0")}, "its 3 is Tensor"),
        (b"\x80\x02]q\x00.", "holds list"),
        (b"\x80\x02c", "damaged"),
    ],
    ids=str,
)
def test_what_is_no_dict_of_tensors_is_said(write, content, text, tmp_path):
    write(tmp_path / "net.pth", content)
    with pytest.raises(UserError, match=text) as raised:
        torch_file.load(tmp_path / "net.pth")
    assert str(tmp_path / "net.pth") in str(raised.value) and "expected what torch.save wrote" in str(raised.value)


def test_archives_that_are_not_pytorch_s(tmp_path):
    path, state = tmp_path / "net.pth", {"w": Rebuilt(np.zeros(100, np.float32), "0")}
    for settings, text in (
        ({"byteorder": b"big"}, "big-endian"),
        ({"packed": zipfile.ZIP_DEFLATED}, "compressed"),
        ({"parts": {}}, "'net/data/0' is missing"),
        ({"parts": {"0": np.zeros(99, np.float32)}}, "99 numbers instead of 100"),
        ({"parts": {"0": np.zeros(399, np.uint8)}}, "damaged"),
    ):
        write_zip(path, state, **settings)
        with pytest.raises(UserError, match=text):
            torch_file.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("picture.png", b"")
    with pytest.raises(UserError, match="0 files data.pkl"):
        torch_file.load(path)
    write_zip(path, state)
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(b"net/data/0") + 20] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(UserError, match="damaged"):
        torch_file.load(path)


def test_older_files_that_are_not_pytorch_s(tmp_path):
    path, state = tmp_path / "net.pth", {"w": Rebuilt(np.zeros(100, np.float32), "0")}
    for settings, text in (
        ({"magic": 1}, "not one of PyTorch"),
        ({"little": False}, "big-endian"),
        ({"keys": ["1"]}, "list of parts"),
        ({"keys": ["0", "0"]}, "list of parts"),
        ({"cut": 1}, "not whole"),
        ({"cut": 405}, "damaged"),
    ):
        write_legacy(path, state, **settings)
        with pytest.raises(UserError, match=text):
            torch_file.load(path)
    for content in (b"", b"hello", b"\x89PNG\r\n"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="damaged"):
            torch_file.load(path)
    with pytest.raises(UserError, match="can't be read"):
        torch_file.load(tmp_path / "not there.pth")


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_pytorch_s_own_files_are_read(legacy, tmp_path):
    torch = pytest.importorskip("torch")
    numbers = torch.arange(24.0).reshape(2, 3, 4)
    state = collections.OrderedDict(
        plain=numbers, part=numbers[1].t(), half=numbers.half(), double=numbers.double(), long=torch.tensor(5)
    )
    torch.save(state, tmp_path / "net.pth", _use_new_zipfile_serialization=not legacy)
    got = torch_file.load(tmp_path / "net.pth")
    for name, tensor in state.items():
        np.testing.assert_array_equal(got[name], tensor.numpy())
        assert got[name].dtype == tensor.numpy().dtype
    torch.save({"w": numbers.bfloat16()}, tmp_path / "net.pth", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(UserError, match="BFloat16Storage"):
        torch_file.load(tmp_path / "net.pth")
    torch.save(torch.nn.Conv2d(1, 1, 1), tmp_path / "net.pth", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(UserError, match="torch.nn.modules.conv.Conv2d, which is not allowed"):
        torch_file.load(tmp_path / "net.pth")
