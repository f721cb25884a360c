"""Kill a process at every change of the disk that a save makes: the old or the new checkpoint is always left."""

import itertools
import os
import shutil
import signal
import sys

import pytest

from cyclegan.checkpointing import files
from tests.checkpointing.saves import Run, at

CHANGES = {
    "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link",
    "ctypes.dlsym",  # of `files.exchange`
}  # fmt: skip  # audit events of changes; `open` counts if it writes
SAME, NEXT, EARLIER = at(2), at(3), at(1, 2)  # the newest checkpoint before is at(2)
CASES = list(itertools.product((SAME, NEXT, EARLIER), (1, 3), (("best-x2y",), ()), (True, False)))
KILLS = 300  # of all cases together, at least

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def save_and_die(run, last, value, train_state, **options):
    """Save in a process that is killed before change number `last` of the disk; return whether it was."""
    child = os.fork()
    if not child:
        count_changes(lambda count: count == last and os.kill(os.getpid(), signal.SIGKILL))
        try:
            run.save(value, train_state, **options)
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), last
    return code != 0


def count_changes(before_change):
    """Call a function with the number of each change of the disk, before it, from now until the process ends."""
    count = itertools.count(1)

    def audit(event, arguments):
        if event in CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            before_change(next(count))

    os.fsync = lambda descriptor: before_change(next(count))  # has no audit event
    sys.addaudithook(audit)


def name_of(value):
    return {SAME.step: "same", NEXT.step: "next", EARLIER.step: "earlier"}.get(getattr(value, "step", None))


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a kill loses nothing that was written


@pytest.mark.sampled
@pytest.mark.parametrize("position, keep, aliases, exchanges", CASES, ids=name_of)
def test_a_kill_leaves_the_old_or_the_new_checkpoint(tmp_path, monkeypatch, position, keep, aliases, exchanges):
    before = Run(tmp_path / "before", keep)
    for value, train_state in enumerate((at(1), at(1, 4), at(2)), 1):
        before.save(value, train_state, aliases=aliases)
    if not exchanges:
        monkeypatch.setattr(files, "exchange", lambda one, other: False)
    found = []
    for moment in itertools.count(1):
        run = Run(tmp_path / str(moment), keep)
        shutil.copytree(before.folder, run.folder)
        killed = save_and_die(run, moment, 4, position, aliases=aliases)
        if exchanges:
            assert run.restored(strict=False) in ((3, at(2)), (4, position)), moment  # a reader, which repairs nothing
            assert all(run.alias(name) in (3, 4) for name in aliases), moment
        found.append(run.restored())
        assert found[-1] in ((3, at(2)), (4, position)), moment
        assert all(run.alias(name) in (3, 4) for name in aliases), moment
        if moment % 5 == 0:  # the next process removes leftovers
            run.save(5, at(4), aliases=aliases)
            assert run.restored() == (5, at(4))
            assert not list(run.folder.glob(".*")) and len(list(run.folder.glob("epoch_*"))) <= keep
        if not killed:
            break
    assert moment > KILLS / len(CASES) and found[0] == (3, at(2)) and found[-1] == (4, position)
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
