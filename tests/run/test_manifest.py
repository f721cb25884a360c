import json
import os

import pytest

from cyclegan.run import manifest
from tests.run.saves import at


@pytest.fixture
def checkpoint(tmp_path):
    for name in ("state.index", "state.data-00000-of-00001"):
        (tmp_path / name).write_bytes(name.encode())
    manifest.write(tmp_path, at(2, 5))
    return tmp_path


def test_a_complete_checkpoint_may_have_other_files(checkpoint):
    assert manifest.verify(checkpoint) == at(2, 5) and manifest.is_complete(checkpoint)
    (checkpoint / "notes.txt").write_text("mine")
    assert manifest.is_complete(checkpoint)


def test_a_folder_without_manifest_is_incomplete(tmp_path):
    assert not manifest.is_complete(tmp_path) and not manifest.is_complete(tmp_path / "missing")


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda content: content.update(more=1), "unknown fields 'more'"),
        (lambda content: content["files"].pop("state.index"), "names no state.index"),
        (lambda content: content["files"]["state.index"].append(1), "too many values"),
        (lambda content: content["files"].update({"../state.index": [1, 2]}), "state.index is damaged"),
        (lambda content: content.pop("files"), "is damaged"),
        (lambda content: content["train_state"].update(step=-1), "step is -1"),
        (lambda content: content["train_state"].update(epoch=10**30), "epoch is 1000.*, expected int .* below 10"),
        (lambda content: content["train_state"].update(log_bytes=10**400), "log_bytes is 1000"),
        (lambda content: content["files"].update({"state.index": [10**400, 10**400]}), "state.index is damaged"),
    ],
)
def test_a_wrong_manifest_is_refused(checkpoint, change, text):
    path = checkpoint / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    if "files" in content:
        content["crc32"] = manifest.checksum(content)
    path.write_text(json.dumps(content))
    with pytest.raises(manifest.INVALID, match=text):
        manifest.verify(checkpoint)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100_000])
def test_other_json_is_refused(checkpoint, text):
    (checkpoint / "manifest.json").write_text(text)
    with pytest.raises(ValueError, match=r"manifest\.json is damaged"):
        manifest.verify(checkpoint)


def test_a_pipe_is_no_file_of_a_checkpoint(checkpoint):
    (checkpoint / "state.index").unlink()
    os.mkfifo(checkpoint / "state.index")
    assert not manifest.is_complete(checkpoint)
    (checkpoint / "manifest.json").unlink()
    os.mkfifo(checkpoint / "manifest.json")
    assert not manifest.is_complete(checkpoint)
