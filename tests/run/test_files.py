import os

import pytest

from cyclegan.run import files


def folder(path, name="state.index"):
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
        folder(tmp_path / "a", "state.data-00000-of-00001")
    files.replace(folder(tmp_path / ".partial_a", "state.index"), tmp_path / "a")
    assert content(tmp_path) == ["a"] and content(tmp_path / "a") == ["state.index"]


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
    assert content(tmp_path) == ["a"] and content(tmp_path / "a") == ["state.index"]


def test_crc32_of_the_check_value(tmp_path):
    (tmp_path / "a").write_bytes(b"123456789")
    assert files.crc32(tmp_path / "a") == 0xCBF43926  # the check value of the algorithm


@pytest.mark.parametrize("exchanges", [True, False])
def test_files_of_the_user_in_a_checkpoint_stay(tmp_path, monkeypatch, exchanges):
    if not exchanges:
        monkeypatch.setattr(files, "exchange", lambda one, other: False)
    path = tmp_path / "epoch_0001"
    (folder(path, "state.index") / "notes").mkdir()
    files.replace(folder(tmp_path / ".partial_epoch_0001", "manifest.json"), path)
    assert sorted(content(path)) == ["manifest.json", "notes"] and content(tmp_path) == ["epoch_0001"]
    files.remove(path)
    assert content(path) == ["notes"] and content(tmp_path) == ["epoch_0001"]


def test_a_link_to_a_checkpoint_is_removed_alone(tmp_path):
    (folder(tmp_path / "mine", "state.index") / "notes").mkdir()
    (tmp_path / "epoch_0001").symlink_to(tmp_path / "mine")
    files.remove(tmp_path / "epoch_0001")
    assert content(tmp_path) == ["mine"] and sorted(content(tmp_path / "mine")) == ["notes", "state.index"]


def test_files_of_the_user_with_the_same_names_all_stay(tmp_path):
    old, new = tmp_path / ".partial_epoch_0001", tmp_path / "epoch_0001"
    for folder, text in ((old, "old"), (new, "new")):
        (folder / "notes").mkdir(parents=True)
        (folder / "notes" / "a.txt").write_text(text)
        (folder / "b.txt").write_text(text)
    files.discard_hidden(old)
    assert not old.exists()
    assert [(new / name).read_text() for name in ("notes/a.txt", "notes_old/a.txt", "b.txt", "b.txt_old")] == [
        *("new", "old", "new", "old"),
    ]


def test_files_of_the_user_in_a_hidden_folder_stay_without_another_folder(tmp_path):
    hidden = tmp_path / ".removed_epoch_0001"
    hidden.mkdir()
    for name in ("mine.txt", "state.index"):
        (hidden / name).write_text(name)
    files.discard_hidden(hidden)
    assert not hidden.exists() and [path.name for path in (tmp_path / "epoch_0001").iterdir()] == ["mine.txt"]
