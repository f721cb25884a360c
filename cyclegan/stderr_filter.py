"""Copy stdin to stderr line by line, without the lines that match a pattern; `terminal.start` runs this file as a process.

It is a process of its own so that it also shows the last lines of a program that crashes.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys


def copy_lines(pattern: bytes, source: int, target: int) -> None:
    """Copy the lines of one file descriptor to another until the source ends; each line at once.

    Args:
        pattern: Regular expression. Lines whose beginning matches are left out.
        source: Descriptor to read from.
        target: Descriptor to write to. Lines that can't be written are lost, so that the writer of the source never fails.
    """
    hidden = re.compile(pattern)
    rest = b""
    while chunk := os.read(source, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            _write(target, line + b"\n", hidden)
    _write(target, rest, hidden)


def _write(target: int, line: bytes, hidden: re.Pattern[bytes]) -> None:
    with contextlib.suppress(OSError):
        while line and not hidden.match(line):
            line = line[os.write(target, line) :]


if __name__ == "__main__":
    copy_lines(os.fsencode(sys.argv[1]), source=0, target=2)
