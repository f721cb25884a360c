"""Kill a process at every change of the disk that a save makes: the old or the new checkpoint is always left.

`pytest --all -s tests/run/test_kill.py` prints the number of kills by position and kind of change.
"""

import collections
import itertools
import os
import shutil
import signal
import sys

import pytest

from cyclegan.run import files
from tests.run.saves import Run, at

CHANGES = {  # audit events of changes
    "open": "open",  # to write
    "os.mkdir": "mkdir",
    "os.link": "link",
    "os.rename": "rename",
    "ctypes.dlsym": "exchange",  # in `files.exchange`
    "os.remove": "unlink",
    "os.rmdir": "rmdir",
}
SAME, NEXT, EARLIER = at(2), at(3), at(1, 2)  # the newest checkpoint before is at(2)
CASES = list(itertools.product((SAME, NEXT, EARLIER), (1, 3), (("best-x2y",), ()), (True, False)))
KILLS = 300  # of all cases together, at least
KILLED = collections.Counter()  # by (position, kind of change)

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def save_and_die(run, last, value, train_state, **options):
    """Save in a process that is killed before change number `last` of the disk; return whether it was, and count the kill."""
    read, write = os.pipe()
    child = os.fork()
    if not child:

        def die(count, kind):
            if count == last:
                os.write(write, kind.encode())
                os.kill(os.getpid(), signal.SIGKILL)

        before_changes(die)
        try:
            run.save(value, train_state, **options)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(write)
    with open(read) as pipe:
        kind = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == (-signal.SIGKILL if kind else 0), last
    if kind:
        KILLED[name_of(train_state), kind] += 1
    return bool(kind)


def before_changes(call):
    """Call a function with the number and the kind of each change of the disk, before it, from now until the process ends."""
    count = itertools.count(1)

    def audit(event, arguments):
        if event in CHANGES and (event != "open" or arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            call(next(count), CHANGES[event])

    os.fsync = lambda descriptor: call(next(count), "fsync")  # has no audit event
    sys.addaudithook(audit)


def name_of(value):
    return {0: "start", SAME.step: "same", NEXT.step: "next", EARLIER.step: "earlier"}.get(getattr(value, "step", None))


def table():
    """Return the table of the kills so far in Markdown."""
    kinds = [*CHANGES.values(), "fsync"]
    rows = [["position", *kinds, "all"], ["---"] * (len(kinds) + 2)]
    for name in ("same", "next", "earlier", "start"):
        counts = [KILLED[name, kind] for kind in kinds]
        rows.append([name, *counts, sum(counts)])
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


@pytest.fixture(scope="module", autouse=True)
def print_table():
    yield
    print(f"\n{table()}")


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a kill loses nothing that was written


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
    assert moment - 1 >= KILLS / len(CASES) and found[0] == (3, at(2)) and found[-1] == (4, position)
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
