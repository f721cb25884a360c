"""One folder for the temporary files of the process, which does not outlive it for long."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator

from cyclegan.errors import UserError

PREFIX = "cyclegan-temporary-"  # of the names of the folders


@contextlib.contextmanager
def temporary_files() -> Iterator[None]:
    """Collect temporary files in one folder and remove it afterwards, with the files that libraries leave behind.

    Folders of processes that were killed are removed, too. A lock shows which processes still run.

    Raises:
        UserError: No folder can be made.
    """
    before = tempfile.tempdir
    try:
        _remove_abandoned_folders(tempfile.gettempdir())
        folder, lock = _make_locked_folder()
    except OSError as error:
        raise UserError(f"TMPDIR: a temporary folder cannot be made ({error}); expected a folder with room") from error
    tempfile.tempdir = folder
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
        tempfile.tempdir = before


def _make_locked_folder() -> tuple[str, int]:
    """Make a temporary folder; return its path and the descriptor that locks it."""
    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX)
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # taken for abandoned before it was opened
            continue
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(folder):  # otherwise, it was taken before it was locked
            return folder, lock
        os.close(lock)


def _remove_abandoned_folders(parent: str) -> None:
    """Remove the temporary folders of this user that no process has locked."""
    for folder in glob.glob(os.path.join(glob.escape(parent), f"{PREFIX}*")):
        with contextlib.suppress(OSError):  # no folder, or somebody else's, or in use
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
