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


def refused_as_busy(path, pid, **values):
    with pytest.raises(UserError) as error:
        open_run(path, **values)
    text = str(error.value)
    return f"{path}: another process trains there (process {pid} on " in text and "another --output_dir" in text


@pytest.mark.parametrize("clear", [False, True])
def test_a_second_process_is_refused(run_folder, clear):
    before = (run_folder / "config.json").read_bytes()
    with open_run(run_folder):
        assert refused_as_busy(run_folder, os.getpid(), clear_output_dir=clear)
        assert refused_as_busy(run_folder, os.getpid(), clear_output_dir=clear)  # a refusal keeps the lock
    assert (run_folder / "config.json").read_bytes() == before
    with open_run(run_folder, clear_output_dir=clear) as again:
        again.start(DATA)
        assert refused_as_busy(run_folder, os.getpid())  # starting keeps it, too


def test_closing_twice_is_harmless(run_folder):
    first = open_run(run_folder)
    first.close()
    with open_run(run_folder):
        first.close()
        assert refused_as_busy(run_folder, os.getpid())


HOLDER = """
import sys
from cyclegan.config import Config
from cyclegan.run.run_directory import RunDirectory
run = RunDirectory(Config.from_settings(output_dir=sys.argv[1]), {"keras": 2, "tensorflow": "2.15.1"})
run.start({"trainA": "3 images (1)"})
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("new", [False, True])
def test_a_killed_process_releases_the_lock(run_folder, tmp_path, new):
    path = tmp_path / "new" if new else run_folder
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "open\n"
            assert refused_as_busy(path, holder.pid)
        finally:
            holder.kill()
    assert str(holder.pid) in (path / ".lock").read_text()  # the file alone is no lock
    (path / ".lock").write_text("process 12345678901234567890 on a.host.with.a.long.name" * 3)
    with open_run(path) as again:
        again.start(DATA)
        assert (path / ".lock").read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_the_second_start_in_a_new_folder_is_refused(tmp_path):
    path = tmp_path / "new"
    with open_run(path) as first, open_run(path) as second, open_run(path) as third:
        first.start(DATA)
        written = (path / "config.json").read_bytes()
        with pytest.raises(UserError, match=rf"another process trains there \(process {os.getpid()} on "):
            second.start(DATA)
        first.close()
        with pytest.raises(
            UserError, match="another process has trained there in the meantime; expected a new folder: start again"
        ):
            third.start(DATA)
        assert (path / "config.json").read_bytes() == written


def test_a_refused_start_releases_the_lock(run_folder):
    for values in ({"filters": 8}, {"stack": {"keras": 3, "tensorflow": "2.21.0"}}):
        with pytest.raises(UserError):
            open_run(run_folder, **values)
        with open_run(run_folder):
            pass


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
    with open_run(run_folder) as first:
        assert refused_as_busy(run_folder, os.getpid())
        first.start(DATA)
    with pytest.raises(UserError):
        open_run(run_folder, filters=8)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_lock_works_without_standard_input(run_folder):
    # As cron and `nohup command <&-` start it: the first file that is opened becomes number 0.
    program = "import os; os.close(0)\n" + HOLDER.replace("sys.stdin.read()", "RunDirectory(run.config, run.stack)")
    done = subprocess.run([sys.executable, "-c", program, str(run_folder)], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "open\n" and "another process trains there" in done.stderr
