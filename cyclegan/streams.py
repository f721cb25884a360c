"""Streams of the terminal that may be closed, full or without a reader."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TextIO


class _LossyStream:
    """A text stream that drops text that can't be written: to a pipe without a reader, a closed terminal, a full disk.

    Attributes:
        lost: The first error, if a pipe without a reader does not explain it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        """Write a text or drop it; return its length."""
        with self._note_error():
            self._stream.write(text)
        return len(text)

    def writelines(self, texts: Iterable[str]) -> None:
        """Write texts or drop them."""
        for text in texts:
            self.write(text)

    def flush(self) -> None:
        """Flush the stream or drop its buffer."""
        with self._note_error():
            self._stream.flush()

    @contextlib.contextmanager
    def _note_error(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            pass
        except OSError as error:
            self.lost = self.lost or error

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def open_closed_descriptors() -> None:
    """Open the null device as stdin, stdout and stderr if they are closed; other files would get their numbers otherwise."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if descriptor else "r"))  # noqa: SIM115  open until the end


def outlive_the_terminal() -> None:
    """Make stdout and stderr drop text that can't be written, so that a closed terminal does not end the program."""
    open_closed_descriptors()
    for name in ("stdout", "stderr"):
        if not isinstance(stream := getattr(sys, name), _LossyStream):
            setattr(sys, name, _LossyStream(stream))
