"""Files of `torch.save`: reading, refusal, and no execution of their content."""

import collections
import os
import pathlib
import pickle
import sys
import types
import zipfile

import numpy as np
import pytest

from cyclegan.errors import UserError
from cyclegan.interop.state_dict import load_state_dict

FORMATS = pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])


def save(torch, content, path, legacy=False):
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return str(path)


@FORMATS
def test_tensors_of_each_type_become_float32(torch, legacy, tmp_path):
    numbers = torch.arange(24.0).reshape(2, 3, 4)
    storage = torch.arange(12.0)
    state = collections.OrderedDict(
        plain=numbers,
        part=numbers[1].t(),
        half=numbers.half(),
        bfloat16=numbers.bfloat16(),
        double=numbers.double() + 0.5,
        long=torch.tensor(5),
        empty=torch.zeros(0, 3),
        parameter=torch.nn.Parameter(numbers),
        transposed=storage.reshape(3, 4).t(),
        row=storage[6:9],
        number=storage[11],
    )
    state._metadata = collections.OrderedDict({"": {"version": 1}})  # modules add this
    read = load_state_dict(save(torch, state, tmp_path / "net.pth", legacy))
    assert list(read) == list(state)
    for name, tensor in state.items():
        assert read[name].dtype == np.float32
        np.testing.assert_array_equal(read[name], tensor.detach().float().numpy())


@FORMATS
def test_prefix_of_data_parallel_is_dropped(torch, legacy, tmp_path):
    module = torch.nn.DataParallel(torch.nn.Conv2d(1, 1, 1))
    assert set(load_state_dict(save(torch, module.state_dict(), tmp_path / "net.pth", legacy))) == {"weight", "bias"}


class Calls:
    """Object that is pickled as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@FORMATS
@pytest.mark.parametrize(
    "call, name",
    [
        ((os.system, "touch called"), "posix.system"),
        ((eval, "open('called', 'w')"), "eval"),
        ((exec, "open('called', 'w')"), "exec"),
        ((open, "called", "w"), "open"),
        ((__import__, "os"), "__import__"),
        ((collections.namedtuple, "a", "b"), "collections.namedtuple"),
        ((pickle.loads, b"."), "pickle.loads"),
        ((getattr, os, "system"), "getattr"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_calls_are_refused_and_nothing_is_executed(torch, legacy, call, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, *arguments = call
    arguments = ["os" if argument is os else argument for argument in arguments]
    save(torch, {"w": Calls(function, *arguments)}, "net.pth", legacy)
    with pytest.raises(UserError, match=rf"asks for \S*{name}, which no state dict needs") as raised:
        load_state_dict("net.pth")
    check_message(raised, "net.pth")
    assert os.listdir() == ["net.pth"]


@FORMATS
def test_modules_are_refused(torch, legacy, tmp_path):
    path = save(torch, torch.nn.Conv2d(1, 1, 1), tmp_path / "net.pth", legacy)
    with pytest.raises(UserError, match=r"asks for torch.nn.modules.conv.Conv2d, which no state dict needs"):
        load_state_dict(path)


def test_a_pickle_without_torch_is_refused(torch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for protocol in (2, 4):
        with open("net.pth", "wb") as file:
            pickle.dump(Calls(os.system, "touch called"), file, protocol)
        with pytest.raises(UserError) as raised:
            load_state_dict("net.pth")
        check_message(raised, "net.pth")
        assert os.listdir() == ["net.pth"]


def check_message(raised, path):
    """Check that a message is one line with the file and the expected content, without PyTorch's advice to execute the file."""
    text = str(raised.value)
    assert text.startswith(str(path)) and text.endswith("expected a network's state_dict() that torch.save wrote")
    assert "\n" not in text and "weights_only" not in text and "trust" not in text and len(text) < 400


@FORMATS
@pytest.mark.parametrize(
    "content, text",
    [
        ({"epoch": 3}, "its 'epoch' is int, not a tensor"),
        ({"model": {}}, "its 'model' is dict"),
        ({3: "w"}, "its 3 is str"),
        ([1, 2], "it holds list, not a dict of tensors"),
    ],
    ids=str,
)
def test_other_content_is_refused(torch, legacy, content, text, tmp_path):
    path = save(torch, content, tmp_path / "net.pth", legacy)
    with pytest.raises(UserError, match=text) as raised:
        load_state_dict(path)
    check_message(raised, path)


def test_tensors_that_are_no_arrays_are_refused(torch, tmp_path):
    for tensor in (torch.ones(3).to_sparse(), torch.ones(3, device="meta"), torch.ones(3, dtype=torch.complex64)):
        path = save(torch, {"w": tensor}, tmp_path / "net.pth")
        with pytest.raises(UserError) as raised:
            load_state_dict(path)
        check_message(raised, path)


@FORMATS
def test_damaged_files_are_refused(torch, legacy, tmp_path):
    path = save(torch, {"w": torch.ones(1000)}, tmp_path / "net.pth", legacy)
    whole = (tmp_path / "net.pth").read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(b"\x00\x00\x80\x3f" * 10) + 100] ^= 1
    for content in (whole[:-100], whole[:200], whole[:20], *([] if legacy else [flipped])):
        (tmp_path / "net.pth").write_bytes(content)
        with pytest.raises(UserError, match="damaged|no file of PyTorch") as raised:
            load_state_dict(path)
        check_message(raised, path)


def test_other_files_are_refused(torch, tmp_path):
    path = tmp_path / "net.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("image.png", b"")
    archive = path.read_bytes()
    for content in (b"", b"hello", b"\x89PNG\r\n\x1a\n", b"\x80\x02c", archive):
        path.write_bytes(content)
        with pytest.raises(UserError, match="no file of PyTorch") as raised:
            load_state_dict(str(path))
        check_message(raised, path)
    for missing in (tmp_path, tmp_path / "other.pth"):
        with pytest.raises(UserError, match=r"can't be read \((Is a|No such)") as raised:
            load_state_dict(str(missing))
        check_message(raised, missing)


def test_torch_that_is_missing_or_unsafe_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"PyTorch.* can't be imported .*: pip install torch --index-url \S+/whl/cpu"):
        load_state_dict(str(tmp_path / "net.pth"))
    for version, safe in (("1.13.1", False), ("2.5.1+cpu", False), ("2.6.0", True), ("2.13.0+cpu", True)):
        fake = types.SimpleNamespace(__version__=version, load=lambda path, **_: pathlib.Path(path).read_bytes())
        monkeypatch.setitem(sys.modules, "torch", fake)
        text = "can't be read" if safe else "expected 2.6 or newer: pip install torch"
        with pytest.raises(UserError, match=text):
            load_state_dict(str(tmp_path / "net.pth"))
