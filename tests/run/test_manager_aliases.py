import errno
import os
import shutil

import pytest

from cyclegan.errors import UserError
from cyclegan.run import files
from tests.run.saves import at, names, save


def best(run):
    """Return the weights under the name "best-x2y", as another start of the program restores them."""
    state, checkpoints = run()
    checkpoints.restore_from(checkpoints.folder / "best-x2y")
    return state["a"].numpy().tolist()


def save_best(run, epoch, aliases=("best-x2y",), keep=3):
    state, checkpoints = run(keep)
    state["a"].assign([epoch, epoch])
    return checkpoints.save(at(epoch), aliases=aliases)


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("links", [True, False])
def test_an_alias_stays_until_it_is_replaced(run, monkeypatch, links, exchanges):
    def refuse(*args):
        raise OSError(errno.EPERM, "no links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    if not exchanges:
        monkeypatch.setattr(files, "exchange", lambda one, other: False)
    made = save_best(run, 1, ("best-x2y", "best-y2x"))
    folder = made.parent
    inodes = {os.stat(path / "state.index").st_ino for path in (made, folder / "best-x2y", folder / "best-y2x")}
    assert len(inodes) == (1 if links else 3)
    checkpoints = save(run, 2, 3, 4, keep=2)
    assert sorted(names(checkpoints)) == ["best-x2y", "best-y2x", "epoch_0003", "epoch_0004"]
    assert [path.name for path in checkpoints.all()] == ["epoch_0003", "epoch_0004"]
    assert best(run) == [1, 1] and run()[1].restore()[0].epoch == 4
    save_best(run, 5, keep=1)
    assert best(run) == [5, 5] and sorted(names(checkpoints)) == ["best-x2y", "best-y2x", "epoch_0005"]
    assert run()[1].restore_from(folder / "best-y2x").epoch == 1


def test_an_alias_that_cannot_be_written_keeps_the_old_one(run, monkeypatch):
    save_best(run, 1)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        patch.setattr(shutil, "copyfile", full)
        with pytest.raises(UserError, match="epoch_0002 could not be written .*No space left.*epoch_0001 is complete"):
            save_best(run, 2)
    assert best(run) == [1, 1] and sorted(names(run()[1])) == ["best-x2y", "epoch_0001"]
