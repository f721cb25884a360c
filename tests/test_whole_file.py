"""Files that are written completely or not at all."""

import os
import stat

import pytest

from cyclegan import whole_file


@pytest.mark.parametrize("content", ["caf\u00e9\n", b"\x89PNG"])
def test_a_file_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch, content):
    (tmp_path / "a").write_text("old")
    (tmp_path / "a.partial").write_text("left by a kill")
    calls, replace = [], os.replace
    monkeypatch.setattr(os, "fsync", lambda number: calls.append(os.readlink(f"/proc/self/fd/{number}")))
    monkeypatch.setattr(os, "replace", lambda *paths: calls.append("replace") or replace(*paths))
    whole_file.write(tmp_path / "a", content)
    assert calls == [str(tmp_path / "a.partial"), "replace", str(tmp_path)]
    assert (tmp_path / "a").read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("old")

    def refuse(*paths):
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no space"):
        whole_file.write(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_a_pipe_or_device_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="no regular file, so it is not replaced"):
            whole_file.write(tmp_path / name, "new")
    assert stat.S_ISFIFO((tmp_path / "link").stat().st_mode) and len(list(tmp_path.iterdir())) == 2
