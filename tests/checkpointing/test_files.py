import os

import pytest

from cyclegan.checkpointing import files


def folder(path, name="content"):
    path.mkdir()
    (path / name).write_text(name)
    return path


def content(path):
    return [file.name for file in path.iterdir()]


def test_exchange_swaps_two_folders(tmp_path):
    one, other = folder(tmp_path / "one", "1"), folder(tmp_path / "other", "2")
    assert files.exchange(one, other)
    assert content(one) == ["2"] and content(other) == ["1"]
    assert not files.exchange(one, tmp_path / "missing")


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("exists", [True, False])
def test_replace_leaves_only_the_new_folder(tmp_path, monkeypatch, exchanges, exists):
    if not exchanges:
        monkeypatch.setattr(files, "exchange", lambda one, other: False)
    if exists:
        folder(tmp_path / "a", "old")
    files.replace(folder(tmp_path / ".partial_a", "new"), tmp_path / "a")
    assert content(tmp_path) == ["a"] and content(tmp_path / "a") == ["new"]


def test_a_failed_replacement_brings_the_old_folder_back(tmp_path, monkeypatch):
    old, new = folder(tmp_path / "a", "old"), folder(tmp_path / ".partial_a", "new")
    monkeypatch.setattr(files, "exchange", lambda one, other: False)
    rename = os.rename

    def fail_for_the_new_one(source, target):
        if source == new:
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail_for_the_new_one)
    with pytest.raises(OSError, match="no"):
        files.replace(new, old)
    assert content(old) == ["old"]


def test_remove_also_removes_leftovers_of_a_killed_process(tmp_path):
    folder(tmp_path / ".removed_a", "older")
    files.remove(folder(tmp_path / "a"))
    files.remove(tmp_path / "missing")
    assert not content(tmp_path)


def test_discard_removes_a_link_and_not_its_target(tmp_path):
    folder(tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    files.discard(tmp_path / "link")
    files.discard(tmp_path / "missing")
    assert content(tmp_path) == ["a"] and content(tmp_path / "a") == ["content"]


def test_crc32_of_the_check_value(tmp_path):
    (tmp_path / "a").write_bytes(b"123456789")
    assert files.crc32(tmp_path / "a") == 0xCBF43926  # the check value of the algorithm
