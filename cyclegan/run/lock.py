"""Exclusive lock on the folder of a run."""

from __future__ import annotations

import errno
import fcntl
import os
import pathlib
import socket

from cyclegan.errors import TrainingError, UserError

WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # errors of file systems that have no locks


# Not `filelock.FileLock`: it empties the file before it has the lock, which erases the name of the holder, and mistakes a file
# system without locks for a lock that another process holds.
class FolderLock:
    """Lock on a folder, through its file `.lock`, which names the holder.

    The operating system releases the lock when the process ends, however it ends; the file stays.

    Args:
        folder: The folder. Nothing is locked before `acquire`.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Acquire the lock; a file system without locks is accepted.

        Raises:
            UserError: Another process holds the lock.
            OSError: The file cannot be written.
        """
        self._descriptor = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 200).decode(errors="replace").strip()
            self.release()
            raise UserError(
                f"{self._folder}: another process trains there ({holder}); expected one at a time: wait for it, stop it, or use"
                " another --output_dir"
            ) from None
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
        os.truncate(self._descriptor, 0)
        os.write(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())

    def check(self) -> None:
        """Raise `TrainingError` if the folder was removed, moved or replaced since `acquire`."""
        path = self._folder / ".lock"
        if (
            self._descriptor is None
            or not path.exists()
            or not os.path.samestat(path.stat(), os.fstat(self._descriptor))
        ):
            raise TrainingError(
                f"{self._folder} was removed or moved during training; expected it to stay: training stops, so as not to"
                " write into another run"
            )

    def release(self) -> None:
        """Release the lock if it is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
