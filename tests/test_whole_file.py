"""Files that are written completely or not at all."""

import os

import pytest

from cyclegan import whole_file


@pytest.mark.parametrize("content", ["caf\u00e9\n", b"\x89PNG"])
def test_a_file_is_written_or_replaced(tmp_path, content):
    for _ in range(2):
        whole_file.write(tmp_path / "a", content)
        (tmp_path / "a.partial").write_text("left by a kill")
    whole_file.write(str(tmp_path / "a"), content)
    assert (tmp_path / "a").read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("name", ["a", "a.partial"])
@pytest.mark.parametrize("exists", [False, True])
def test_links_are_not_followed(tmp_path, name, exists):
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    folder.mkdir()
    if exists:
        outside.write_text("precious")
    (folder / name).symlink_to(outside)
    whole_file.write(folder / "a", "new")
    assert outside.exists() == exists and (not exists or outside.read_text() == "precious")
    assert (folder / "a").read_text() == "new" and not (folder / "a").is_symlink()


def test_the_content_is_on_the_disk_before_the_name(tmp_path, monkeypatch):
    calls, replace = [], os.replace
    monkeypatch.setattr(os, "fsync", lambda number: calls.append(os.readlink(f"/proc/self/fd/{number}")))
    monkeypatch.setattr(os, "replace", lambda *paths: calls.append("replace") or replace(*paths))
    whole_file.write(tmp_path / "a", "new")
    assert calls == [str(tmp_path / "a.partial"), "replace", str(tmp_path)]


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    whole_file.write(tmp_path / "a", "old")

    def fail(*_):
        raise OSError("no")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        whole_file.write(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_only_regular_files_are_read(tmp_path):
    (tmp_path / "text").write_text("ä")
    (tmp_path / "link").symlink_to("text")
    assert whole_file.read_text(tmp_path / "link") == "ä"
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises(OSError, match="not a regular file|Is a directory"):
            whole_file.read_text(path)
