import fcntl
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from cyclegan import temporary_folder, terminal

ROOT = pathlib.Path(__file__).resolve().parents[1]


def make_folder(parent, end="time.sleep(60)"):
    """Start a process that makes its temporary folder in `parent` and then does `end`; return it and the folder."""
    code = f"""
import os, signal, sys, tempfile, time
from cyclegan.temporary_folder import temporary_files
with temporary_files():
    open(os.path.join(tempfile.gettempdir(), "left"), "w").close()
    print(tempfile.gettempdir(), flush=True)
    {end}
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(parent)},
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, pathlib.Path(process.stdout.readline().strip())


@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(130)"], ids=["kill", "second Ctrl-C"]
)
def test_the_next_start_removes_folders_of_processes_that_are_gone(tmp_path, end):
    for name in ("cyclegan-runs", temporary_folder.PREFIX + "file"):
        (tmp_path / name).write_text("foreign") if name.endswith("file") else (tmp_path / name).mkdir()
    (tmp_path / (temporary_folder.PREFIX + "link")).symlink_to(tmp_path / "cyclegan-runs")
    running, in_use = make_folder(tmp_path)
    gone, left = make_folder(tmp_path, end)
    gone.communicate(timeout=30)
    assert left.parent == tmp_path and (left / "left").exists()
    following, folder = make_folder(tmp_path, "pass")
    following.communicate(timeout=30)
    assert not left.exists() and not folder.exists() and (in_use / "left").exists()
    running.kill()
    running.communicate(timeout=30)
    assert len(list(tmp_path.iterdir())) == 4  # the folder of the process that was killed last, and the foreign entries


def test_a_folder_that_is_removed_before_it_is_opened_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    make, made = tempfile.mkdtemp, []

    def make_and_lose(**options):
        made.append(pathlib.Path(make(**options)))
        if len(made) == 1:
            made[0].rmdir()
        return str(made[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose)
    with temporary_folder.temporary_files():
        assert made[1:] == list(tmp_path.iterdir())


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    flock, taken = fcntl.flock, []

    def lock(descriptor, kind):
        if not taken:
            taken.append(next(tmp_path.iterdir()))
            taken[0].rmdir()
        flock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", lock)
    with temporary_folder.temporary_files():
        assert [pathlib.Path(tempfile.gettempdir())] == list(tmp_path.iterdir()) != taken
    assert not list(tmp_path.iterdir())


def test_a_temporary_folder_that_cannot_be_made_is_a_mistake(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert terminal.run(lambda: pytest.fail("it started")) == 2
    assert "TMPDIR: a temporary folder cannot be made" in capsys.readouterr().err
