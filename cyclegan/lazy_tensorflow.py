"""TensorFlow, imported at its first use, so that programs read their command lines without waiting for it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cyclegan.errors import first_line

NOTICE = re.compile(rb"WARNING: All log messages before absl|[IW]\d{4} ")  # begins a line of TensorFlow 2.16 and later


@functools.cache
def load() -> Any:
    """Import TensorFlow and its Keras, and return TensorFlow.

    Raises:
        ImportError: One of them, or a package that they need, is missing or has a version that does not fit.
    """
    try:
        with without_notices():
            tensorflow = importlib.import_module("tensorflow")
            _ = tensorflow.keras.layers  # TensorFlow imports Keras at its first use
        return tensorflow
    except Exception as error:  # other versions of NumPy or protobuf cause errors of many types
        raise ImportError(f"TensorFlow can't be imported ({type(error).__name__}: {first_line(error)})") from error


@contextlib.contextmanager
def without_notices(notice: re.Pattern[bytes] = NOTICE) -> Iterator[None]:
    """Leave out the lines that begin so of what TensorFlow writes to stderr, whatever TF_CPP_MIN_LOG_LEVEL is.

    Nothing is shown if an exception is raised, which says why: NumPy writes a hundred lines if it is too new.
    """
    try:
        stderr = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    with tempfile.TemporaryFile() as file:
        try:
            os.dup2(file.fileno(), 2)
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        file.seek(0)
        with contextlib.suppress(OSError):  # its reader may be gone
            os.write(2, b"".join(line for line in file if not notice.match(line)))


class _LazyTensorFlow:
    def __getattr__(self, name: str) -> Any:
        return getattr(load(), name)


if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = _LazyTensorFlow()
