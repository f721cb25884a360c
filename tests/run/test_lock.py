import errno
import os
import pathlib
import socket
import subprocess
import sys

import pytest

from cyclegan.errors import TrainingError, UserError
from cyclegan.run import lock
from tests.run.runs import DATA, open_run

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOLDER = """
import sys
from cyclegan.config import Config
from cyclegan.run.run_directory import RunDirectory
run = RunDirectory(Config.from_settings(output_dir=sys.argv[1]), {"keras": 2, "tensorflow": "2.15.1"})
run.start({"trainA": "3 images (1)"})
print("open", flush=True)
sys.stdin.read()
"""


def check_refused(path, pid, **values):
    with pytest.raises(UserError, match=rf"another process trains there \(process {pid} on .* another --output_dir"):
        open_run(path, **values)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_moved_or_replaced_folder_ends_the_run(tmp_path, replaced):
    path = tmp_path / "run"
    run = open_run(path)
    run.start(DATA)
    run.check()
    path.rename(tmp_path / "elsewhere")
    if replaced:
        open_run(path).start(DATA)
    with pytest.raises(TrainingError, match="was removed or moved during training"):
        run.check()


@pytest.mark.parametrize("clear", [False, True])
def test_a_second_run_is_refused_until_the_first_is_closed(run_folder, clear):
    before = (run_folder / "config.json").read_bytes()
    with open_run(run_folder, clear_output_dir=clear) as first:
        for _ in range(2):  # a refusal keeps the lock
            check_refused(run_folder, os.getpid(), clear_output_dir=clear)
        assert (run_folder / "config.json").read_bytes() == before
        first.start(DATA)
        check_refused(run_folder, os.getpid())
    first.close()
    open_run(run_folder).close()


@pytest.mark.parametrize("new", [False, True])
def test_a_killed_process_releases_the_lock(run_folder, tmp_path, new):
    path = tmp_path / "new" if new else run_folder
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "open\n"
            check_refused(path, holder.pid)
        finally:
            holder.kill()
    assert str(holder.pid) in (path / ".lock").read_text()  # the file alone is no lock
    with open_run(path) as again:
        again.start(DATA)
        assert (path / ".lock").read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks_allows_two_runs(run_folder, tmp_path, monkeypatch, code):
    def flock(descriptor, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(lock.fcntl, "flock", flock)
    for path in (run_folder, tmp_path / "new"):
        with open_run(path) as one, open_run(path):
            one.start(DATA)


def test_no_descriptor_stays_open(run_folder):
    before = len(os.listdir("/proc/self/fd"))
    with open_run(run_folder):
        check_refused(run_folder, os.getpid())
    with pytest.raises(UserError, match="differs"):
        open_run(run_folder, filters=8)  # a refusal releases the lock
    assert len(os.listdir("/proc/self/fd")) == before
