"""Keeps TensorFlow's notices off the terminal and its files out of the way, and a closed terminal from ending the program."""

import contextlib
import os
import re
import shutil
import sys
import tempfile

# What TensorFlow 2.21 writes while it is imported and looks for devices, whatever TF_CPP_MIN_LOG_LEVEL says.
NOTICE = re.compile(rb"I\d{4} |WARNING: All log messages before absl::InitializeLog")


@contextlib.contextmanager
def start(notices=NOTICE):
    """Within it, what the process writes to standard error is held back; after it, all lines but notices are written.

    Also what C++ writes is held back, which Python's own redirection does not reach. `notices` matches bytes. Gives a function that
    writes a line at once all the same, with the `fileno` of what it writes to.
    """
    sys.stderr.flush()
    real = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield _Direct(real)
        finally:
            sys.stderr.flush()
            os.dup2(real, 2)
            os.close(real)
            held.seek(0)
            for line in held:
                if not notices.match(line):
                    os.write(2, line)


class _Direct:
    """Writes lines to a descriptor."""

    def __init__(self, descriptor):
        self._descriptor = descriptor

    def __call__(self, text):
        os.write(self._descriptor, f"{text}\n".encode(errors="backslashreplace"))

    def fileno(self):
        return self._descriptor


class _Outliving:
    """A text stream that drops what it can't write: a pipe without a reader, a closed terminal, a file on a full disk."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, text):
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self):
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name):
        return getattr(self._stream, name)


def outlive_the_terminal():
    """From here on, what can't be printed is lost, and the program goes on."""
    sys.stdout, sys.stderr = (_Outliving(stream) if stream else stream for stream in (sys.stdout, sys.stderr))


@contextlib.contextmanager
def temporary_files():
    """Temporary files made within it are gone after it, also those that libraries would remove only at the end of Python."""
    before = tempfile.tempdir
    tempfile.tempdir = tempfile.mkdtemp(prefix="cyclegan-")
    try:
        yield
    finally:
        shutil.rmtree(tempfile.tempdir, ignore_errors=True)
        tempfile.tempdir = before


def leave(code):
    """Ends the process. What TensorFlow takes down at the end of Python would wait for other workers, which may be gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
