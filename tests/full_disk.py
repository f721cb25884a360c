"""Simulate a full disk for tests that write files."""

import contextlib
import resource


@contextlib.contextmanager
def no_file_beyond(size):
    """Fail writes beyond `size` bytes of a file; a write that crosses this size is done in part, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))  # Python ignores SIGXFSZ, so that it is an error
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
