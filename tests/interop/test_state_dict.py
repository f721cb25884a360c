"""Files of `torch.save`: reading, refusal, and no execution of their content."""

import collections
import os
import pathlib
import pickle
import sys
import types

import numpy as np
import pytest

from cyclegan.errors import UserError
from cyclegan.interop.torch_networks import load_state_dict

FORMATS = pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])


def save(torch, content, path, legacy=False):
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return str(path)


def refuse(path, text=None):
    """Check that a file is refused in one line with its name, without PyTorch's advice to execute the file."""
    with pytest.raises(UserError, match=text) as raised:
        load_state_dict(str(path))
    message = str(raised.value)
    assert message.startswith(str(path)) and message.endswith("expected a network's state_dict() that torch.save wrote")
    assert "\n" not in message and "weights_only" not in message and "trust" not in message and len(message) < 400


@FORMATS
def test_tensors_of_each_type_become_float32(torch, legacy, tmp_path):
    numbers, storage = torch.arange(24.0).reshape(2, 3, 4), torch.arange(12.0)
    state = collections.OrderedDict(
        plain=numbers,
        half=numbers.half(),
        bfloat16=numbers.bfloat16(),
        double=numbers.double() + 0.5,
        long=torch.tensor(5),
        parameter=torch.nn.Parameter(numbers),
        transposed=storage.reshape(3, 4).t(),
        row=storage[6:9],
    )
    state._metadata = collections.OrderedDict({"": {"version": 1}})  # modules add this
    read = load_state_dict(save(torch, state, tmp_path / "net.pth", legacy))
    assert list(read) == list(state)
    for name, tensor in state.items():
        assert read[name].dtype == np.float32
        np.testing.assert_array_equal(read[name], tensor.detach().float().numpy())


class Calls:
    """Object that is pickled as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@FORMATS
def test_calls_are_refused_and_nothing_is_executed(torch, legacy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call, name in (
        ((os.system, "touch called"), "posix.system"),
        ((eval, "open('called', 'w')"), "eval"),
        ((open, "called", "w"), "open"),
    ):
        refuse(save(torch, {"w": Calls(*call)}, "net.pth", legacy), rf"asks for \S*{name}, which no state dict needs")
        pathlib.Path("net.pth").write_bytes(pickle.dumps(Calls(*call)))  # without torch
        refuse("net.pth")
        assert os.listdir() == ["net.pth"]


@FORMATS
def test_other_content_is_refused(torch, legacy, tmp_path):
    for content, text in (
        ({"epoch": 3}, "its 'epoch' is int, not a tensor"),
        ({3: "w"}, "its 3 is str"),
        ([1, 2], "it holds list, not a dict of tensors"),
        (torch.nn.Conv2d(1, 1, 1), r"asks for torch.nn.modules.conv.Conv2d, which no state dict needs"),
        ({"w": torch.ones(3, device="meta")}, None),
    ):
        refuse(save(torch, content, tmp_path / "net.pth", legacy), text)


@FORMATS
def test_damaged_files_are_refused(torch, legacy, tmp_path):
    path = save(torch, {"w": torch.ones(1000)}, tmp_path / "net.pth", legacy)
    whole = (tmp_path / "net.pth").read_bytes()
    for content in (whole[:-100], whole[:20], b"", b"\x89PNG\r\n\x1a\n"):
        (tmp_path / "net.pth").write_bytes(content)
        refuse(path, r"no file of PyTorch, or (a damaged or cut one: copy it again|holds more than tensors); exp")
    for missing in (tmp_path, tmp_path / "other.pth"):
        refuse(missing, r"can't be read \((Is a|No such)")


def test_torch_that_is_missing_or_unsafe_is_named(tmp_path, monkeypatch):
    path = tmp_path / "net.pth"
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        UserError, match=r"PyTorch.* can't be imported .*: pip install -c \S+ torch --index-url \S+/cpu"
    ):
        load_state_dict(path)
    for version, safe in (("1.13.1", False), ("2.5.1+cpu", False), ("2.6.0", True), ("2.13.0+cpu", True)):
        fake = types.SimpleNamespace(__version__=version, load=lambda path, **_: path.read_bytes())
        monkeypatch.setitem(sys.modules, "torch", fake)
        with pytest.raises(UserError, match="can't be read" if safe else "expected 2.6 or newer: pip install"):
            load_state_dict(path)
