"""Exclusive lock on the folder of a run."""

from __future__ import annotations

import errno
import fcntl
import os
import pathlib
import socket

from cyclegan.errors import TrainingError, UserError
from cyclegan.whole_file import check_single

WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # errors of file systems that have no locks


# Not `filelock.FileLock`: it empties the file before it has the lock, which erases the name of the holder; it follows symbolic
# links, hides its descriptor, and mistakes a file system without locks for a lock that another process holds.
class FolderLock:
    """Lock on a folder, through its file `.lock`, which names the holder.

    The operating system releases the lock when the process ends, however it ends; the file stays.

    Args:
        folder: The folder. Nothing is locked before `acquire`.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._path = folder / ".lock"
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Acquire the lock; a file system without locks is accepted.

        Raises:
            UserError: Another process holds the lock, or the file cannot be written.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
            self._descriptor = check_single(descriptor, self._path)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.truncate(self._descriptor, 0)
            os.write(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        except OSError as error:
            if error.errno in WITHOUT_LOCKS:
                return
            holder = self._holder()
            self.release()
            if error.errno != errno.EWOULDBLOCK:
                raise UserError(
                    f"--output_dir {self._folder}: {error}; expected a folder that can be written to: use another --output_dir"
                ) from error
            raise UserError(
                f"{self._folder}: another process trains there ({holder or 'it has just begun'}); expected one at a time: wait for"
                " it, stop it, or use another --output_dir"
            ) from None

    def _holder(self) -> str:
        if self._descriptor is None:
            return ""
        return os.read(self._descriptor, 200).decode(errors="replace").strip()

    def check(self) -> None:
        """Raise `TrainingError` if the folder was removed, moved or replaced since `acquire`."""
        try:
            same = self._descriptor is not None and os.path.samestat(os.stat(self._path), os.fstat(self._descriptor))
        except OSError:
            same = False
        if not same:
            raise TrainingError(
                f"{self._folder} was removed or moved during training; expected it to stay: training stops, so as not to"
                " write into another run"
            )

    def release(self) -> None:
        """Release the lock if it is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
