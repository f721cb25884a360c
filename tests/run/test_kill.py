"""Kill a process at every change of the disk that a save makes: the old or the new checkpoint is always left."""

import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from tests.run.saves import DATA, Run, at, open_run

CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir")  # audit events; `open` and fsync, too
ROOT = pathlib.Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def die_at(last, change_disk):
    """Call a function in a process that is killed before change number `last` of the disk; return whether it was."""
    child = os.fork()
    if not child:
        count = itertools.count(1)

        def change(*_):
            if next(count) == last:
                os.kill(os.getpid(), signal.SIGKILL)

        def audit(event, arguments):
            if event in CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
                change()

        os.fsync = change  # has no audit event
        sys.addaudithook(audit)
        try:
            change_disk()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def save_and_die(run, last, value, train_state, **options):
    return die_at(last, lambda: run.save(value, train_state, **options))


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a kill loses nothing that was written


@pytest.mark.parametrize("position", [at(2), at(3), at(1, 2)], ids=["same", "next", "earlier"])
@pytest.mark.parametrize("keep", [1, 3])
@pytest.mark.parametrize("best", [("best-x2y",), ()])
def test_a_kill_leaves_the_old_or_the_new_checkpoint(tmp_path, caplog, position, keep, best):
    before = Run(tmp_path / "before", keep)
    for value, train_state in enumerate((at(1), at(1, 4), at(2)), 1):
        before.save(value, train_state, best=best)
    found = []
    for moment in itertools.count(1):
        run = Run(tmp_path / str(moment), keep)
        shutil.copytree(before.folder, run.folder)
        killed = save_and_die(run, moment, 4, position, best=best)
        found.append(run.restored())
        assert found[-1] in ((3, at(2)), (4, position)), moment
        assert all(run.named(name) in (3, 4) for name in best), moment
        assert not caplog.messages  # no checkpoint is damaged
        run.save(5, at(4), best=best)  # the next process removes what was left
        assert run.restored() == (5, at(4))
        assert len(list(run.folder.iterdir())) <= keep + len(best)
        if not killed:
            break
    assert moment > 10 and found[0] == (3, at(2)) and found[-1] == (4, position)
    assert found == sorted(found, key=lambda restored: restored[0])  # later kills never bring the old one back


def test_repeated_kills_leave_a_checkpoint(tmp_path):
    """Save the same position again, as with --keep 1 on an imported run; each process dies a little later."""
    run, killed, value = Run(tmp_path / "run", keep=1), True, 1
    run.save(value, at(0))
    while killed:
        killed = save_and_die(run, value, value + 1, at(0))
        value += 1
        assert run.restored() in [(older, at(0)) for older in range(1, value + 1)]
    assert value > 10 and run.restored() == (value, at(0))


def test_a_kill_of_the_first_save_leaves_nothing_or_a_checkpoint(tmp_path):
    killed, moment = True, 0
    while killed:
        moment += 1
        run = Run(tmp_path / str(moment), keep=1)
        killed = save_and_die(run, moment, 1, at(0))
        assert run.restored() in (None, (1, at(0)))
    assert moment > 4 and run.restored() == (1, at(0))


def test_a_folder_whose_clearing_was_killed_is_cleared_by_the_same_command(run_folder, tmp_path):
    for name in ("metrics.jsonl", "index.html", "samples/epoch_010.png", "samples/epoch_010/frames.json", "notes.txt"):
        (run_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (run_folder / name).write_text("")
    killed, moment = True, 0

    def clear():
        with open_run(run, clear_output_dir=True) as new:
            new.start(DATA)

    while killed:
        moment += 1
        run = tmp_path / str(moment)
        shutil.copytree(run_folder, run)
        killed = die_at(moment, clear)
        clear()
        assert {path.name for path in run.rglob("*") if path.is_file()} == {".lock", "config.json", "notes.txt"}
    assert moment > 10


SAVE = """
import resource, signal, sys
import tensorflow as tf
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.train_state import TrainState

checkpoints = CheckpointManager(sys.argv[1], {"a": tf.Variable(tf.random.normal([4000]))})
checkpoints.save(TrainState(epoch=1))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
checkpoints.save(TrainState(epoch=2))
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 100, 10_000])
def test_a_kill_within_a_file_of_tensorflow_leaves_the_old_checkpoint(run, tmp_path, size):
    """Let the kernel kill the process when it writes beyond a size of a file."""
    done = subprocess.run([sys.executable, "-c", SAVE, tmp_path / "checkpoints", str(size)], cwd=ROOT)
    assert done.returncode == -signal.SIGXFSZ
    _, checkpoints = run(names=("a",))
    assert [path.name for path in checkpoints.all()] == ["epoch_0001-1"]
