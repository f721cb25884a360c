"""The errors of a device, or of a process with limits, that runs out of memory or threads."""

from __future__ import annotations

import contextlib
import errno
import pathlib
import sys
from collections.abc import Iterator

import tensorflow as tf

from cyclegan.errors import TrainingError, first_line
from cyclegan.run.run_directory import describe_last

LIMITS = ("can't start new thread", "bad_alloc", "Cannot allocate memory", "Resource temporarily unavailable")


class OutOfMemory(TrainingError):
    """The device has not enough memory for a step."""


@contextlib.contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Turn TensorFlow's error about exhausted memory into an `OutOfMemory` that names the flags to change."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise OutOfMemory(
            "the device has not enough memory for a step: try a smaller --batch_size, --image_size or --filters"
        ) from error


@contextlib.contextmanager
def name_checkpoint(run: pathlib.Path) -> Iterator[None]:
    """Turn errors about memory or threads, of TensorFlow, Python or the system, into one that names the last checkpoint.

    Args:
        run: Folder of the run.
    """
    try:
        yield
    except (OutOfMemory, MemoryError, RuntimeError, OSError, tf.errors.OpError) as error:
        if not _is_limit(error):
            raise
        reason = first_line(error)
        # The program ends; destructors of half-made objects may fail as well.
        sys.unraisablehook = lambda ignored: None
        text = reason if isinstance(error, OutOfMemory) else f"memory or threads ran out ({reason})"
        raise TrainingError(f"{text}; {describe_last(run)}. ulimit -a shows the limits of the process") from error


def _is_limit(error: BaseException) -> bool:
    if isinstance(error, (OutOfMemory, MemoryError, tf.errors.ResourceExhaustedError)):
        return True
    if isinstance(error, OSError):
        return error.errno in (errno.ENOMEM, errno.EAGAIN)
    return any(limit in str(error) for limit in LIMITS)
