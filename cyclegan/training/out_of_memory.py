"""The error of a device that runs out of memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from cyclegan.errors import TrainingError


@contextlib.contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Turn TensorFlow's error about exhausted memory into a `TrainingError` that names the flags to change."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise TrainingError(
            "the device has not enough memory for a step: try a smaller --batch_size, --image_size or --filters"
        ) from error
