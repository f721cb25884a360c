"""Keeps TensorFlow's notices at start off the terminal."""

import contextlib
import os
import re
import sys
import tempfile

# What TensorFlow 2.21 writes while it is imported and looks for devices, whatever TF_CPP_MIN_LOG_LEVEL says.
NOTICE = re.compile(rb"I\d{4} |WARNING: All log messages before absl::InitializeLog")


@contextlib.contextmanager
def start():
    """Within it, what the process writes to standard error is held back; after it, all but notices is written.

    Also what C++ writes is held back, which Python's own redirection does not reach.
    """
    sys.stderr.flush()
    real = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(real, 2)
            os.close(real)
            held.seek(0)
            for line in held:
                if not NOTICE.match(line):
                    os.write(2, line)
