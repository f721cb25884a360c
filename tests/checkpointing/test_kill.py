"""Kill a process at every change of the disk that a save makes: the checkpoint before or the new one is always left."""

import os
import shutil
import sys

import pytest
import tensorflow as tf

from cyclegan.checkpointing import files
from cyclegan.checkpointing.manager import CheckpointManager
from cyclegan.checkpointing.train_state import TrainState
from tests.checkpointing.saves import at

CHANGES = {
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "ctypes.dlsym",
}  # audit events of changes; `open` counts if it writes


class Killed(BaseException):
    """Stand for SIGKILL: nothing is cleaned up."""


class Disk:
    """Count the changes of the disk in a context, and raise `Killed` before change number `last`."""

    def __init__(self):
        self.last, self.count, self.active = None, 0, False
        sys.addaudithook(self._audit)  # sees the calls of every library; a hook can't be removed

    def __call__(self, last=None):
        self.last, self.count = last, 0
        return self

    def __enter__(self):
        self.active = True

    def __exit__(self, *exception):
        self.active = False

    def _audit(self, event, arguments):
        if self.active and (event in CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR))):
            self.change()

    def change(self):
        self.count += 1
        if self.count == self.last:
            self.active = False
            raise Killed


DISK = Disk()


@pytest.fixture
def disk(monkeypatch):
    fsync = os.fsync  # has no audit event

    def counted(descriptor):
        if DISK.active:
            DISK.change()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    return DISK


class Run:
    """Start a program again and again on one folder; its only weight is set to a number before each save."""

    def __init__(self, folder, keep):
        self.folder, self.keep = folder, keep

    def start(self):
        weight = tf.Variable(0.0)
        return weight, CheckpointManager(self.folder, {"weight": weight}, self.keep)

    def save(self, value, train_state, **options):
        weight, checkpoints = self.start()
        weight.assign(value)
        checkpoints.save(train_state, **options)

    def restored(self, **options):
        weight, checkpoints = self.start()
        found = checkpoints.restore(**options)
        return found and (int(weight.numpy()), found[0])

    def alias(self, name):
        weight, checkpoints = self.start()
        checkpoints.restore_from(self.folder / name)
        return int(weight.numpy())


SAME, NEXT, EARLIER = at(2), at(3), at(1, 2)


@pytest.mark.parametrize(
    "position, keep, aliases, exchanges",
    [
        (SAME, 1, (), True),
        (SAME, 1, (), False),
        (SAME, 3, (), True),
        (SAME, 3, ("best-x2y",), False),
        (NEXT, 1, ("best-x2y",), True),
        (NEXT, 1, ("best-x2y",), False),
        (NEXT, 3, (), True),
        (EARLIER, 1, (), True),
        (EARLIER, 3, ("best-x2y",), True),
    ],
    ids=lambda value: {SAME.step: "same", NEXT.step: "next", EARLIER.step: "earlier"}[value.step]
    if isinstance(value, TrainState)
    else None,
)
def test_a_kill_during_a_save_leaves_the_old_or_the_new_checkpoint(
    tmp_path, disk, monkeypatch, position, keep, aliases, exchanges
):
    before = Run(tmp_path / "before", keep)
    for value, train_state in enumerate((at(1), at(1, 4), at(2)), 1):
        before.save(value, train_state, aliases=aliases)
    if not exchanges:
        monkeypatch.setattr(files, "exchange", lambda one, other: False)
    moment, killed, found = 0, True, []
    while killed:
        moment += 1
        run = Run(tmp_path / str(moment), keep)
        shutil.copytree(before.folder, run.folder)
        weight, checkpoints = run.start()
        weight.assign(4)
        try:
            with disk(last=moment):
                checkpoints.save(position, aliases=aliases)
            killed = False
        except Killed:
            pass
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
    assert moment > 10 and found[0] == (3, at(2)) and found[-1] == (4, position)
    assert found == sorted(found, key=lambda restored: restored[0])  # later kills never bring the old one back


def test_repeated_kills_leave_a_checkpoint(tmp_path, disk):
    """Save the same position again, as with --keep 1 on an imported run; each process dies a little later."""
    run, value, last, killed = Run(tmp_path / "run", keep=1), 1, 0, True
    run.save(value, at(0))
    while killed:
        last += 1
        weight, checkpoints = run.start()
        with disk():  # restoring counts, too
            found = checkpoints.restore()
        assert found and int(weight.numpy()) in range(1, value + 1)
        value += 1
        weight.assign(value)
        try:
            with disk(last):
                checkpoints.save(at(0))
            killed = False
        except Killed:
            pass
    assert last > 10 and run.restored() == (value, at(0))


def test_a_kill_of_the_first_save_leaves_nothing_or_a_checkpoint(tmp_path, disk):
    killed, moment = True, 0
    while killed:
        moment += 1
        run = Run(tmp_path / str(moment), keep=1)
        try:
            with disk(last=moment):
                run.save(1, at(0))
            killed = False
        except Killed:
            pass
        assert run.restored() in (None, (1, at(0)))
    assert moment > 4 and run.restored() == (1, at(0))
